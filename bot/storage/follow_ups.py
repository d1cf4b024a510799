"""Work that began without a person: one row each, with a digest of the message from which it followed."""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass

from bot.database import audit
from bot.database.database import Execute
from bot.database.rows import insert_row, read_row

DAY_SECONDS = 86400.0  # the longest time for which work counts
_FORGOTTEN = "forgotten:"  # what the key of a row begins with whose person is forgotten


@dataclass(frozen=True, slots=True)
class FollowUpRow:
    """One piece of work. `root` and `person` are digests; `at` is a unix time."""

    key: str
    root: str
    generation: int
    person: str
    at: float


def add_follow_up(execute: Execute, row: FollowUpRow) -> None:
    """Store a piece of work. One with the same key is not stored again."""
    insert_row(execute, "follow_ups", "key", asdict(row))


def find_follow_up(execute: Execute, key: str) -> FollowUpRow | None:
    """Return a piece of work."""
    return read_row(execute, FollowUpRow, "SELECT * FROM follow_ups WHERE key=:key", key=key)


def count_of_root(execute: Execute, root: str) -> int:
    """Count what followed from one message."""
    return int(execute("SELECT count(*) AS n FROM follow_ups WHERE root=:root", {"root": root})[0]["n"])


def times_of_person(execute: Execute, person: str, since: float, limit: int) -> list[float]:
    """Return the latest times at which work began for a person, the newest first."""
    sql = "SELECT at FROM follow_ups WHERE person=:person AND at>:since ORDER BY at DESC LIMIT :limit"
    return [float(row["at"]) for row in execute(sql, {"person": person, "since": since, "limit": limit})]


def forget_person(execute: Execute, person: str, now: float) -> None:
    """Forget for what work began for a person. That it began counts until the day is over."""
    values = {"person": audit.digest(person), "since": now - DAY_SECONDS}
    execute("DELETE FROM follow_ups WHERE person=:person AND at<=:since", values)
    for row in execute("SELECT key FROM follow_ups WHERE person=:person", values):
        sql = "UPDATE follow_ups SET key=:new, root='', generation=0 WHERE key=:key"
        execute(sql, {"key": row["key"], "new": f"{_FORGOTTEN}{secrets.token_hex(8)}"})


def end_forgotten(execute: Execute, now: float) -> int:
    """Delete the work of people who were forgotten that counts no more; return how many rows."""
    sql = f"DELETE FROM follow_ups WHERE key>='{_FORGOTTEN}' AND key<'{_FORGOTTEN}~' AND at<=:since RETURNING 1"
    return len(execute(sql, {"since": now - DAY_SECONDS}))
