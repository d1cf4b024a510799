"""Collect the transcript of a run from its blocks and messages. The transaction that ends the run stores it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import cast

from agent.blocks import NOTED_STEP, THINKING_STEP, Approve, Ask, Block, Notice, Step, StepState, Text, View
from agent.messages import Message
from bot.database.database import Execute
from bot.database.states import EntryKind
from bot.journey.artifacts import Artifacts
from bot.rights.claimed_run import ClaimedRun
from bot.storage import transcripts
from bot.storage.transcripts import TranscriptEntry


class TranscriptRecorder:
    """A reader of one run's feed: notes when each text, step, question and notice began and ended."""

    def __init__(self, job: ClaimedRun) -> None:
        self._job = job
        self._entries: dict[str, TranscriptEntry] = {}
        self._arrived: dict[str, float] = {}  # step of a message that joined the turn → when it was first shown
        self._earlier: dict[str, TranscriptEntry] = {}  # steps of an earlier attempt, of which a message may tell
        self.unsaved: dict[str, TranscriptEntry] = {}  # steps that have changed since the journal was written

    def add(self, block: Block) -> None:
        """Note a block of the running turn."""
        if isinstance(block, Text) and _text_item(block.part) in self._entries:
            return  # a further delta: the view holds the text
        if isinstance(block, Step) and block.id.startswith(NOTED_STEP):
            self._arrived.setdefault(block.id, time.time())
            return
        if not (entry := self._make_entry(block, time.time())):
            return
        before = self._entries.get(entry.item)
        if before and entry.kind is EntryKind.STEP:
            known = before.state == "running" and entry.item not in self._earlier
            ended = before.seconds if entry.state == before.state else round(entry.at - before.at, 3) if known else None
            entry = replace(entry, at=before.at, seconds=ended)
        self._entries[entry.item] = entry
        if entry.kind is EntryKind.STEP and entry != before:
            self.unsaved[entry.item] = entry

    def note_saved(self, steps: Mapping[str, TranscriptEntry]) -> None:
        """Note that the journal has these steps, as far as they have not changed since."""
        for item, entry in steps.items():
            if self.unsaved[item] is entry:
                del self.unsaved[item]

    def recall_steps(self, stored: Iterable[TranscriptEntry]) -> None:
        """Add the steps of sub-agents that an interrupted attempt of this run did; know when its other steps were."""
        for entry in stored:
            self._earlier[entry.item] = entry
            if entry.parent:
                self._entries[entry.item] = entry

    def recall(self, blocks: Sequence[Block]) -> None:
        """Add what an interrupted attempt of this run did, which the checkpoint holds and this process did not see.

        A text is as old as the step before it.
        """
        at, found = self._job.started, list[TranscriptEntry]()
        for block in blocks:
            if entry := self._make_entry(block, at):
                known = self._earlier.get(entry.item)
                at = max(at, known.at if known else at)
                found.append(replace(entry, at=at, seconds=known.seconds if known else None))
        for entry in found:
            self._entries.setdefault(entry.item, entry)

    def _make_entry(self, block: Block, at: float) -> TranscriptEntry | None:
        match block:
            case Text(part="answered"):  # a summary of the person's answers
                return None
            case Text():
                return TranscriptEntry(_text_item(block.part), EntryKind.TEXT, block.delta, at)
            case Step():
                text = block.detail or block.title
                entry = TranscriptEntry(f"step:{block.id}", EntryKind.STEP, text, at, state=block.state)
                return replace(entry, parent=block.parent, step_title=block.title, output=block.output)
            case Ask() | Approve():
                ask = block.to_question() if isinstance(block, Approve) else block
                text = "\n".join([ask.question, *(f"- {option}" for option in ask.options)])
                return TranscriptEntry(f"question:{block.id}", EntryKind.QUESTION, text, at)
            case Notice():
                return self._make_notice(block.text, at, len(self._entries))
        return None

    def _make_notice(self, text: str, at: float, number: int) -> TranscriptEntry:
        return TranscriptEntry(f"notice:{self._job.run}:{number}", EntryKind.NOTICE, text, at)

    def store(self, execute: Execute, view: View, steered: Sequence[Message], collected: Artifacts, now: float) -> None:
        """Store the whole transcript of the run, with the messages that joined it."""
        entries = self._all_entries(view, steered, collected, now)
        transcripts.add_entries(execute, self._job.conversation, self._job.run, entries)

    def _all_entries(
        self, view: View, steered: Sequence[Message], collected: Artifacts, now: float
    ) -> list[TranscriptEntry]:
        """Return the entries in the order of time. `steered` are the messages that joined the run."""
        said = [entry for message in self._job.messages for entry in self._message_entries(message)]
        done = [
            replace(entry, at=self._arrived.get(f"{NOTED_STEP}{message.key}", entry.at))  # platforms round their times
            for message in steered
            for entry in self._message_entries(message)
        ]
        for entry in self._entries.values():
            if entry.kind is EntryKind.TEXT:
                part = entry.item.removeprefix("text:")
                entry = replace(
                    entry, text=view.texts.get(part, entry.text), item=_text_item(part or f"{self._job.run}")
                )
            elif entry.state == "running" and not view.asks:
                entry = replace(entry, state="stopped")
            if entry.text.strip():
                done.append(entry)
        failed = [f"{view.failed}"] if view.failed else []
        stopped = ["Stopped."] if view.done and view.done.state == "stopped" else []
        ends = [
            TranscriptEntry(
                f"file:{self._job.run}:{number}", EntryKind.FILE, f"{file.name} {file.caption}".strip(), now
            )
            for number, file in enumerate(collected.files)
        ]
        ends += [self._make_notice(text, now, -n) for n, text in enumerate([*collected.notes, *failed, *stopped], 1)]
        return [*said, *sorted(done, key=lambda entry: entry.at), *ends]

    def _message_entries(self, message: Message) -> list[TranscriptEntry]:
        answers = message.key in {answer.key for answer in self._job.answers}
        kind = EntryKind.ANSWER if answers else EntryKind.MESSAGE
        author, name = (message.author.id, message.author.name) if message.is_by_author else ("", "")  # "": the agent
        entries = [TranscriptEntry(f"message:{message.key}", kind, message.text, message.time, author, name)]
        entries += [
            TranscriptEntry(f"file:{message.key}:{number}", EntryKind.FILE, file.name, message.time, author, name)
            for number, file in enumerate(message.attachments)
        ]
        return [entry for entry in entries if entry.text]


def step_of(entry: TranscriptEntry) -> Step:
    """Return the step of an entry as it was shown."""
    detail = entry.text if entry.text != entry.step_title else ""
    id = entry.item.removeprefix("step:")
    step = Step(id, entry.step_title, detail=detail, thinking=id.startswith(THINKING_STEP), parent=entry.parent)
    return replace(step, state=cast(StepState, entry.state), output=entry.output)


def with_thoughts(blocks: Sequence[Block], thoughts: Sequence[Step]) -> list[Block]:
    """Return recalled blocks with the reasoning before each answer, which no checkpoint has."""
    found = list[Block]()
    by_part = {step.id.removeprefix(THINKING_STEP): step for step in thoughts}
    for block in blocks:
        if isinstance(block, Text) and (thought := by_part.get(block.part)):
            found.append(thought)
        found.append(block)
    return found


def _text_item(part: str) -> str:
    return f"text:{part}"
