"""Schedules as the agent knows them: what it may ask for, and what says that a scheduled run found nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

NOTHING_NEW = "NOTHING_NEW"
"""The whole answer of a scheduled run that has nothing to report: then no message is sent."""


class ScheduleKind(StrEnum):
    """What a schedule does when it fires."""

    WORK = "work"  # the agent works
    REMINDER = "reminder"  # its text is posted, without a model
    WATCH = "watch"  # a page is read, and the agent works when it has changed


class MissedRule(StrEnum):
    """What happens with the times at which the service did not run."""

    SKIP = "skip"
    ONCE = "once"  # the latest one is made up for, unless it is too old
    ALL = "all"


class TimingForm(StrEnum):
    """How the times of a schedule are written."""

    CRON = "cron"  # five fields of crontab
    AT = "at"  # one unix time
    EVERY = "every"  # a number of seconds


@dataclass(frozen=True, slots=True)
class Timing:
    """When a schedule fires. `zone` is an IANA name, and `since` the unix time from which `every` counts."""

    form: str
    expression: str
    zone: str
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class ScheduleRequest:
    """What the model asks for. `number` is the schedule to change, 0 for a new one; "" leaves a value as it is."""

    number: int = 0
    kind: str = ""
    what: str = ""
    cron: str = ""
    at: str = ""
    every_minutes: float = 0.0
    time_zone: str = ""
    url: str = ""
    missed: str = ""


class Schedules(Protocol):
    """The schedules of a turn's requester. Each answer is a text for the model."""

    async def list_schedules(self) -> str:
        """Return the schedules of the requester."""

    async def propose(self, request: ScheduleRequest) -> str:
        """Ask the requester to confirm a new or changed schedule."""

    async def pause(self, number: int) -> str:
        """Pause a schedule of the requester."""

    async def delete(self, number: int) -> str:
        """Delete a schedule of the requester."""
