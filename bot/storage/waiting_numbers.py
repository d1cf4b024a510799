"""Give numbers by which people answer what waits for them, and none again."""

from __future__ import annotations

from bot.database.database import Execute
from bot.database.rows import insert_row


def number_of(execute: Execute, subject: str, now: float) -> int:
    """Return the number of what has this digest, a new one if it has none."""
    [row] = insert_row(execute, "waiting_numbers", "subject", {"subject": subject, "listed": now}, update=("listed",))
    return int(row["number"])
