"""Store what programs note at their threads over HTTP: small JSON, by the thread's address."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from agent.messages import Thread
from bot.storage.database import Execute
from bot.storage.rows import insert_row


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


def list_notes(execute: Execute, person: str, limit: int) -> list[ThreadNote]:
    """Return the notes of a person, the latest first."""
    sql = "SELECT thread, metadata FROM web_threads WHERE person=:person ORDER BY at DESC LIMIT :limit"
    rows = execute(sql, {"person": person, "limit": limit})
    return [ThreadNote(row["thread"], orjson.loads(row["metadata"])) for row in rows]
