"""Gather what was spent by day."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from zoneinfo import ZoneInfo

from bot.storage.usage import Spending


def by_day(spent: Sequence[tuple[float, Spending]], zone: ZoneInfo | None) -> dict[date, Spending]:
    """Return the sums of each day in a time zone (None: that of the machine) of what was spent at some times."""
    days: dict[date, Spending] = {}
    for at, row in spent:
        day = datetime.fromtimestamp(at, zone).date()
        before = days.get(day, Spending())
        days[day] = Spending(
            before.cost + row.cost,
            before.tokens + row.tokens,
            before.calls + row.calls,
            before.unpriced + row.unpriced,
        )
    return days
