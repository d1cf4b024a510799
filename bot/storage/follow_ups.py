"""Work that began without a person: one row each, with a digest of the message from which it followed."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from bot.storage.database import Execute
from bot.storage.rows import insert_row, read_row


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
