"""Store what came to hooks, where each group of it goes on, and what was refused."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass

from bot.database.database import Execute
from bot.database.rows import insert_row, read_row, read_rows
from bot.database.states import DeliveryState

MAX_WAITING = 1_000  # deliveries looked at together
_OPEN = "root<>'' AND place='' AND conversation=''"  # of a group


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
class GroupRow:
    """Where a subject continues: in a conversation, or in the thread `place` below a post of its own.

    `root` is the key of that post in the outbox, "" where there is none; until it is delivered, neither is known. It
    shows the deliveries up to the number `shown`.
    """

    group_key: str
    conversation: str
    root: str = ""
    place: str = ""
    shown: int = 0
    used: float = 0.0

    @property
    def home(self) -> str:
        """The thread or the conversation in which it continues; "" while its post is on its way."""
        return self.place or self.conversation


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
        f" UNION ALL SELECT used AS posted FROM hook_groups WHERE hook=:hook AND used>:since AND {_OPEN}"
        " GROUP BY root, used"
        " ORDER BY posted"
    )
    return [float(row["posted"]) for row in execute(sql, {"hook": hook, "since": since})]


def known_groups(execute: Execute, hook: str, thread: str, subjects: Collection[str]) -> dict[str, GroupRow]:
    """Return those subjects that have been posted in this chat."""
    sql = (
        "SELECT group_key, conversation, root, place, shown, used FROM hook_groups"
        " WHERE hook=:hook AND thread=:thread AND group_key=:group_key"
    )
    found = (
        read_row(execute, GroupRow, sql, hook=hook, thread=thread, group_key=subject)
        for subject in dict.fromkeys(subjects)
    )
    return {row.group_key: row for row in found if row}


def store_group(execute: Execute, hook: str, thread: str, subject: str, conversation: str, now: float) -> None:
    """Let a subject continue in a conversation."""
    _write_group(execute, hook, thread, GroupRow(subject, conversation, used=now))


def begin_thread(execute: Execute, hook: str, thread: str, subject: str, root: str, shown: int, now: float) -> None:
    """Let a subject continue below the post `root` of the outbox, as soon as that is delivered."""
    _write_group(execute, hook, thread, GroupRow(subject, "", root, shown=shown, used=now))


def _write_group(execute: Execute, hook: str, thread: str, row: GroupRow) -> None:
    values = {"hook": hook, "thread": thread, **asdict(row)}
    changed = ("conversation", "root", "place", "shown", "used")
    insert_row(execute, "hook_groups", "hook, thread, group_key", values, update=changed)


def use_group(execute: Execute, hook: str, thread: str, subject: str, now: float) -> None:
    """Note that a subject was posted again: it is kept from now on."""
    sql = "UPDATE hook_groups SET used=:now WHERE hook=:hook AND thread=:thread AND group_key=:group_key"
    execute(sql, {"hook": hook, "thread": thread, "group_key": subject, "now": now})


def open_roots(execute: Execute, hook: str) -> list[str]:
    """Return the posts of a hook whose threads are not known yet."""
    sql = f"SELECT DISTINCT root FROM hook_groups WHERE hook=:hook AND {_OPEN} ORDER BY root"
    return [str(row["root"]) for row in execute(sql, {"hook": hook})]


def settle_root(execute: Execute, hook: str, root: str, *, place: str = "", conversation: str = "") -> None:
    """Note where the subjects of a post continue: in the thread `place`, or else in a conversation."""
    sql = "UPDATE hook_groups SET place=:place, conversation=:conversation WHERE hook=:hook AND root=:root"
    execute(sql, {"hook": hook, "root": root, "place": place, "conversation": conversation})


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
