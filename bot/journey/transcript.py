"""Collect the transcript of a run from its blocks and messages. The transaction that ends the run stores it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from agent.blocks import NOTED_STEP, Approve, Ask, Block, Notice, Step, Text, View
from agent.messages import Message
from bot.journey.artifacts import Artifacts
from bot.journey.claimed_run import ClaimedRun
from bot.storage import transcripts
from bot.storage.database import Execute
from bot.storage.states import EntryKind
from bot.storage.transcripts import TranscriptEntry


class TranscriptRecorder:
    """A reader of one run's feed: notes when each text, step, question and notice began and ended."""

    def __init__(self, job: ClaimedRun) -> None:
        self._job = job
        self._entries: dict[str, TranscriptEntry] = {}
        self._arrived: dict[str, float] = {}  # step of a message that joined the turn → when it was first shown

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
            ended = None if entry.state == "running" else round(entry.at - before.at, 3)
            entry = replace(entry, at=before.at, seconds=ended)
        self._entries[entry.item] = entry

    def recall(self, blocks: Iterable[Block]) -> None:
        """Add what an interrupted attempt of this run did, which the checkpoint holds and this process did not see."""
        for block in blocks:
            if entry := self._make_entry(block, self._job.started):
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
                return replace(entry, parent=block.parent, step_title=block.title)
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


def _text_item(part: str) -> str:
    return f"text:{part}"
