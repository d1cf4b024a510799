"""Store the 👍 and 👎 of people on answers, one row per run and person."""

from __future__ import annotations

from dataclasses import dataclass

from agent.messages import Author
from bot.database.database import Execute
from bot.database.rows import read_row, read_rows
from bot.storage import outcomes
from catalogue import _

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
    """Feedback with the thread of its run and its title, "" where they are not kept any more."""

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
        outcomes.count_thumbs(execute, run, (after > 0) - (before > 0), (after < 0) - (before < 0))


def feedback_of_run(execute: Execute, run: int) -> list[FeedbackRow]:
    """Return the feedback on a run that people have not taken back, oldest first."""
    return read_rows(execute, FeedbackRow, "SELECT * FROM feedback WHERE run=:run AND value<>0 ORDER BY at", run=run)


def list_feedback(execute: Execute, before: tuple[float, int, str], limit: int) -> list[PlacedFeedback]:
    """Return the feedback that people have not taken back, the newest first, before `before` (time, run, person)."""
    sql = (
        "SELECT f.*, coalesce(c.thread, '') AS thread, coalesce(c.title, '') AS title"
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
