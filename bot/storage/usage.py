"""Usage: one row for each model call, with whose it is and what it cost.

A call under a budget has its row before it is sent: `open`, with its input alone, which is what counts if the process
dies during the call.

Sum what requests have cost. A request is a run with those before it that ended with a question.

Gather what was spent by day.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from agent.blocks import Usage
from agent.messages import Thread
from agent.spending import SANDBOX, ModelCall
from bot.database.database import Execute
from bot.database.dialect import QUARTER
from bot.database.replicas import DEAD_OR_NO_OWNER
from bot.database.rows import insert_row, read_row, read_rows
from bot.database.states import RunState
from bot.database.web_people import payer_key
from bot.storage.runs import RUNS_OF_REQUEST

IS_CALL = f"kind<>'{SANDBOX}'"  # of a row: not the use of a sandbox
_SUMS = (
    "coalesce(sum(cost), 0) AS cost, coalesce(sum(input+output), 0) AS tokens,"
    f" coalesce(sum(CASE WHEN {IS_CALL} THEN 1 ELSE 0 END), 0) AS calls,"
    " coalesce(sum(CASE WHEN cost IS NULL THEN 1 ELSE 0 END), 0) AS unpriced"
)
_WHERE = {  # scope → the rows of it
    "turn": "run=:run",
    "person": "person=:key AND at>=:since",
    "chat": "chat=:key AND at>=:since",
    "workspace": "chat>=:key || '/' AND chat<:key || '0' AND at>=:since",
    "agent": "agent=:key AND at>=:since",
    "model": "model=:key AND at>=:since",
    "everything": "at>=:since",
}
STALE_CALL = f"open=1 AND {DEAD_OR_NO_OWNER}"  # of a dead process


@dataclass(frozen=True, slots=True)
class Payer:
    """Whose budgets pay for calls: those of a run's requester, in a thread."""

    run: int
    conversation: str
    thread: Thread
    requester: str

    @property
    def person(self) -> str:
        """The requester with the channel, as in the inbox; "" if nobody is known."""
        return payer_key(self.thread.channel, self.requester) if self.requester else ""

    @property
    def chat(self) -> str:
        """The address of the chat, without the topic."""
        return str(self.thread.without_topic)

    @property
    def workspace(self) -> str:
        """The beginning of the addresses of all its chats."""
        return str(self.thread).rpartition("/")[0].rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class PricedCall:
    """A model call with its cost in micro-dollars (None: unknown) and where the price comes from."""

    call: ModelCall
    cost: int | None
    price: str


@dataclass(frozen=True, slots=True)
class Spending:
    """What calls cost in micro-dollars; `unpriced` of the `calls` have no known price."""

    cost: int = 0
    tokens: int = 0
    calls: int = 0
    unpriced: int = 0
    name: str = ""


def record_calls(execute: Execute, payer: Payer, calls: Iterable[PricedCall]) -> None:
    """Record model calls of a run."""
    for each in calls:
        insert_row(execute, "usage", "id", _columns(payer, each))


def open_call(execute: Execute, owner: str, payer: Payer, least: PricedCall) -> int:
    """Record a call that the process `owner` is about to send; return its id. `least` is what it costs in any case."""
    return int(insert_row(execute, "usage", "id", {**_columns(payer, least), "open": 1, "owner": owner})[0]["id"])


def close_call(execute: Execute, id: int, done: PricedCall) -> None:
    """Record the end of an open call. Its time stays: it counts in the period in which it was sent."""
    call = done.call
    execute(
        "UPDATE usage SET open=0, input=:input, output=:output, cached=:cached, reasoning=:reasoning,"
        " seconds=:seconds, cost=:cost, price=:price WHERE id=:id",
        {
            "id": id,
            "input": call.input,
            "output": call.output,
            "cached": call.cached,
            "reasoning": call.reasoning,
            "seconds": call.seconds,
            "cost": done.cost,
            "price": done.price,
        },
    )


def delete_call(execute: Execute, id: int) -> None:
    """Delete an open call that cost nothing."""
    execute("DELETE FROM usage WHERE id=:id", {"id": id})


