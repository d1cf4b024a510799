"""Time zones, and unix times in them."""

from __future__ import annotations

import difflib
from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import files
from zoneinfo import ZoneInfo

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
