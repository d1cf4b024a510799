"""Sum what requests have cost. A request is a run with those before it that ended with a question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agent.blocks import Usage
from bot.database.database import Execute
from bot.database.rows import read_row, read_rows
from bot.database.states import RunState
from bot.storage.usage import IS_CALL, Payer, Spending

MAX_RUNS = 2000  # the newest ones are read
_RUNS_OF_REQUEST = (
    "SELECT id FROM runs WHERE conversation=:conversation AND id<=:run AND id>coalesce((SELECT max(id) FROM runs"
    f" WHERE conversation=:conversation AND id<:run AND state<>'{RunState.WAITING}'), 0)"
)


@dataclass(frozen=True, slots=True)
class RequestCost:
    """What a finished request has cost: micro-dollars, tokens, and seconds of work without those of waiting."""

    cost: int
    tokens: int
    seconds: float
    unpriced: int  # calls
    asked: bool  # it waited for an answer, as a plan does


def finished_requests(execute: Execute, payer: Payer, since: float, *, own: bool) -> list[RequestCost]:
    """Return the requests of a chat that ended well since this unix time; `own`: those that the payer paid."""
    sql = (
        "SELECT runs.id, runs.conversation, runs.state, runs.finished - runs.started AS seconds,"
        " sum(coalesce(usage.cost, 0)) AS cost, sum(usage.input+usage.output) AS tokens,"
        " sum(CASE WHEN usage.cost IS NULL THEN 1 ELSE 0 END) AS unpriced"
        " FROM usage JOIN runs ON runs.id=usage.run WHERE usage.chat=:chat AND usage.at>=:since"
        " AND (:own=0 OR usage.person=:person)"
        " AND runs.finished IS NOT NULL GROUP BY runs.id, runs.conversation, runs.state, runs.finished, runs.started"
        " ORDER BY runs.id DESC LIMIT :limit"
    )
    values = {"chat": payer.chat, "since": since, "limit": MAX_RUNS, "own": int(own), "person": payer.person}
    return _join_runs(reversed(execute(sql, values)))


@dataclass(frozen=True, slots=True)
class RequestPart:
    """The model calls of one agent, or of one kind, with one model in a request: those of `this` run, or before it."""

    agent: str
    kind: str
    model: str
    this: int
    calls: int
    seconds: float = 0.0
    cost: int = 0
    unpriced: int = 0
    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0


def usage_of_run(parts: Iterable[RequestPart]) -> Usage:
    """Return the sum of the recorded calls of `this` run, over all its attempts."""
    own = [each for each in parts if each.this]
    names = ("input", "output", "cached", "reasoning", "calls")
    return Usage(**{name: sum(getattr(each, name) for each in own) for name in names})


def request_parts(execute: Execute, run: int, conversation: str) -> list[RequestPart]:
    """Return the model calls of the request of this run."""
    sql = (
        "SELECT agent, kind, model, run=:run AS this, count(*) AS calls, sum(seconds) AS seconds,"
        " coalesce(sum(cost), 0) AS cost, sum(CASE WHEN cost IS NULL THEN 1 ELSE 0 END) AS unpriced,"
        " sum(input) AS input, sum(output) AS output, sum(cached) AS cached, sum(reasoning) AS reasoning"
        f" FROM usage WHERE run IN ({_RUNS_OF_REQUEST}) AND {IS_CALL} GROUP BY agent, kind, model, run=:run"
    )
    return read_rows(execute, RequestPart, sql, run=run, conversation=conversation)


def _join_runs(rows: Iterable[Mapping[str, Any]]) -> list[RequestCost]:
    """Add what runs that ended with a question have cost to the run that follows in their conversation."""
    waiting: dict[str, RequestCost] = {}
    done = []
    for row in rows:
        before = waiting.pop(row["conversation"], RequestCost(0, 0, 0.0, 0, False))
        request = RequestCost(
            before.cost + int(row["cost"]),
            before.tokens + int(row["tokens"]),
            before.seconds + float(row["seconds"]),
            before.unpriced + int(row["unpriced"]),
            before.asked or row["state"] == RunState.WAITING,
        )
        if row["state"] == RunState.WAITING:
            waiting[row["conversation"]] = request
        elif row["state"] == RunState.DONE:
            done.append(request)
    return done


def spent_by_request(execute: Execute, run: int, conversation: str) -> Spending:
    """Return what the request of this run has cost so far, as far as it is recorded."""
    sql = (
        "SELECT coalesce(sum(cost), 0) AS cost, coalesce(sum(input+output), 0) AS tokens, "
        f" coalesce(sum(CASE WHEN {IS_CALL} THEN 1 ELSE 0 END), 0) AS calls,"
        " coalesce(sum(CASE WHEN cost IS NULL THEN 1 ELSE 0 END), 0) AS unpriced"
        f" FROM usage WHERE run IN ({_RUNS_OF_REQUEST})"
    )
    return read_row(execute, Spending, sql, run=run, conversation=conversation) or Spending()
