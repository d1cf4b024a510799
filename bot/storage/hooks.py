"""Store what came to hooks, where each group of it goes on, and what was refused."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bot.storage.database import Execute
from bot.storage.rows import insert_row, read_row, read_rows
from bot.storage.states import DeliveryState

MAX_WAITING = 1_000  # deliveries looked at together


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """A delivery. `group_key` is its subject, `event` is what `HookEvent.dump` returned."""

    id: int
    hook: str
    group_key: str
    event: bytes
    received: float
    state: str


@dataclass(frozen=True, slots=True)
class HookSummary:
    """How many deliveries of a hook are kept and wait, and when the latest one came (0: none)."""

    kept: int
    waiting: int
    latest: float


@dataclass(frozen=True, slots=True)
class RefusalRow:
    """How often deliveries of a hook were refused for this reason, and when the latest one was."""

    hook: str
    reason: str
    count: int
    at: float


def store_delivery(
    execute: Execute, hook: str, key: str, digest: str, subject: str, event: bytes, now: float
) -> tuple[int, bool]:
    """Store a delivery; return its number, and whether it is new: a hook takes each key once."""
    values = {"hook": hook, "key": key, "digest": digest, "group_key": subject, "event": event}
    rest = {"received": now, "state": DeliveryState.WAITING}
    if rows := insert_row(execute, "hook_deliveries", "hook, key", values | rest):
        return int(rows[0]["id"]), True
    sql = "SELECT id FROM hook_deliveries WHERE hook=:hook AND key=:key"
    return int(execute(sql, {"hook": hook, "key": key})[0]["id"]), False


def find_same_body(execute: Execute, hook: str, digest: str, since: float) -> int | None:
    """Return the number of a delivery with the same body that came since then."""
    sql = (
        "SELECT id FROM hook_deliveries WHERE hook=:hook AND digest=:digest AND received>:since"
        " ORDER BY id DESC LIMIT 1"
    )
    rows = execute(sql, {"hook": hook, "digest": digest, "since": since})
    return int(rows[0]["id"]) if rows else None


def waiting_deliveries(execute: Execute, hook: str) -> list[DeliveryRow]:
    """Return what of a hook is not posted yet, in order."""
    sql = "SELECT * FROM hook_deliveries WHERE hook=:hook AND state=:state ORDER BY id LIMIT :limit"
    return read_rows(execute, DeliveryRow, sql, hook=hook, state=DeliveryState.WAITING, limit=MAX_WAITING)


def noticed_deliveries(execute: Execute, hook: str, conversation: str) -> list[DeliveryRow]:
    """Return what was only posted in a conversation, which does not know it yet, in order."""
    sql = (
        "SELECT * FROM hook_deliveries WHERE hook=:hook AND state=:state AND conversation=:conversation"
        " ORDER BY id LIMIT :limit"
    )
    values = {"hook": hook, "state": DeliveryState.NOTICED, "conversation": conversation, "limit": MAX_WAITING}
    return read_rows(execute, DeliveryRow, sql, **values)


def mark_posted(execute: Execute, ids: Sequence[int], state: DeliveryState, conversation: str, posted: float) -> None:
    """Record that deliveries were posted, or brought to a conversation."""
    sql = "UPDATE hook_deliveries SET state=:state, conversation=:conversation, posted=:posted WHERE id=:id"
    for id in ids:
        execute(sql, {"id": id, "state": state, "conversation": conversation, "posted": posted})


def bring_noticed(execute: Execute, ids: Sequence[int]) -> None:
    """Record that a conversation gets what was only posted in it."""
    for id in ids:
        execute("UPDATE hook_deliveries SET state=:state WHERE id=:id", {"id": id, "state": DeliveryState.POSTED})


def latest_posts(execute: Execute, hook: str, since: float) -> list[float]:
    """Return when a hook posted since then: a time for each post."""
    sql = (
        "SELECT posted FROM hook_deliveries WHERE hook=:hook AND posted>:since GROUP BY conversation, posted"
        " ORDER BY posted"
    )
    return [float(row["posted"]) for row in execute(sql, {"hook": hook, "since": since})]


def known_groups(execute: Execute, hook: str, thread: str, subjects: Collection[str]) -> dict[str, str]:
    """Return the conversations of those subjects that have one in this chat."""
    sql = "SELECT conversation FROM hook_groups WHERE hook=:hook AND thread=:thread AND group_key=:group_key"
    found = {
        subject: execute(sql, {"hook": hook, "thread": thread, "group_key": subject})
        for subject in dict.fromkeys(subjects)
    }
    return {subject: str(rows[0]["conversation"]) for subject, rows in found.items() if rows}


def store_group(execute: Execute, hook: str, thread: str, subject: str, conversation: str, now: float) -> None:
    """Let a subject go on in a conversation."""
    values = {"hook": hook, "thread": thread, "group_key": subject, "conversation": conversation, "used": now}
    insert_row(execute, "hook_groups", "hook, thread, group_key", values, update=("conversation", "used"))


def count_refusals(execute: Execute, hook: str, reason: str, count: int, now: float) -> None:
    """Add to how often deliveries of a hook were refused for a reason. `hook` is "" for one that does not exist."""
    sql = (
        "INSERT INTO hook_refusals(hook, reason, count, at) VALUES (:hook, :reason, :count, :at)"
        " ON CONFLICT(hook, reason) DO UPDATE SET count=hook_refusals.count+excluded.count, at=excluded.at"
    )
    execute(sql, {"hook": hook, "reason": reason, "count": count, "at": now})


def refusals_of(execute: Execute, hook: str) -> list[RefusalRow]:
    """Return what was refused of a hook, the latest first."""
    sql = "SELECT * FROM hook_refusals WHERE hook=:hook ORDER BY at DESC"
    return read_rows(execute, RefusalRow, sql, hook=hook)


def summarize_hook(execute: Execute, hook: str) -> HookSummary:
    """Return what of a hook is kept."""
    sql = (
        "SELECT count(*) AS kept, coalesce(sum(CASE state WHEN :state THEN 1 ELSE 0 END), 0) AS waiting,"
        " coalesce(max(received), 0) AS latest FROM hook_deliveries WHERE hook=:hook"
    )
    found = read_row(execute, HookSummary, sql, hook=hook, state=DeliveryState.WAITING)
    return found or HookSummary(0, 0, 0)
