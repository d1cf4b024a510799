"""Read until when something is handed over, and say it."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta

from bot.base.times import WEEKDAYS, local_time
from catalogue import N_, _, every_translation

TODAY, TOMORROW, A_WEEK = N_("today"), N_("tomorrow"), N_("1 week")
FRIDAY = WEEKDAYS[4]
MAX_WORDS_CHARS = 60
LONGEST = timedelta(days=366)
UNITS = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1)}
_TIME = re.compile(r"(\d{1,2}):(\d\d)")
_PERIOD = re.compile(r"(?:in |for )?(\d{1,3}|an?) (hour|day|week)s?")


def parse_until(words: str, zone: str, now: float) -> float | None:
    """Return the time until which these words say; None for words that say none, and for one that has passed or is more
    than a year away.

    They are a day ("today", "Friday", "2026-12-04"), which counts as a whole, a time of a day ("Friday 18:00",
    "18:00"), or a period ("3 days"). A weekday is the next such day after today. Raises TimingError.
    """
    words, here = " ".join(words.split()).casefold(), local_time(now, zone)
    if len(words) > MAX_WORDS_CHARS:
        return None
    try:
        if (period := _PERIOD.fullmatch(_in_english(words))) is not None:
            count = int(period[1]) if period[1].isdecimal() else 1
            until: datetime | None = here + count * UNITS[period[2]]
        else:
            until = _parse_moment(words, here)
    except (ValueError, OverflowError):
        return None
    return until.timestamp() if until and here < until <= here + LONGEST else None


def _in_english(words: str) -> str:
    return A_WEEK if words in {each.casefold() for each in every_translation(A_WEEK)} else words


def _parse_moment(words: str, here: datetime) -> datetime | None:
    """Return the time that a day, a time, or a day and a time name. Raises ValueError."""
    *day, last = words.replace("t", " ").split() if words[:1].isdecimal() else words.split()
    at = _TIME.fullmatch(last)
    clock = time(int(at[1]), int(at[2])) if at else None
    named = " ".join(day) if at else words
    if clock and not named:
        until = datetime.combine(here.date(), clock, here.tzinfo)
        return until if until > here else datetime.combine(here.date() + timedelta(days=1), clock, here.tzinfo)
    found = _parse_day(named, here)
    if found is None:
        return None
    return datetime.combine(found, clock or time.min, here.tzinfo) + (timedelta() if clock else timedelta(days=1))


def _parse_day(word: str, here: datetime) -> datetime | None:
    """Return the day that a word names. Raises ValueError."""
    for days, sentence in enumerate((TODAY, TOMORROW)):
        if word in {each.casefold() for each in every_translation(sentence)}:
            return here + timedelta(days=days)
    for number, sentence in enumerate(WEEKDAYS):
        names = {each.casefold() for each in every_translation(sentence)}
        if word in names | {sentence[:3].casefold()}:
            return here + timedelta(days=(number - here.weekday() - 1) % 7 + 1)
    return datetime.fromisoformat(word) if word[:1].isdecimal() else None


def describe_until(until: float, zone: str) -> str:
    """Return the last minute that counts, such as "Friday 2026-11-27 23:59 (Europe/Berlin)"."""
    last = local_time(until - 1, zone)
    return _("{day} {time} ({zone})", day=_(WEEKDAYS[last.weekday()]), time=f"{last:%Y-%m-%d %H:%M}", zone=zone)
