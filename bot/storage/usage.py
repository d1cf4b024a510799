"""Usage: one row for each model call, with whose it is and what it cost.

A call under a budget has its row before it is sent: `open`, with its input alone, which is what counts if the process
dies during the call.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from agent.messages import Thread
from agent.spending import SANDBOX, ModelCall
from bot.database.database import Execute
from bot.database.dialect import QUARTER
from bot.database.replicas import DEAD_OR_NO_OWNER
from bot.database.rows import insert_row, read_row, read_rows
from bot.database.web_people import payer_key, true_person

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
    def names(self) -> tuple[str, str]:
        """How the configuration can name the requester."""
        return true_person(self.thread.channel, self.requester)[1], self.person

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
