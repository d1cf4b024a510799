"""Count how models, tools and skills did: sums for each day, without a person and without a place.

Store the 👍 and 👎 of people on answers, one row per run and person.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import orjson

from agent.messages import Author
from agent.outcomes import CallError, Used
from bot.database.database import Execute
from bot.database.rows import read_row, read_rows
from catalogue import _

DAY_SECONDS = 86400
OUTCOME_DAYS = 30
_SUMMED = ("requests", "calls", "failed", "seconds", "cost", "up", "down")
_ADD = ", ".join(f"{name}=outcomes.{name}+excluded.{name}" for name in _SUMMED)
_COLUMNS = ", ".join(("day", "used", "name", "role", *_SUMMED))
_VALUES = ", ".join(f":{name}" for name in ("day", "used", "name", "role", *_SUMMED))
_SINCE = "WHERE day>=:since AND used=:used"
_SUMS = ", ".join(f"sum({name}) AS {name}" for name in _SUMMED)


@dataclass(frozen=True, slots=True)
class OutcomeKey:
    """What the sums are of. `role` is the agent that called a model, or the kind of its calls; "" for all others."""

    used: Used
    name: str
    role: str = ""


@dataclass(frozen=True, slots=True)
class OutcomeSums:
    """How often something was used and how that ended.

    `cost` in micro-dollars is that of all `requests`, `seconds` are those of all `calls`.
    """

    requests: int = 0
    calls: int = 0
    failed: int = 0
    seconds: float = 0.0
    cost: int = 0
    up: int = 0
    down: int = 0
    errors: Mapping[CallError, int] = field(default_factory=dict)

    def __add__(self, other: OutcomeSums) -> OutcomeSums:
        sums = {name: getattr(self, name) + getattr(other, name) for name in _SUMMED}
        return OutcomeSums(**sums, errors=Counter(self.errors) + Counter(other.errors))


def day_of(now: float) -> int:
    """Return the number of a day."""
    return int(now // DAY_SECONDS)


def add_outcomes(execute: Execute, day: int, sums: Iterable[tuple[OutcomeKey, OutcomeSums]]) -> None:
    """Add to the sums of a day."""
    for key, each in sums:
        values = {"day": day, **asdict(key), **{name: getattr(each, name) for name in _SUMMED}}
        execute(
            f"INSERT INTO outcomes({_COLUMNS}) VALUES ({_VALUES})"
            f" ON CONFLICT(day, used, name, role) DO UPDATE SET {_ADD}",
            values,
        )
        for error, count in each.errors.items():
            execute(
                "INSERT INTO outcome_errors(day, used, name, role, error, count)"
                " VALUES (:day, :used, :name, :role, :error, :count)"
                " ON CONFLICT(day, used, name, role, error) DO UPDATE SET count=outcome_errors.count+excluded.count",
                {"day": day, **asdict(key), "error": error, "count": count},
            )


def read_outcomes(execute: Execute, used: Used, now: float) -> dict[OutcomeKey, OutcomeSums]:
    """Return the sums of the last days, those with the most calls first."""
    values = {"used": used, "since": day_of(now) - OUTCOME_DAYS + 1}
    sql = f"SELECT name, role, error, sum(count) AS n FROM outcome_errors {_SINCE} GROUP BY name, role, error"
    sql += " ORDER BY sum(count) DESC, error"
    errors: dict[OutcomeKey, dict[CallError, int]] = {}
    for row in execute(sql, values):
        errors.setdefault(OutcomeKey(used, row["name"], row["role"]), {})[CallError(row["error"])] = int(row["n"])
    sql = f"SELECT name, role, {_SUMS} FROM outcomes {_SINCE} GROUP BY name, role ORDER BY sum(calls) DESC, name, role"
    found = {}
    for row in execute(sql, values):
        key = OutcomeKey(used, row["name"], row["role"])
        found[key] = OutcomeSums(**{name: row[name] for name in _SUMMED}, errors=errors.get(key, {}))
    return found


def keep_parts(execute: Execute, run: int, keys: Sequence[OutcomeKey]) -> None:
    """Keep with a run what was used in it, for the thumbs that come later."""
    parts = orjson.dumps([[key.used, key.name, key.role] for key in keys]).decode()
    execute("UPDATE runs SET parts=:parts WHERE id=:run", {"run": run, "parts": parts})


def count_thumbs(execute: Execute, run: int, up: int, down: int) -> None:
    """Count a thumb (or -1: one that was taken back) for what was used in a run, on the day of its end."""
    for row in execute("SELECT parts, finished FROM runs WHERE id=:run AND finished IS NOT NULL", {"run": run}):
        for used, name, role in orjson.loads(row["parts"] or "[]"):
            execute(
                "UPDATE outcomes SET up=up+:up, down=down+:down"
                " WHERE day=:day AND used=:used AND name=:name AND role=:role",
                {"up": up, "down": down, "day": day_of(row["finished"]), "used": used, "name": name, "role": role},
            )


FEEDBACK_DAYS = 30  # that a report counts
VALUES = {"up": 1, "down": -1}


@dataclass(frozen=True, slots=True)
class FeedbackRow:
    """The latest feedback of a person. `value` is 1 (👍), -1 (👎) or 0 (taken back)."""

    run: int
    person: str
    name: str
    value: int
    at: float


@dataclass(frozen=True, slots=True)
class PlacedFeedback(FeedbackRow):
    """Feedback with the conversation of its run, its thread and its title, "" where they are not kept any more."""

    conversation: str
    thread: str
    title: str


@dataclass(frozen=True, slots=True)
class FeedbackCounts:
    """How often people found an answer good and bad."""

    up: int = 0
    down: int = 0

    def __str__(self) -> str:
        return _("Feedback in {n} days: {up} 👍, {down} 👎.", n=FEEDBACK_DAYS, up=self.up, down=self.down)


def record_feedback(execute: Execute, run: int, author: Author, value: str, at: float) -> None:
    """Record what a person thinks of a run's answer, unless they have said something later."""
    before = _value_of(execute, run, author)
    execute(
        "INSERT INTO feedback(run, person, name, value, at) VALUES (:run, :person, :name, :value, :at)"
        " ON CONFLICT(run, person) DO UPDATE SET name=excluded.name, value=excluded.value, at=excluded.at"
        " WHERE excluded.at>=feedback.at",
        {"run": run, "person": author.id, "name": author.name, "value": VALUES[value], "at": at},
    )
    _count_change(execute, run, before, _value_of(execute, run, author))


