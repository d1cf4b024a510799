"""Store what plans that people agreed to hold of the budgets, until their requests end.

A hold counts in what is held of a budget, as those of calls do. A call of the request takes from it what it may cost
(`taken`) and gives that back at its end; the hold shrinks by what the call used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.database.database import Execute
from bot.database.dialect import FOR_UPDATE
from bot.database.rows import read_rows
from bot.database.states import OPEN_RUN, QuestionState
from bot.storage.budgets import CounterKey, release_stale_holds

_ENDED = (
    f"NOT EXISTS (SELECT 1 FROM runs WHERE runs.conversation=plan_holds.conversation AND {OPEN_RUN})"
    " AND NOT EXISTS (SELECT 1 FROM questions WHERE questions.conversation=plan_holds.conversation"
    f" AND state IN ('{QuestionState.OPEN}', '{QuestionState.ANSWERED}'))"
)
"""No run works in the conversation, and no question waits there for an answer or for the run that follows it."""
_THIS_HOLD = "conversation=:conversation AND scope=:scope AND period=:period"


@dataclass(frozen=True, slots=True)
class PlanHold:
    """What the plan of a conversation still holds of one budget, beside what its running calls have taken of it."""

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
    money = max(0, rows[0]["money"] + taken[0] - used[0])
    tokens = max(0, rows[0]["tokens"] + taken[1] - used[1])
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
    return sum(each.money + each.taken_money for each in holds), sum(each.tokens + each.taken_tokens for each in holds)


def _key_of(hold: PlanHold) -> dict[str, str]:
    return {"conversation": hold.conversation, "scope": hold.scope, "period": hold.period}
