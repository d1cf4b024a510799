"""Store what programs on the channel `web` have: files, and notes at their threads."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from agent.messages import Thread
from bot.database.database import Execute
from bot.database.rows import insert_row, read_row
from bot.storage import conversations, inbox, questions, runs
from bot.storage.jobs import enqueue_job

_OF_RUN = re.compile(r"r([0-9]{1,18})-([0-9]{1,4})")
_ITEM = re.compile(r"file:(.+):([0-9]{1,4})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class WebFileRow:
    """A file. `person` is the id on the channel `web` whose thread has it."""

    id: str
    thread: str
    person: str
    name: str
    size: int  # bytes
    caption: str
    at: float


def sent_id(message: str, number: int) -> str:
    """Return the id of a file that came with the message of this key."""
    return f"u{hashlib.sha256(message.encode()).hexdigest()[:32]}-{number}"


def run_file_id(run: int, number: int) -> str:
    """Return the id of a file that a run delivered."""
    return f"r{run}-{number}"


def notice_file_id(row: int, number: int) -> str:
    """Return the id of a file that the bot itself delivered by a row of the outbox."""
    return f"o{row}-{number}"


def parse_run_file(id: str) -> tuple[int, int] | None:
    """Return the run that delivered a file, and the number of the file; None for another one."""
    found = _OF_RUN.fullmatch(id)
    return (int(found[1]), int(found[2])) if found else None


def id_of_entry(item: str, *, sent: bool) -> str:
    """Return the id of the file that an entry of a transcript names; "" for none. `sent`: a person sent it."""
    found = _ITEM.fullmatch(item)
    if not found:
        return ""
    number = int(found[2])
    if sent:
        return sent_id(found[1], number)
    return run_file_id(int(found[1]), number) if found[1].isdecimal() else f"{found[1]}-{number}"


def add_file(execute: Execute, row: WebFileRow) -> None:
    """Store a file, also again."""
    insert_row(execute, "web_files", "id", asdict(row), update=("name", "size", "caption"))


def find_file(execute: Execute, id: str, person: str) -> WebFileRow | None:
    """Return a file of a person."""
    return read_row(
        execute, WebFileRow, "SELECT * FROM web_files WHERE id=:id AND person=:person", id=id, person=person
    )


def delete_files(execute: Execute, thread: str, person: str) -> None:
    """Delete the files of a thread."""
    sql = "DELETE FROM web_files WHERE person=:person AND thread=:thread"
    execute(sql, {"person": person, "thread": thread})


def unknown_ids(execute: Execute, ids: Collection[str]) -> set[str]:
    """Return those that no row has."""
    return {id for id in ids if not execute("SELECT 1 FROM web_files WHERE id=:id", {"id": id})}


FORGET_THREAD_JOB = "forget-thread"


@dataclass(frozen=True, slots=True)
class ThreadNote:
    """The address of a thread of the channel `web`, and what its programs noted."""

    thread: str
    metadata: dict[str, Any]


def read_note(execute: Execute, thread: Thread) -> dict[str, Any]:
    """Return what was noted at a thread; nothing where nothing was."""
    rows = execute("SELECT metadata FROM web_threads WHERE thread=:thread", {"thread": str(thread)})
    found: dict[str, Any] = orjson.loads(rows[0]["metadata"]) if rows else {}
    return found


def write_note(execute: Execute, thread: Thread, metadata: dict[str, Any], now: float) -> None:
    """Note this at a thread, in place of what was noted."""
    text = orjson.dumps(metadata).decode()
    values = {"thread": str(thread), "person": thread.chat, "metadata": text, "at": now}
    insert_row(execute, "web_threads", "thread", values, update=("metadata", "at"))


def delete_note(execute: Execute, thread: Thread) -> None:
    """Delete what was noted at a thread."""
    execute("DELETE FROM web_threads WHERE thread=:thread", {"thread": str(thread)})


def delete_thread(execute: Execute, thread: Thread, by: str) -> list[int]:
    """Delete a thread: it is gone at once, and a job deletes what its conversations hold. Returns the runs to stop."""
    rows = execute("SELECT key FROM conversations WHERE thread=:thread", {"thread": str(thread)})
    keys = [str(row["key"]) for row in rows]
    stopped = [run.id for run in runs.stoppable_runs(execute, thread)]
    for run in stopped:
        runs.request_stop(execute, run, by)
    for key in keys:
        inbox.withdraw_conversation(execute, key)
        conversations.refresh_pending(execute, key)
    execute("UPDATE addresses SET conversation='' WHERE thread=:thread", {"thread": str(thread)})
    delete_note(execute, thread)
    delete_files(execute, str(thread), thread.chat)
    payload = {"person": thread.chat, "conversations": keys}
    enqueue_job(
        execute, key=f"{FORGET_THREAD_JOB}:{keys[-1] if keys else thread}", kind=FORGET_THREAD_JOB, payload=payload
    )
    return stopped


STATELESS_JOB = "stateless-thread"
KEPT_SECONDS = 3600.0  # after the last use of a thread that a program did not name


def plan_end(execute: Execute, thread: Thread, now: float) -> None:
    """Have a thread deleted some time after its last use."""
    payload = {"thread": str(thread)}
    enqueue_job(execute, key=f"{STATELESS_JOB}:{thread}", kind=STATELESS_JOB, payload=payload, due=now + KEPT_SECONDS)


def end_unused(execute: Execute, thread: Thread, now: float) -> None:
    """Delete a thread that nobody used lately, or plan that again: it is in use while it works or asks."""
    row = conversations.find_conversation(execute, conversations.find_current(execute, thread))
    if row is None:
        return
    used = inbox.open_rows(execute, row.key) or questions.open_questions_at(execute, thread)
    if used or now < row.used + KEPT_SECONDS:
        plan_end(execute, thread, now if used else row.used)
    else:
        delete_thread(execute, thread, thread.chat)


def list_notes(execute: Execute, person: str, limit: int) -> list[ThreadNote]:
    """Return the notes of a person, the latest first."""
    sql = "SELECT thread, metadata FROM web_threads WHERE person=:person ORDER BY at DESC LIMIT :limit"
    rows = execute(sql, {"person": person, "limit": limit})
    return [ThreadNote(row["thread"], orjson.loads(row["metadata"])) for row in rows]
