"""Notifications that are held back until a person's quiet hours end or their digest is due."""

from __future__ import annotations

from dataclasses import dataclass

from bot.database.database import Execute
from bot.database.rows import insert_row, read_rows


@dataclass(frozen=True, slots=True)
class HeldPing:
    """A notification that waits. `thread` is the address that it is about."""

    key: str
    channel: str
    person: str
    thread: str
    text: str
    created: float


def hold_ping(execute: Execute, ping: HeldPing) -> None:
    """Hold a notification back. One with the same key is not held again."""
    values = {name: getattr(ping, name) for name in ping.__slots__}
    insert_row(execute, "held_pings", "key", values)


def take_held(execute: Execute, channel: str, person: str) -> list[HeldPing]:
    """Delete and return the held notifications of a person, the oldest first."""
    sql = "DELETE FROM held_pings WHERE channel=:channel AND person=:person RETURNING *"
    return sorted(read_rows(execute, HeldPing, sql, channel=channel, person=person), key=lambda ping: ping.created)
