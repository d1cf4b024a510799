"""What requests have cost. A request is a run with those before it that ended with a question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bot.storage.database import Execute
from bot.storage.rows import read_row
from bot.storage.states import RunState
from bot.storage.usage import Payer, Spending

MAX_RUNS = 2000  # the newest ones are read


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
        "SELECT coalesce(sum(cost), 0) AS cost, coalesce(sum(input+output), 0) AS tokens, count(*) AS calls,"
        " coalesce(sum(CASE WHEN cost IS NULL THEN 1 ELSE 0 END), 0) AS unpriced FROM usage WHERE run IN"
        " (SELECT id FROM runs WHERE conversation=:conversation AND id<=:run AND id>coalesce((SELECT max(id) FROM runs"
        f" WHERE conversation=:conversation AND id<:run AND state<>'{RunState.WAITING}'), 0))"
    )
    return read_row(execute, Spending, sql, run=run, conversation=conversation) or Spending()
