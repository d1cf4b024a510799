"""Dead letters: deliveries that failed for good, and events that cannot be read."""

from __future__ import annotations

from dataclasses import dataclass

from bot.database.database import Execute
from bot.database.dialect import PAYLOAD_BYTES
from bot.database.rows import parse_row_id, read_rows
from bot.database.states import InboxState, OutboxState
from bot.storage.outbox import OutboxItem
from bot.storage.sent_messages import reset_posts

EVENT_PREFIX = "in"  # of the id of an event
EVERY = 1 << 31  # rows


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter. `kind` is an `OutboxKind`, "" for an event."""

    id: str
    kind: str
    thread: str
    created: float
    error: str
    raw: bytes


def list_dead(execute: Execute, after: str = "", limit: int = EVERY) -> list[DeadLetter]:
    """Return dead letters, deliveries first: up to `limit` behind this id, "" for the first ones."""
    deliveries = (
        f"SELECT CAST(id AS TEXT) AS id, kind, thread, created, error, {PAYLOAD_BYTES} AS raw"
        f" FROM outbox WHERE state={OutboxState.DEAD} AND outbox.id>:after ORDER BY outbox.id LIMIT :limit"
    )
    events = (
        f"SELECT '{EVENT_PREFIX}' || id AS id, '' AS kind, '' AS thread, received AS created, error,"
        f" {PAYLOAD_BYTES} AS raw FROM inbox WHERE state={InboxState.DEAD} AND inbox.id>:after"
        " ORDER BY inbox.id LIMIT :limit"
    )
    found, number = [], parse_row_id(after.removeprefix(EVENT_PREFIX)) or 0
    if not after.startswith(EVENT_PREFIX):
        found = read_rows(execute, DeadLetter, deliveries, after=number, limit=limit)
        number = 0
    return found + read_rows(execute, DeadLetter, events, after=number, limit=limit - len(found))


def requeue_dead(execute: Execute, row: int) -> bool:
    """Requeue a delivery as if it were new; what may be visible of it is still marked as a repeat.

    Returns whether there was one.
    """
    rows = execute(
        f"UPDATE outbox SET state={OutboxState.NEW}, attempts=0, error=''"
        f" WHERE id=:id AND state={OutboxState.DEAD} RETURNING *",
        {"id": row},
    )
    for found in rows:
        reset_posts(execute, OutboxItem.from_row(found).reply_key)
    return bool(rows)


def drop_delivery(execute: Execute, row: int) -> bool:
    """Forget a delivery; return whether there was one."""
    sql = f"UPDATE outbox SET state={OutboxState.DROPPED} WHERE id=:id AND state={OutboxState.DEAD} RETURNING id"
    return bool(execute(sql, {"id": row}))


def drop_event(execute: Execute, row: int) -> bool:
    """Forget an event; return whether there was one."""
    sql = f"UPDATE inbox SET state={InboxState.WITHDRAWN} WHERE id=:id AND state={InboxState.DEAD} RETURNING id"
    return bool(execute(sql, {"id": row}))
