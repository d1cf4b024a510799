"""Show a thread as turns with blocks in the order of their appearance, and what waits for a turn.

A turn that ended comes from its transcript, with what only its final reply says; one in progress from its feed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from agent.blocks import NOTED_STEP, THINKING_STEP, Final, Step, View, spell_commands
from agent.messages import Kind, Thread
from agent.stored_json import Damaged
from bot.api.shared.caller import Caller
from bot.api.shared.event_json import block_event
from bot.api.shared.read_models import entry_json, not_found, sent_file
from bot.database.database import Execute
from bot.database.states import EntryKind, InboxState
from bot.journey.feed import FedRun, recall
from bot.rights.current import Current
from bot.storage import conversations, inbox, outbox, outcomes, questions, runs, transcripts
from bot.storage.inbox import InboxRow
from bot.storage.questions import QuestionRow
from bot.storage.transcripts import StoredEntry

Json = dict[str, Any]
ENTRIES = 400  # of a page, from its first whole turn on
MESSAGES = 100  # that no turn has taken, and commands
MIXED = 0  # the run of entries that belong to none


@dataclass(frozen=True, slots=True)
class Shown:
    """What a turn in progress shows, up to the block `number` of its feed."""

    live: FedRun
    view: View
    number: int


async def look_at(live: FedRun, current: Current) -> Shown:
    """Return what a turn in progress shows, with what earlier attempts of its run did."""
    earlier = await recall(live, current)
    earlier.add_all(live.feed.view.blocks())
    return Shown(live, earlier, live.feed.last)


def read_view(execute: Execute, caller: Caller, id: str, before: int, live: Sequence[Shown]) -> Json:
    """Return the latest page of a thread, or that before an entry. Raises HttpProblem where there is no such thread."""
    thread = caller.thread(id)
    current = conversations.find_current(execute, thread)
    row = conversations.find_conversation(execute, current)
    if row is None:
        raise not_found("thread")
    entries = transcripts.latest_of_thread(execute, str(thread), before, ENTRIES)
    groups = [(run, [*group]) for run, group in groupby(_whole(entries), lambda entry: entry.run)]
    turns = [each for run, group in groups for each in _stored(execute, caller, run, group)]
    since = turns[0]["at"] if len(entries) == ENTRIES and turns else 0.0
    until = turns[-1]["at"] if before < LATEST and turns else float("inf")
    turns += [each for each in _commands(execute, thread) if since <= each["at"] <= until]
    shown = {turn["run"] for turn in turns}
    if before == LATEST:
        turns += [_running(execute, each) for each in live if each.live.job.run not in shown]
    waiting = _waiting(execute, current, {each.live.job.run for each in live} | shown) if before == LATEST else []
    found = {"id": id, "title": row.title, "model": row.model, "agent": row.agent, "effort": row.effort}
    found |= {"conversation": current}
    cursor = min((group[0].id for _run, group in groups), default=0) if len(entries) == ENTRIES else None
    view: Json = _spelled({**found, "turns": sorted(turns, key=_time), "waiting": waiting, "before": cursor})
    return view


LATEST = 1 << 62  # no entry has so high a number


def _whole(entries: Sequence[StoredEntry]) -> Sequence[StoredEntry]:
    """Leave out the first turn of a full page: it may have begun before. A single turn stays."""
    if len(entries) < ENTRIES:
        return entries
    rest = [entry for entry in entries if entry.run != entries[0].run]
    return rest or entries


def _time(turn: Json) -> float:
    return float(turn["at"])


def _stored(execute: Execute, caller: Caller, run: int, entries: Sequence[StoredEntry]) -> Iterator[Json]:
    if run == MIXED:
        for entry in entries:
            shown = entry_json(execute, caller, entry)
            asks = [{"type": "question", **ask, "posted": True} for ask in shown["questions"]]
            blocks = [{"type": "file", **shown["file"]}] if shown["file"] else [_notice(entry.text), *asks]
            yield _turn(0, entry.conversation, entry.at, blocks=blocks, key=entry.item)
        return
    row, conversation = runs.find_run(execute, run), entries[0].conversation
    final, marks = _final(execute, run), outcomes.feedback_of_run(execute, run)
    titles = {step.id: step for step in final.steps} if final else {}
    asked = {each.id: each for each in _asked(execute, conversation, run)}
    said, blocks = list[Json](), list[Json]()
    files = {each.item: entry_json(execute, caller, each)["file"] for each in entries if each.kind == EntryKind.FILE}
    for entry in entries:
        if entry.kind in (EntryKind.MESSAGE, EntryKind.ANSWER):
            spoken = _said_entry(entry, files)
            blocks += [{"type": "said", **spoken}] if blocks else []
            said += [] if blocks else [spoken]
        elif entry.kind == EntryKind.FILE:
            blocks += [] if entry.author else [{"type": "file", "item": entry.item, **files[entry.item]}]
        elif block := _stored_block(entry, titles, asked):
            blocks.append(block)
    if final and final.plan:
        blocks.insert(0, {"type": "plan", "items": [asdict(item) for item in final.plan]})
    yield _turn(
        *(run, conversation, min(entry.at for entry in entries)),
        state=row.state if row else "done",
        said=said,
        blocks=blocks,
        seconds=final.seconds if final else 0.0,
        tokens=final.tokens if final else 0,
        feedback=next((each.value for each in marks if each.person == caller.author.id), 0),
    )


def _turn(run: int, conversation: str, at: float, **more: Any) -> Json:
    empty: Json = {"state": "done", "said": [], "blocks": [], "seconds": 0.0, "tokens": 0, "feedback": 0}
    return {"run": run, "conversation": conversation, "at": at, **empty, **more}


def _said_entry(entry: StoredEntry, files: Mapping[str, Json]) -> Json:
    key = entry.item.removeprefix("message:")
    sent = [file for item, file in files.items() if item.startswith(f"file:{key}:")]
    by = "" if entry.author else "agent"  # what a schedule or a task began
    return {"key": key, "text": entry.text, "files": sent, "at": entry.at, "kind": entry.kind, "by": by}


def _stored_block(entry: StoredEntry, steps: Mapping[str, Step], asked: Mapping[str, QuestionRow]) -> Json | None:
    name = entry.item.partition(":")[2]
    match entry.kind:
        case EntryKind.TEXT:
            return {"type": "text", "part": name, "delta": entry.text, "replace": True}
        case EntryKind.STEP:
            known = steps.get(name)
            shown = {"title": entry.step_title or entry.text, "detail": entry.text if entry.step_title else ""}
            shown = {"title": known.title, "detail": known.detail} if known else shown
            times = {"state": entry.state, "seconds": entry.seconds, "output": entry.output}
            about = {"parent": entry.parent, "thinking": name.startswith(THINKING_STEP)}
            return {"type": "step", "id": name, **shown, **times, **about}
        case EntryKind.QUESTION if row := asked.get(name):
            return _question(row)
        case EntryKind.NOTICE:
            return _notice(entry.text)
    return None


def _notice(text: str) -> Json:
    return {"type": "notice", "text": text, "kept": True}


def _question(row: QuestionRow) -> Json:
    shown = {"id": row.id, "kind": row.kind, "text": row.text, "call": row.call, "options": row.options}
    return {
        "type": "question",
        **shown,
        "free_text": bool(row.free_text),
        "until": row.until,
        "state": row.state,
        "answer": row.answer,
    }


def _asked(execute: Execute, conversation: str, run: int) -> Sequence[QuestionRow]:
    with suppress(Damaged):
        return questions.questions_of_run(execute, conversation, run)
    return ()


def _final(execute: Execute, run: int) -> Final | None:
    """Return the final reply of a run; None where it is gone or cannot be read."""
    row = outbox.find_shown(execute, f"r{run}")
    if row is None or not row.payload:
        return None
    with suppress(Damaged):
        return Final.load(row.payload)
    return None


# ------------------------------------------------------------ what has not ended


def _running(execute: Execute, shown: Shown) -> Json:
    """Return a turn in progress as its feed shows it, and up to which of its blocks."""
    job = shown.live.job
    rows = [(row, said) for row in inbox.rows_of_run(execute, job.run) if (said := _said(row))]
    joined = {f"{NOTED_STEP}{said['key']}": said for row, said in rows if row.steered}
    blocks = []
    for block in shown.view.blocks():
        name = block.id if isinstance(block, Step) else ""
        if name in joined:
            blocks.append({"type": "said", **joined.pop(name)})
        elif not name.startswith(NOTED_STEP) and (event := block_event(block)):
            blocks.append({"type": event[0], **event[1]})
    first = [said for row, said in rows if not row.steered]
    at_block = {"began": shown.live.feed.began, "number": shown.number}
    return _turn(
        job.run,
        job.conversation,
        job.asked,
        state="running",
        said=[*first, *joined.values()],
        blocks=blocks,
        at_block=at_block,
    )


def _said(row: InboxRow) -> Json | None:
    with suppress(Damaged):
        message = row.message
        kind = EntryKind.ANSWER if message.kind is Kind.CLICK else EntryKind.MESSAGE
        by = "" if message.is_by_author else "agent"
        files = [*map(sent_file, message.attachments)]
        return {"key": message.key, "text": message.text, "files": files, "at": message.time, "kind": kind, "by": by}
    return None


def _waiting(execute: Execute, conversation: str, taken: set[int]) -> list[Json]:
    """Return the messages that no shown turn has taken."""
    rows = [row for row in inbox.open_rows(execute, conversation) if row.run is None or row.run not in taken]
    return [each for row in rows[:MESSAGES] if (each := _said(row))]


def _commands(execute: Execute, thread: Thread) -> Iterator[Json]:
    """Return the commands that the person wrote, which belong to no turn."""
    for row in inbox.latest_of_thread(execute, str(thread), MESSAGES):
        if row.kind == Kind.COMMAND and row.state != InboxState.DEAD and (said := _said(row)):
            with suppress(Damaged):
                if not row.message.target:  # one that a button sent
                    text = f"/{said['text']}"
                    yield _turn(0, row.conversation, said["at"], said=[{**said, "text": text, "kind": "command"}])


def _spelled(value: Any) -> Any:
    """Return JSON with the commands in its texts as a person writes them."""
    match value:
        case str():
            return spell_commands(value, lambda command: f"/{command}")
        case dict():
            return {name: _spelled(each) for name, each in value.items()}
        case list() | tuple():
            return [_spelled(each) for each in value]
    return value
