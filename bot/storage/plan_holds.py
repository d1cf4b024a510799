"""Store what plans that people agreed to hold of the budgets, until their requests end.

A hold is a part of `held_money` and `held_tokens` of a counter. A call of the request takes from it what it may cost
(`taken`) and gives that back at its end; the hold shrinks by what the call used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.storage.budgets import CounterKey, release_stale_holds
from bot.storage.database import Execute, Row
from bot.storage.rows import read_rows
from bot.storage.states import OPEN_RUN, QuestionState

_ENDED = (
    f"NOT EXISTS (SELECT 1 FROM runs WHERE runs.conversation=plan_holds.conversation AND {OPEN_RUN})"
    " AND NOT EXISTS (SELECT 1 FROM questions WHERE questions.conversation=plan_holds.conversation"
    f" AND state IN ('{QuestionState.OPEN}', '{QuestionState.ANSWERED}'))"
)
"""No run works in the conversation, and no question waits there for an answer or for the run that follows it."""
_THIS_HOLD = "conversation=:conversation AND scope=:scope AND period=:period"
_RELEASE = "DELETE FROM plan_holds WHERE conversation=:conversation RETURNING scope, period, money, tokens"
_RELEASE_ENDED = f"DELETE FROM plan_holds WHERE {_ENDED} RETURNING scope, period, money, tokens"


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
    _change_counter(execute, key.values["scope"], key.period, money, tokens)


def take(execute: Execute, hold: PlanHold, money: int, tokens: int) -> None:
    """Note that a call of the request holds this part of the hold: the counter's sum stays."""
    execute(
        "UPDATE plan_holds SET money=money-:money, tokens=tokens-:tokens,"
        " taken_money=taken_money+:money, taken_tokens=taken_tokens+:tokens"
        f" WHERE {_THIS_HOLD}",
        {**_key_of(hold), "money": money, "tokens": tokens},
    )


def settle(execute: Execute, hold: PlanHold, taken: tuple[int, int], used: tuple[int, int]) -> None:
    """Give back the part that a call took, and lower the hold by what the call used."""
    sql = f"SELECT money, tokens, taken_money, taken_tokens FROM plan_holds WHERE {_THIS_HOLD}"
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
    _change_counter(execute, hold.scope, hold.period, money - rows[0]["money"], tokens - rows[0]["tokens"])


def release_hold(execute: Execute, conversation: str) -> None:
    """Give back what the plan of a conversation still holds."""
    _release(execute, execute(_RELEASE, {"conversation": conversation}))


def release_ended(execute: Execute) -> bool:
    """Give back what the plans of ended requests hold; return whether there were any."""
    return _release(execute, execute(_RELEASE_ENDED, {}))


def restore_holds(execute: Execute) -> None:
    """After a start, give back what the calls of the dead process held, and hold again for unfinished plans."""
    release_stale_holds(execute)
    execute(_RELEASE_ENDED, {})
    execute(
        "UPDATE plan_holds SET money=money+taken_money, tokens=tokens+taken_tokens, taken_money=0, taken_tokens=0", {}
    )
    for hold in read_holds(execute):
        _change_counter(execute, hold.scope, hold.period, hold.money, hold.tokens)


def sum_holds(holds: Sequence[PlanHold]) -> tuple[int, int]:
    """Return the money and the tokens of holds, with what calls have taken: most of it comes back."""
    return sum(each.money + each.taken_money for each in holds), sum(each.tokens + each.taken_tokens for each in holds)


def _release(execute: Execute, rows: Sequence[Row]) -> bool:
    for row in rows:
        _change_counter(execute, row["scope"], row["period"], -row["money"], -row["tokens"])
    return bool(rows)


def _key_of(hold: PlanHold) -> dict[str, str]:
    return {"conversation": hold.conversation, "scope": hold.scope, "period": hold.period}


def _change_counter(execute: Execute, scope: str, period: str, money: int, tokens: int) -> None:
    execute(
        "UPDATE budgets SET held_money=held_money+:money, held_tokens=held_tokens+:tokens"
        " WHERE scope=:scope AND period=:period",
        {"scope": scope, "period": period, "money": money, "tokens": tokens},
    )
