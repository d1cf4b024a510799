"""Store how far the audit was pushed to a receiver, which has acknowledged all rows up to there."""

from __future__ import annotations

from bot.database.database import Execute
from bot.database.rows import insert_row


def read_cursor(execute: Execute, target: str) -> int:
    """Return the number of the last row that a receiver has; 0 for none."""
    rows = execute("SELECT seq FROM audit_pushes WHERE target=:target", {"target": target})
    return int(rows[0]["seq"]) if rows else 0


def move_cursor(execute: Execute, target: str, seq: int) -> None:
    """Store that a receiver has all rows up to this one. Rows that go out again do not move it back."""
    if seq > read_cursor(execute, target):
        insert_row(execute, "audit_pushes", "target", {"target": target, "seq": seq}, update=("seq",))
