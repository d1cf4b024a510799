"""Counters of the budgets: what is spent in a scope and period, and what running calls hold.

A counter is the sum of usage rows, kept so that a call need not add them up. It is NULL after a start and is then
summed up again, so that no call of the process before is missing.
"""

from __future__ import annotations

from dataclasses import dataclass

from bot.storage.database import Execute
from bot.storage.dialect import FOR_UPDATE
from bot.storage.rows import insert_row, read_rows
from bot.storage.usage import close_stale_calls, spent


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
    """Return money and tokens that are spent, and money and tokens that are held."""
    sql = "SELECT money, tokens, held_money, held_tokens FROM budgets WHERE scope=:scope AND period=:period"
    rows = execute(sql + FOR_UPDATE, key.values)
    if rows and rows[0]["money"] is not None:
        row = rows[0]
        return row["money"], row["tokens"], row["held_money"], row["held_tokens"]
    sums = spent(execute, key.scope, key.key, key.since, ended=True)
    new = {**key.values, "money": sums.cost, "tokens": sums.tokens, "until": key.until}
    insert_row(execute, "budgets", "scope, period", new, update=("money", "tokens"))
    return sums.cost, sums.tokens, rows[0]["held_money"] if rows else 0, rows[0]["held_tokens"] if rows else 0


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
        "SELECT scope, period, money, tokens, held_money, held_tokens, until FROM budgets WHERE until>:now"
        " ORDER BY coalesce(money, 0) DESC, coalesce(tokens, 0) DESC LIMIT :limit"
    )
    return read_rows(execute, CounterRow, sql, now=now, limit=limit)


def hold(execute: Execute, key: CounterKey, money: int, tokens: int) -> None:
    """Hold an amount for a call."""
    execute(
        "UPDATE budgets SET held_money=held_money+:money, held_tokens=held_tokens+:tokens"
        " WHERE scope=:scope AND period=:period",
        {**key.values, "money": money, "tokens": tokens},
    )


def book(
    execute: Execute, key: CounterKey, money: int, tokens: int, *, held_money: int, held_tokens: int
) -> tuple[int, int]:
    """Give back what a call held and add what it cost; return the money and tokens that are spent now."""
    rows = execute(
        "UPDATE budgets SET held_money=held_money-:held_money, held_tokens=held_tokens-:held_tokens,"
        " money=money+:money, tokens=tokens+:tokens WHERE scope=:scope AND period=:period"
        " RETURNING coalesce(money, 0) AS money, coalesce(tokens, 0) AS tokens",
        {**key.values, "money": money, "tokens": tokens, "held_money": held_money, "held_tokens": held_tokens},
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
    """Give back what the calls of a dead process held; their input counts as spent."""
    close_stale_calls(execute)
    forget_sums(execute)
    execute("UPDATE budgets SET held_money=0, held_tokens=0", {})
