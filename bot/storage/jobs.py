"""Background jobs: work that is due at some time, one row for each key until it is done."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from bot.database.database import Execute
from bot.database.dialect import SKIP_LOCKED
from bot.database.replicas import DEAD_OWNER
from bot.database.rows import insert_row, read_row, read_rows
from catalogue import _, join_sentences

_WAITING = "owner IS NULL AND due IS NOT NULL"
_GIVEN_UP = "owner IS NULL AND due IS NULL"
INTERRUPTED = "the process ended while this job ran"
_CLAIMED = "owner>''"  # an index finds this, unlike IS NOT NULL


@dataclass(frozen=True, slots=True)
class BackgroundJob:
    """A claimed job. `attempts` counts this one, and `error` is that of the attempt before."""

    key: str
    kind: str
    due: float
    payload: bytes
    attempts: int
    owner: str
    error: str

    @property
    def arguments(self) -> dict[str, Any]:
        """The payload. Raises ValueError if it is damaged."""
        arguments: dict[str, Any] = orjson.loads(self.payload)
        return arguments


@dataclass(frozen=True, slots=True)
class JobCounts:
    """How many jobs wait, run and were given up. `failing` is the kind and error of a job that failed, "" for none."""

    waiting: int
    running: int
    given_up: int
    failing: str

    def __str__(self) -> str:
        line = _(
            "Background jobs: {waiting} waiting, {running} running, {given_up} given up.",
            waiting=self.waiting,
            running=self.running,
            given_up=self.given_up,
        )
        return join_sentences(line, _("Last error: {error}", error=self.failing)) if self.failing else line


def enqueue_job(
    execute: Execute, *, key: str, kind: str, payload: Mapping[str, Any], due: float = 0.0, keep: bool = False
) -> None:
    """Enqueue a job. `due` is in unix time, 0 means at once.

    A job with the same key is replaced, and its attempts count anew; if it is running, it runs once more afterwards.
    With `keep`, it stays as it is.
    """
    values = {
        "key": key,
        "kind": kind,
        "due": due,
        "payload": orjson.dumps(payload),
        "attempts": 0,
        "error": "",
        "created": time.time(),
    }
    insert_row(execute, "jobs", "key", values, update=() if keep else ("kind", "due", "payload", "attempts", "error"))


def plan_recurring(execute: Execute, kind: str, latest: float) -> None:
    """Have a recurring job run when it is due: at once where there is none, and at the `latest` then."""
    enqueue_job(execute, key=kind, kind=kind, payload={}, keep=True)
    sql = "UPDATE jobs SET due=:latest WHERE key=:kind AND owner IS NULL AND (due IS NULL OR due>:latest)"
    execute(sql, {"kind": kind, "latest": latest})


def has_job(execute: Execute, key: str) -> bool:
    """Return whether there is a job with this key."""
    return bool(execute("SELECT 1 FROM jobs WHERE key=:key", {"key": key}))


def claim_jobs(execute: Execute, owner: str, now: float, limit: int) -> list[BackgroundJob]:
    """Claim up to `limit` due jobs, the earliest first, and count this attempt."""
    sql = (
        "UPDATE jobs SET owner=:owner, attempts=attempts+1 WHERE key IN"
        f" (SELECT key FROM jobs WHERE owner IS NULL AND due<=:now ORDER BY due LIMIT :limit{SKIP_LOCKED}) RETURNING *"
    )
    return read_rows(execute, BackgroundJob, sql, owner=owner, now=now, limit=limit)


def earliest_due(execute: Execute) -> float | None:
    """Return when the next waiting job is due."""
    due: float | None = execute(f"SELECT min(due) AS due FROM jobs WHERE {_WAITING}", {})[0]["due"]
    return due


def finish_job(execute: Execute, job: BackgroundJob) -> None:
    """Delete a job that is done, unless it was replaced while it ran."""
    _end_claim(execute, "DELETE FROM jobs WHERE key=:key AND owner=:owner AND attempts=:attempts", job)


def reschedule_job(execute: Execute, job: BackgroundJob, due: float | None, *, attempts: int, error: str) -> None:
    """Run a job again when it is `due` (None: never, it is given up), unless it was replaced while it ran."""
    sql = (
        "UPDATE jobs SET owner=NULL, due=:due, attempts=:counted, error=:error"
        " WHERE key=:key AND owner=:owner AND attempts=:attempts"
    )
    _end_claim(execute, sql, job, due=due, counted=attempts, error=error)


def _end_claim(execute: Execute, sql: str, job: BackgroundJob, **values: Any) -> None:
    """Run the statement that ends a claim. A replaced job has no attempts, so it does not match: it is released."""
    claim = {"key": job.key, "owner": job.owner}
    execute(sql, {**claim, "attempts": job.attempts, **values})
    execute("UPDATE jobs SET owner=NULL WHERE key=:key AND owner=:owner", claim)


def release_stale_jobs(execute: Execute, error: str = INTERRUPTED) -> None:
    """Release what dead processes had claimed; the attempt counts."""
    execute(f"UPDATE jobs SET owner=NULL, error=:error WHERE {_CLAIMED} AND {DEAD_OWNER}", {"error": error})


def count_jobs(execute: Execute) -> JobCounts:
    """Count the jobs by what happens with them."""
    sql = (
        f"SELECT (SELECT count(*) FROM jobs WHERE {_WAITING}) AS waiting,"
        f" (SELECT count(*) FROM jobs WHERE {_CLAIMED}) AS running,"
        f" (SELECT count(*) FROM jobs WHERE {_GIVEN_UP}) AS given_up,"
        " coalesce((SELECT kind || ': ' || error FROM jobs WHERE owner IS NULL AND error<>''"
        " ORDER BY created DESC LIMIT 1), '') AS failing"
    )
    return read_row(execute, JobCounts, sql) or JobCounts(0, 0, 0, "")
