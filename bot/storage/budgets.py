"""Counters of the budgets: what is spent in a scope and period, and what running calls hold.

A counter is the sum of usage rows, kept so that a call need not add them up. It is NULL after a start and is then
summed up again, so that no call of the process before is missing. What is held is a row for each call and each plan:
their sum is exact whichever process ends.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from bot.database.database import Execute
from bot.database.dialect import EXTRA, FOR_UPDATE
from bot.database.rows import insert_row, read_rows
from bot.storage.usage import STALE_CALL, close_stale_calls, spent

_LOCK = f"{EXTRA}SELECT 1 FROM budgets WHERE scope=:scope AND period=:period{FOR_UPDATE}"
_BEGIN = (
    f"{EXTRA}INSERT INTO budgets(scope, period, until) VALUES (:scope, :period, :until) ON CONFLICT(scope, period)"
    " DO NOTHING"
)
_HELD = (
    "(SELECT coalesce(sum(h.{what}), 0) FROM budget_holds h WHERE h.scope=budgets.scope AND h.period=budgets.period)"
    " + (SELECT coalesce(sum(p.{what}), 0) FROM plan_holds p WHERE p.scope=budgets.scope AND p.period=budgets.period)"
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
