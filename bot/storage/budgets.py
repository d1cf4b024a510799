"""Counters of the budgets: what is spent in a scope and period, and what running calls hold.

A counter is the sum of usage rows, kept so that a call need not add them up. It is NULL after a start and is then
summed up again, so that no call of the process before is missing. What is held is a row for each call and each plan:
their sum is exact whichever process ends.

Store what plans that people agreed to hold of the budgets, until their requests end.

A hold counts in what is held of a budget, as those of calls do. A call of the request takes from it what it may cost
(`taken`) and gives that back at its end; the hold shrinks by what the call used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from bot.database.database import Execute
from bot.database.dialect import EXTRA, FOR_UPDATE
from bot.database.rows import insert_row, read_rows
from bot.database.states import OPEN_RUN, QuestionState
from bot.storage.usage import STALE_CALL, close_stale_calls, spent

_LOCK = f"{EXTRA}SELECT 1 FROM budgets WHERE scope=:scope AND period=:period{FOR_UPDATE}"
_BEGIN = (
    f"{EXTRA}INSERT INTO budgets(scope, period, until) VALUES (:scope, :period, :until) ON CONFLICT(scope, period)"
    " DO NOTHING"
)
_HELD = (
    "(SELECT coalesce(sum(h.{what}), 0) FROM budget_holds h WHERE h.scope=budgets.scope AND h.period=budgets.period)"
    " + (SELECT coalesce(sum(CASE WHEN p.{what}>0 THEN p.{what} ELSE 0 END), 0) FROM plan_holds p"
    " WHERE p.scope=budgets.scope AND p.period=budgets.period)"
    " AS held_{what}"
)
_COUNTED = f"money, tokens, {_HELD.format(what='money')}, {_HELD.format(what='tokens')}"
_GIVEN = ("plan", "scope", "period", "taken_money", "taken_tokens")
_GIVE_TO_PLAN = (
    "UPDATE plan_holds SET money=money+:taken_money, tokens=tokens+:taken_tokens,"
    " taken_money=taken_money-:taken_money, taken_tokens=taken_tokens-:taken_tokens"
    " WHERE conversation=:plan AND scope=:scope AND period=:period AND taken_money>=:taken_money"
    " AND taken_tokens>=:taken_tokens"
)


@dataclass(frozen=True, slots=True)
class CounterKey:
    """Which counter: a scope such as person, the one in it, a period by its name, and its bounds in unix time."""

    scope: str
    key: str
    period: str
    since: float
    until: float

    @property
    def values(self) -> dict[str, str]:
        """The values of the primary key."""
        return {"scope": f"{self.scope}:{self.key}", "period": self.period}


def read_counter(execute: Execute, key: CounterKey) -> tuple[int, int, int, int]:
    """Return money and tokens that are spent, and money and tokens that are held; keep others away until the commit."""
    if not execute(_LOCK, key.values):  # also where two processes meet a new period at once
        execute(_BEGIN, {**key.values, "until": key.until})
        execute(_LOCK, key.values)
    rows = execute(f"SELECT {_COUNTED} FROM budgets WHERE scope=:scope AND period=:period", key.values)
    held = (int(rows[0]["held_money"]), int(rows[0]["held_tokens"])) if rows else (0, 0)
    if rows and rows[0]["money"] is not None:
        return rows[0]["money"], rows[0]["tokens"], *held
    sums = spent(execute, key.scope, key.key, key.since, ended=True)
    new = {**key.values, "money": sums.cost, "tokens": sums.tokens, "until": key.until}
    insert_row(execute, "budgets", "scope, period", new, update=("money", "tokens"))
    return sums.cost, sums.tokens, *held


@dataclass(frozen=True, slots=True)
class CounterRow:
    """What is spent and held of one budget. `scope` is its kind and whose it is, as in `person:telegram:7`."""

    scope: str
    period: str
    money: int | None
    tokens: int | None
    held_money: int
    held_tokens: int
    until: float


def list_counters(execute: Execute, now: float, limit: int) -> list[CounterRow]:
    """Return the counters whose period has not ended, the most spent first."""
    sql = (
        f"SELECT scope, period, until, {_COUNTED} FROM budgets WHERE until>:now"
        " ORDER BY coalesce(money, 0) DESC, coalesce(tokens, 0) DESC LIMIT :limit"
    )
    return read_rows(execute, CounterRow, sql, now=now, limit=limit)


@dataclass(frozen=True, slots=True)
class CallHold:
    """What a call holds of a budget. It has taken a part of it from what the plan of a conversation holds."""

    money: int
    tokens: int
    plan: str = ""
    taken_money: int = 0
    taken_tokens: int = 0


def hold(execute: Execute, key: CounterKey, call: int, held: CallHold) -> None:
    """Hold an amount for a call, which is the number of its row in `usage`."""
    insert_row(execute, "budget_holds", "scope, period, call", {**key.values, "call": call, **asdict(held)})


def give_back(execute: Execute, call: int) -> None:
    """Give back what a call held."""
    execute("DELETE FROM budget_holds WHERE call=:call", {"call": call})


def book(execute: Execute, key: CounterKey, money: int, tokens: int) -> tuple[int, int]:
    """Add what a call cost; return the money and tokens that are spent now."""
    rows = execute(
        "UPDATE budgets SET money=money+:money, tokens=tokens+:tokens WHERE scope=:scope AND period=:period"
        " RETURNING coalesce(money, 0) AS money, coalesce(tokens, 0) AS tokens",
        {**key.values, "money": money, "tokens": tokens},
    )
    return (int(rows[0]["money"]), int(rows[0]["tokens"])) if rows else (0, 0)


def mark_warned(execute: Execute, key: CounterKey) -> bool:
    """Note that a warning was given; return whether none was given before."""
    sql = "UPDATE budgets SET warned=1 WHERE scope=:scope AND period=:period AND warned=0 RETURNING warned"
    return bool(execute(sql, key.values))


def forget_sums(execute: Execute) -> None:
    """Have every counter summed up again."""
    execute("UPDATE budgets SET money=NULL, tokens=NULL", {})


def release_stale_holds(execute: Execute) -> None:
    """Give back what the calls of dead processes held, also to plans; their input counts as spent."""
    sql = f"DELETE FROM budget_holds WHERE call IN (SELECT id FROM usage WHERE {STALE_CALL}) RETURNING *"
    for row in execute(sql, {}):
        if row["plan"]:
            execute(_GIVE_TO_PLAN, {name: row[name] for name in _GIVEN})
    close_stale_calls(execute)
    forget_sums(execute)


_ENDED = (
    f"NOT EXISTS (SELECT 1 FROM runs WHERE runs.conversation=plan_holds.conversation AND {OPEN_RUN})"
    " AND NOT EXISTS (SELECT 1 FROM questions WHERE questions.conversation=plan_holds.conversation"
    f" AND state IN ('{QuestionState.OPEN}', '{QuestionState.ANSWERED}'))"
)
"""No run works in the conversation, and no question waits there for an answer or for the run that follows it."""
_THIS_HOLD = "conversation=:conversation AND scope=:scope AND period=:period"


@dataclass(frozen=True, slots=True)
class PlanHold:
    """What the plan of a conversation still holds of one budget, besides what its running calls have taken of it.

    It is below zero while a call has used more than it took and another one, still running, has taken part of it: what
    that one gives back makes up for it.
    """

    conversation: str
    scope: str
    period: str
    money: int = 0
    tokens: int = 0
    taken_money: int = 0
    taken_tokens: int = 0

    def is_of(self, key: CounterKey) -> bool:
        """Whether this is a hold of this budget."""
        return key.values == {"scope": self.scope, "period": self.period}


def read_holds(execute: Execute) -> list[PlanHold]:
    """Return all holds: as many as plans that run, times their budgets."""
    sql = "SELECT conversation, scope, period, money, tokens, taken_money, taken_tokens FROM plan_holds"
    return read_rows(execute, PlanHold, sql)


def add_hold(execute: Execute, conversation: str, key: CounterKey, money: int, tokens: int) -> None:
    """Hold an amount for a plan."""
    values: dict[str, str | int] = {"conversation": conversation, **key.values, "money": money, "tokens": tokens}
    execute(
        "INSERT INTO plan_holds(conversation, scope, period, money, tokens)"
        " VALUES (:conversation, :scope, :period, :money, :tokens)",
        values,
    )


def take(execute: Execute, hold: PlanHold, money: int, tokens: int) -> None:
    """Note that a call of the request holds this part of the hold: the sum of both stays."""
    execute(
        "UPDATE plan_holds SET money=money-:money, tokens=tokens-:tokens,"
        " taken_money=taken_money+:money, taken_tokens=taken_tokens+:tokens"
        f" WHERE {_THIS_HOLD}",
        {**_key_of(hold), "money": money, "tokens": tokens},
    )


def settle(execute: Execute, hold: PlanHold, taken: tuple[int, int], used: tuple[int, int]) -> None:
    """Give back the part that a call took, and lower the hold by what the call used."""
    sql = f"SELECT money, tokens, taken_money, taken_tokens FROM plan_holds WHERE {_THIS_HOLD}{FOR_UPDATE}"
    rows = execute(sql, _key_of(hold))
    if not rows or rows[0]["taken_money"] < taken[0] or rows[0]["taken_tokens"] < taken[1]:
        return  # the request has ended, or was given another hold meanwhile
    money = rows[0]["money"] + taken[0] - used[0]
    tokens = rows[0]["tokens"] + taken[1] - used[1]
    execute(
        "UPDATE plan_holds SET money=:money, tokens=:tokens,"
        " taken_money=taken_money-:taken_money, taken_tokens=taken_tokens-:taken_tokens"
        f" WHERE {_THIS_HOLD}",
        {**_key_of(hold), "money": money, "tokens": tokens, "taken_money": taken[0], "taken_tokens": taken[1]},
    )


def release_hold(execute: Execute, conversation: str) -> None:
    """Give back what the plan of a conversation still holds."""
    execute("DELETE FROM plan_holds WHERE conversation=:conversation", {"conversation": conversation})


def release_ended(execute: Execute) -> bool:
    """Give back what the plans of ended requests hold; return whether there were any."""
    return bool(execute(f"DELETE FROM plan_holds WHERE {_ENDED} RETURNING scope", {}))


def release_dead(execute: Execute) -> None:
    """Give back what the calls of dead processes held, and what the plans of ended requests hold."""
    release_stale_holds(execute)
    release_ended(execute)


def sum_holds(holds: Sequence[PlanHold]) -> tuple[int, int]:
    """Return the money and the tokens of holds, with what calls have taken: most of it comes back."""
    money = sum(max(0, each.money + each.taken_money) for each in holds)
    return money, sum(max(0, each.tokens + each.taken_tokens) for each in holds)


def _key_of(hold: PlanHold) -> dict[str, str]:
    return {"conversation": hold.conversation, "scope": hold.scope, "period": hold.period}
