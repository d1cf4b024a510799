"""Time zones, and unix times in them."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo


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


def local_time(at: float, zone: str) -> datetime:
    """Return a unix time in a time zone. Raises TimingError."""
    return datetime.fromtimestamp(at, UTC).astimezone(find_zone(zone))
