"""Schedules in a database, for tests and measurements."""

from __future__ import annotations

from typing import Any

from agent.messages import Thread
from bot.base.times import next_time
from bot.database.database import Execute
from bot.storage import schedules
from bot.storage.schedules import ScheduleRow

HOME = Thread("telegram", "bot", "7")


def add_schedule(execute: Execute, now: float, **values: Any) -> ScheduleRow:
    """Store an active schedule of Jane (7) in her direct chat: a reminder every hour, unless `values` say else."""
    given: dict[str, Any] = {
        "channel": "telegram",
        "owner": "7",
        "name": "Jane",
        "language": "",
        "guest": 0,
        "private": 1,
        "thread": str(HOME),
        "kind": "reminder",
        "what": "stretch",
        "url": "",
        "form": "cron",
        "expression": "0 * * * *",
        "zone": "UTC",
        "since": now,
        "missed": "once",
        "state": "active",
        "created": now,
        **values,
    }
    number = schedules.add_schedule(execute, given)
    row = find(execute, number)
    if "next_at" not in values and row.state == "active":
        schedules.move_next(execute, row, next_time(row.timing, now))
    return find(execute, number)


def find(execute: Execute, number: int) -> ScheduleRow:
    """Return a schedule that is there."""
    row = schedules.find_schedule(execute, number)
    assert row is not None
    return row
