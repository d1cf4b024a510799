"""The small statements that several parts write into one transaction: addresses, conversations, the bot's own lines."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from agent.blocks import Final
from agent.messages import Thread
from bot.storage.database import Execute, Row

log = logging.getLogger(__name__)

OPEN_ROWS = "state=0 AND kind IN ('chat', 'click')"  # rows that a turn must still answer, taken by one or not

DAMAGED = "I can't read a message that I stored for you: it was damaged on my side. Please send it again."


def current_conversation(execute: Execute, thread: Thread, now: float) -> str:
    """The key of the conversation that this address is in; begun if there is none."""
    rows = execute("SELECT conversation FROM addresses WHERE thread=:thread", {"thread": str(thread)})
    return (
        str(rows[0]["conversation"]) if rows and rows[0]["conversation"] else begin_conversation(execute, thread, now)
    )


def has_conversation(execute: Execute, thread: Thread) -> bool:
    """Whether there is a conversation at this address."""
    return bool(execute("SELECT 1 FROM addresses WHERE thread=:thread", {"thread": str(thread)}))


def begin_conversation(execute: Execute, thread: Thread, now: float) -> str:
    """Begin a new conversation at this address. The old one keeps its history and files."""
    address = str(thread)
    rows = execute("SELECT count FROM addresses WHERE thread=:thread", {"thread": address})
    count = int(rows[0]["count"]) + 1 if rows else 1
    key = f"{address}#{count}"
    execute(
        "INSERT INTO addresses(thread, conversation, count) VALUES (:thread, :key, :count)"
        " ON CONFLICT(thread) DO UPDATE SET conversation=excluded.conversation, count=excluded.count",
        {"thread": address, "key": key, "count": count},
    )
    execute(
        "INSERT INTO conversations(key, thread, created, used) VALUES (:key, :thread, :now, :now)"
        " ON CONFLICT(key) DO NOTHING",
        {"key": key, "thread": address, "now": now},
    )
    return key


def is_first_conversation(key: str) -> bool:
    """Whether this is the first conversation at its address: nobody put one aside with `/new`."""
    return key.endswith("#1")


def refresh_pending(execute: Execute, key: str) -> bool:
    """Set when a conversation may next be taken: when its first open row is ready. Rows never overtake each other.
    True when there are open rows."""
    rows = execute(
        f"UPDATE conversations SET pending=(SELECT count(*) FROM inbox WHERE conversation=:key AND {OPEN_ROWS}),"  # noqa: S608 — constants
        f" ready=(SELECT ready FROM inbox WHERE conversation=:key AND {OPEN_ROWS} ORDER BY id LIMIT 1) WHERE key=:key"
        " RETURNING pending",
        {"key": key},
    )
    return bool(rows and rows[0]["pending"])


def move_thread(execute: Execute, old: Thread, new: Thread) -> None:
    """The chat has a new address: its conversations, posts and waiting replies go along."""
    values = {"old": str(old), "new": str(new)}
    execute(
        "INSERT INTO addresses(thread, conversation, count)"
        " SELECT :new, conversation, count FROM addresses WHERE thread=:old"
        " ON CONFLICT(thread) DO UPDATE SET conversation=excluded.conversation, count=excluded.count",
        values,
    )
    execute("UPDATE posts SET thread=:new WHERE thread=:old", values)
    execute("UPDATE conversations SET thread=:new WHERE thread=:old", values)
    execute("UPDATE outbox SET thread=:new WHERE thread=:old AND state<2", values)


def enqueue_notice(
    execute: Execute, thread: Thread | str, text: str, *, key: str, now: float, reply_to: str = ""
) -> None:
    """A line of the bot's own, delivered like every reply. The same `key` says it once."""
    execute(
        "INSERT INTO outbox(key, kind, thread, payload, reply_to, created)"
        " VALUES (:key, 'say', :thread, :payload, :reply_to, :now) ON CONFLICT(key) DO NOTHING",
        {"key": key, "thread": str(thread), "payload": Final(text).dump(), "reply_to": reply_to, "now": now},
    )


def bury(execute: Execute, rows: Sequence[Row], error: Exception, now: float) -> None:
    """Make dead letters of one conversation's inbox rows that cannot be read, and tell its chat once."""
    for row in rows:
        log.error("inbox.damaged row=%d reason=%s", row["id"], error)
        execute("UPDATE inbox SET state=3, error=:error WHERE id=:id", {"error": repr(error), "id": row["id"]})
    for row in rows[:1]:
        for found in execute("SELECT thread FROM conversations WHERE key=:key", {"key": row["conversation"]}):
            enqueue_notice(execute, found["thread"], DAMAGED, key=f"dead:in{row['id']}", now=now)