def remove_feedback(execute: Execute, run: int, author: Author, value: str, at: float) -> None:
    """Record that a person took this feedback back. The row stays, so that a repeated event does not restore it."""
    before = _value_of(execute, run, author)
    execute(
        "UPDATE feedback SET value=0, at=:at WHERE run=:run AND person=:person AND value=:value AND at<=:at",
        {"run": run, "person": author.id, "value": VALUES[value], "at": at},
    )
    _count_change(execute, run, before, _value_of(execute, run, author))


def _value_of(execute: Execute, run: int, author: Author) -> int:
    sql = "SELECT value FROM feedback WHERE run=:run AND person=:person"
    rows = execute(sql, {"run": run, "person": author.id})
    return int(rows[0]["value"]) if rows else 0


def _count_change(execute: Execute, run: int, before: int, after: int) -> None:
    """Count the thumb, or its end, for the models, tools and skills of the run."""
    if before != after:
        count_thumbs(execute, run, (after > 0) - (before > 0), (after < 0) - (before < 0))


def feedback_of_run(execute: Execute, run: int) -> list[FeedbackRow]:
    """Return the feedback on a run that people have not taken back, oldest first."""
    return read_rows(execute, FeedbackRow, "SELECT * FROM feedback WHERE run=:run AND value<>0 ORDER BY at", run=run)


def list_feedback(execute: Execute, before: tuple[float, int, str], limit: int) -> list[PlacedFeedback]:
    """Return the feedback that people have not taken back, the newest first, before `before` (time, run, person)."""
    sql = (
        "SELECT f.*, coalesce(c.key, '') AS conversation, coalesce(c.thread, '') AS thread,"
        " coalesce(c.title, '') AS title"
        " FROM feedback f LEFT JOIN runs r ON r.id=f.run LEFT JOIN conversations c ON c.key=r.conversation"
        " WHERE f.value<>0 AND (f.at<:at OR (f.at=:at AND (f.run<:run OR (f.run=:run AND f.person<:person))))"
        " ORDER BY f.at DESC, f.run DESC, f.person DESC LIMIT :limit"
    )
    at, run, person = before
    return read_rows(execute, PlacedFeedback, sql, at=at, run=run, person=person, limit=limit)


def count_feedback(execute: Execute, since: float) -> FeedbackCounts:
    """Count the feedback since this unix time."""
    sql = (
        "SELECT count(CASE WHEN value>0 THEN 1 END) AS up, count(CASE WHEN value<0 THEN 1 END) AS down"
        " FROM feedback WHERE at>:since"
    )
    return read_row(execute, FeedbackCounts, sql, since=since) or FeedbackCounts()
