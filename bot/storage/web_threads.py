"""Store what programs note at their threads over HTTP: small JSON, by the thread's address."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from agent.messages import Thread
from bot.database.database import Execute
from bot.database.rows import insert_row
from bot.storage import conversations, inbox, runs, web_files
from bot.storage.jobs import enqueue_job

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
    web_files.delete_files(execute, str(thread), thread.chat)
    payload = {"person": thread.chat, "conversations": keys}
    enqueue_job(
        execute, key=f"{FORGET_THREAD_JOB}:{keys[-1] if keys else thread}", kind=FORGET_THREAD_JOB, payload=payload
    )
    return stopped


def list_notes(execute: Execute, person: str, limit: int) -> list[ThreadNote]:
    """Return the notes of a person, the latest first."""
    sql = "SELECT thread, metadata FROM web_threads WHERE person=:person ORDER BY at DESC LIMIT :limit"
    rows = execute(sql, {"person": person, "limit": limit})
    return [ThreadNote(row["thread"], orjson.loads(row["metadata"])) for row in rows]
