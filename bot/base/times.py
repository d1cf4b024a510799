"""Time zones, and unix times in them.

Compute when a schedule fires. cronsim knows crontab and daylight saving time; all times are unix times.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import files
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

from agent.schedules import ScheduleRequest, Timing, TimingForm
from catalogue import N_

MAX_PLACE_CHARS, MAX_SUGGESTED = 40, 3
WEEKDAYS = (N_("Monday"), N_("Tuesday"), N_("Wednesday"), N_("Thursday"), N_("Friday"), N_("Saturday"), N_("Sunday"))


class TimingError(Exception):
    """A time that cannot be; the message says what to write instead."""


@lru_cache(maxsize=256)
def find_zone(name: str) -> ZoneInfo:
    """Return a time zone. Raises TimingError."""
    try:
        if "/" not in name and name != "UTC":
            raise ValueError(name)
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:  # KeyError: ZoneInfoNotFoundError
        raise TimingError(f"{name!r} is not an IANA time zone; write one such as Europe/Berlin or UTC") from error


@lru_cache(maxsize=1)
def _zones_of_places() -> dict[str, list[str]]:
    """Return the time zones by the name of the place, without case."""
    zones: dict[str, list[str]] = {}
    for name in (files("tzdata") / "zones").read_text("ascii").split():
        if "/" in name and not name.startswith(("Etc/", "US/", "Canada/", "Brazil/", "Mexico/", "Chile/")):
            zones.setdefault(name.rpartition("/")[2].casefold(), []).append(name)
    return zones


def suggest_zones(words: str) -> list[str]:
    """Return the time zones whose place has this name, or a similar one."""
    zones = _zones_of_places()
    place = "_".join(words.rpartition("/")[2].split()).casefold()[:MAX_PLACE_CHARS]
    similar = [place] if place in zones else difflib.get_close_matches(place, zones, 2, cutoff=0.75)
    return [zone for each in similar for zone in zones[each]][:MAX_SUGGESTED]


def local_time(at: float, zone: str) -> datetime:
    """Return a unix time in a time zone. Raises TimingError."""
    return datetime.fromtimestamp(at, UTC).astimezone(find_zone(zone))


CRON_FIELDS = 5
MAX_EXPRESSION_CHARS = 100
COMPARED_FIRES = 60  # of which the least interval is measured


def times_after(timing: Timing, then: float) -> Iterator[float]:
    """Yield the times after `then`, in order. Raises TimingError."""
    match timing.form:
        case TimingForm.AT:
            if float(timing.expression) > then:
                yield float(timing.expression)
        case TimingForm.EVERY:
            every = float(timing.expression)
            count = max(0, math.floor((then - timing.since) / every))
            while True:
                count += 1
                yield timing.since + count * every
        case _cron:
            for moment in _cron_times(timing, then):
                yield moment.timestamp()


def next_time(timing: Timing, then: float) -> float | None:
    """Return the first time after `then`; None if there is none. Raises TimingError."""
    return next(times_after(timing, then), None)


def times_until(timing: Timing, then: float) -> Iterator[float]:
    """Yield the times at or before `then`, the latest first. Raises TimingError."""
    match timing.form:
        case TimingForm.AT:
            if float(timing.expression) <= then:
                yield float(timing.expression)
        case TimingForm.EVERY:
            every = float(timing.expression)
            for count in range(math.floor((then - timing.since) / every), 0, -1):
                yield timing.since + count * every
        case _cron:
            for moment in _cron_times(timing, math.floor(then) + 1, reverse=True):
                yield moment.timestamp()


def _cron_times(timing: Timing, then: float, *, reverse: bool = False) -> Iterator[datetime]:
    from cronsim import CronSim, CronSimError  # imported when it is needed

    try:
        return CronSim(timing.expression, local_time(then, timing.zone), reverse=reverse)
    except CronSimError as error:
        raise TimingError(f"{timing.expression!r} is not a crontab expression: {error}") from error


def shortest_interval(timing: Timing, now: float) -> float:
    """Return the shortest time between two of the next fires, in seconds."""
    times = list(islice(times_after(timing, now), COMPARED_FIRES))
    return min((later - earlier for earlier, later in pairwise(times)), default=math.inf)


def parse_timing(request: ScheduleRequest, zone: str, now: float) -> Timing:
    """Read the time of a request; `zone` is the person's. Raises TimingError."""
    given = [bool(request.cron), bool(request.at), bool(request.every_minutes)]
    if sum(given) != 1:
        raise TimingError("give exactly one of cron, at and every_minutes")
    if request.every_minutes:
        timing = Timing(TimingForm.EVERY, f"{request.every_minutes * 60:g}", zone, now)
    elif request.at:
        timing = Timing(TimingForm.AT, f"{_parse_at(request.at, zone):.3f}", zone, now)
    else:
        expression = " ".join(request.cron.split())
        if len(expression.split()) != CRON_FIELDS or len(expression) > MAX_EXPRESSION_CHARS:
            raise TimingError("cron has five fields: minute, hour, day of month, month, day of week (1 is Monday)")
        timing = Timing(TimingForm.CRON, expression, zone, now)
    if next_time(timing, now) is None:
        raise TimingError("that time has passed, or never comes")
    return timing


def has_offset(text: str) -> bool:
    """Return whether a time says its offset from UTC, so that it needs no zone. Raises TimingError."""
    return _read_moment(text).tzinfo is not None


def _parse_at(text: str, zone: str) -> float:
    """Read a local time or one with an offset. A local time that a change of the clocks skips is moved forward."""
    moment = _read_moment(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=find_zone(zone))).timestamp()


def _read_moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise TimingError(f"{text!r} is not a time such as 2026-11-24T09:00") from error