def close_stale_calls(execute: Execute) -> None:
    """Let the open calls of dead processes count with their input."""
    execute(f"UPDATE usage SET open=0 WHERE {STALE_CALL}", {})


def _columns(payer: Payer, each: PricedCall) -> dict[str, object]:
    mine = {"run": payer.run, "conversation": payer.conversation, "person": payer.person, "chat": payer.chat}
    stored = {
        name: value for name, value in asdict(each.call).items() if name not in ("audio_seconds", "reported_cost")
    }
    return {**mine, **stored, "began": each.call.at - each.call.seconds, "cost": each.cost, "price": each.price}


def spent(execute: Execute, scope: str, key: str, since: float, *, ended: bool = False) -> Spending:
    """Return what a scope has spent since this unix time; only by `ended` calls, or with those that are under way."""
    run = int(key) if scope == "turn" else 0
    sql = f"SELECT {_SUMS} FROM usage WHERE {_WHERE[scope]} AND open<=:open"
    return read_row(execute, Spending, sql, key=key, since=since, run=run, open=int(not ended)) or Spending()


def spent_by(execute: Execute, column: str, scope: str, key: str, since: float, limit: int) -> list[Spending]:
    """Return what a scope has spent, by `person`, `chat` or `model`, the largest first."""
    if column not in ("person", "chat", "model"):
        raise ValueError(column)
    sql = (
        f"SELECT {column} AS name, {_SUMS} FROM usage WHERE {_WHERE[scope]} AND ({IS_CALL} OR :column<>'model')"
        f" GROUP BY {column}"
        " ORDER BY coalesce(sum(cost), 0) DESC, sum(input+output) DESC LIMIT :limit"
    )
    return read_rows(execute, Spending, sql, key=key, since=since, run=0, limit=limit, column=column)


def spent_by_each(execute: Execute, since: float, limit: int) -> dict[str, list[Spending]]:
    """Return what everybody has spent since this unix time by `person`, `chat` and `model`, the largest first, and in
    all (""): the rows are read once."""
    sql = (
        f"SELECT person, chat, model, {IS_CALL} AS is_call, {_SUMS} FROM usage WHERE at>=:since"
        " GROUP BY person, chat, model, is_call"
    )
    sums: dict[str, dict[str, Spending]] = {"": {}, "person": {}, "chat": {}, "model": {}}
    for row in execute(sql, {"since": since}):
        names = {"": "", "person": row["person"], "chat": row["chat"]} | (
            {"model": row["model"]} if row["is_call"] else {}
        )
        for by, name in names.items():
            old = sums[by].get(name, Spending(name=name))
            sums[by][name] = Spending(
                *(old.cost + row["cost"], old.tokens + row["tokens"], old.calls + row["calls"]),
                *(old.unpriced + row["unpriced"], name),
            )
    return {
        by: sorted(found.values(), key=lambda each: (-each.cost, -each.tokens))[:limit] for by, found in sums.items()
    }


def sandbox_use(execute: Execute, scope: str, key: str, since: float) -> tuple[float, int]:
    """Return for how many seconds a scope has had sandboxes in use since this unix time, and what that cost."""
    sql = (
        f"SELECT coalesce(sum(seconds), 0) AS seconds, coalesce(sum(cost), 0) AS cost FROM usage WHERE {_WHERE[scope]}"
    )
    [row] = execute(f"{sql} AND NOT {IS_CALL}", {"key": key, "since": since, "run": 0})
    return float(row["seconds"]), int(row["cost"])


def spent_by_time(execute: Execute, scope: str, key: str, since: float) -> list[tuple[float, Spending]]:
    """Return what a scope has spent in each quarter of an hour, which lies within one day in every time zone."""
    sql = f"SELECT {QUARTER}*900 AS at, {_SUMS} FROM usage WHERE {_WHERE[scope]} GROUP BY {QUARTER}"
    rows = execute(sql, {"key": key, "since": since, "run": 0})
    return [(float(row["at"]), Spending(row["cost"], row["tokens"], row["calls"], row["unpriced"])) for row in rows]


@dataclass(frozen=True, slots=True)
class UsageRow:
    """A recorded model call; `cost` in micro-dollars, None: unknown."""

    id: int
    run: int
    person: str
    chat: str
    agent: str
    model: str
    kind: str
    input: int
    output: int
    cost: int | None
    at: float


def read_usage(execute: Execute, since: float, limit: int, after: tuple[float, int] = (0.0, 0)) -> list[UsageRow]:
    """Return the calls since this unix time by time, those behind `after` (time, id)."""
    sql = "SELECT * FROM usage WHERE at>=:since AND (at>:at OR (at=:at AND id>:id)) ORDER BY at, id LIMIT :limit"
    return read_rows(execute, UsageRow, sql, since=since, at=after[0], id=after[1], limit=limit)


MAX_RUNS = 2000  # the newest ones are read


@dataclass(frozen=True, slots=True)
class RequestCost:
    """What the work of a finished request has cost after its plan: micro-dollars, tokens, and seconds without those of
    waiting."""

    cost: int
    tokens: int
    seconds: float
    unpriced: int  # calls


def finished_requests(execute: Execute, payer: Payer, since: float, *, own: bool) -> list[RequestCost]:
    """Return the requests of a chat that made a plan first and ended well since this unix time; `own`: those that the
    payer paid."""
    sql = (
        "SELECT runs.id, runs.conversation, runs.state, runs.mode, runs.finished - runs.started AS seconds,"
        " sum(coalesce(usage.cost, 0)) AS cost, sum(usage.input+usage.output) AS tokens,"
        " sum(CASE WHEN usage.cost IS NULL THEN 1 ELSE 0 END) AS unpriced"
        " FROM usage JOIN runs ON runs.id=usage.run WHERE usage.chat=:chat AND usage.at>=:since"
        " AND (:own=0 OR usage.person=:person)"
        " AND runs.finished IS NOT NULL GROUP BY runs.id, runs.conversation, runs.state, runs.mode, runs.finished,"
        " runs.started"
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
        " coalesce(sum(cost), 0) AS cost,"
        " sum(input) AS input, sum(output) AS output, sum(cached) AS cached, sum(reasoning) AS reasoning"
        f" FROM usage WHERE run IN ({RUNS_OF_REQUEST}) AND {IS_CALL} GROUP BY agent, kind, model, run=:run"
    )
    return read_rows(execute, RequestPart, sql, run=run, conversation=conversation)


def _join_runs(rows: Iterable[Mapping[str, Any]]) -> list[RequestCost]:
    """Return what followed each run that made a plan and asked: the sum of the runs up to the one that was done."""
    waiting: dict[str, RequestCost] = {}
    done = []
    for row in rows:
        before, waits = waiting.pop(row["conversation"], None), row["state"] == RunState.WAITING
        if before is None:
            if waits and row["mode"] == "plan":
                waiting[row["conversation"]] = RequestCost(0, 0, 0.0, 0)
            continue
        request = RequestCost(
            before.cost + int(row["cost"]),
            before.tokens + int(row["tokens"]),
            before.seconds + float(row["seconds"]),
            before.unpriced + int(row["unpriced"]),
        )
        if waits:
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
        f" FROM usage WHERE run IN ({RUNS_OF_REQUEST})"
    )
    return read_row(execute, Spending, sql, run=run, conversation=conversation) or Spending()


def by_day(spent: Sequence[tuple[float, Spending]], zone: ZoneInfo | None) -> dict[date, Spending]:
    """Return the sums of each day in a time zone (None: that of the machine) of what was spent at some times."""
    days: dict[date, Spending] = {}
    for at, row in spent:
        day = datetime.fromtimestamp(at, zone).date()
        before = days.get(day, Spending())
        days[day] = Spending(
            before.cost + row.cost,
            before.tokens + row.tokens,
            before.calls + row.calls,
            before.unpriced + row.unpriced,
        )
    return days
