"""Plan holds: "go" holds what a plan is expected to cost in the standing budgets, so that no other work uses it up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.database.database import Execute
from bot.rights.budget_limits import Limit
from bot.storage import budgets as stored
from bot.storage import plan_holds
from bot.storage.plan_holds import PlanHold
from bot.storage.request_costs import spent_by_request
from bot.storage.usage import Payer

Rest = tuple[int | None, int | None]
"""Money and tokens that are left; None: no budget counts them."""


@dataclass(frozen=True, slots=True)
class ReservedForPlan:
    """What is left of a budget is held by the plans of other requests."""

    limit: Limit


def set_plan_hold(execute: Execute, payer: Payer, limits: Sequence[Limit], money: int, tokens: int) -> None:
    """Hold what a request may still cost of these amounts, or what is left, in place of what its plan held before."""
    plan_holds.release_hold(execute, payer.conversation)
    plan_holds.release_ended(execute)
    spent = spent_by_request(execute, payer.run, payer.conversation)
    for limit in limits:
        left_money, left_tokens = _left_of(execute, limit)
        held = (_within(money - spent.cost, left_money), _within(tokens - spent.tokens, left_tokens))
        if any(held):
            plan_holds.add_hold(execute, payer.conversation, limit.key, *held)


def left_for_plan(execute: Execute, limits: Sequence[Limit]) -> Rest:
    """Return what a plan could hold now in all of these budgets."""
    plan_holds.release_ended(execute)
    found = [_left_of(execute, limit) for limit in limits]
    money, tokens = ([max(0, left) for each in found if (left := each[part]) is not None] for part in (0, 1))
    return min(money, default=None), min(tokens, default=None)


def own_hold(holds: Sequence[PlanHold], payer: Payer, limit: Limit) -> PlanHold | None:
    """Return what the plan of the payer's request holds of a budget."""
    own = (hold for hold in holds if hold.conversation == payer.conversation and hold.is_of(limit.key))
    return next(own, None)


def is_reserved(holds: Sequence[PlanHold], payer: Payer, limit: Limit, spent: tuple[int, int]) -> bool:
    """Return whether the plans of others hold all that is left of a budget."""
    others = [hold for hold in holds if hold.conversation != payer.conversation and hold.is_of(limit.key)]
    money, tokens = plan_holds.sum_holds(others)
    return bool(others) and limit.share(spent[0] + money, spent[1] + tokens) >= 1.0


def _left_of(execute: Execute, limit: Limit) -> Rest:
    spent_money, spent_tokens, held_money, held_tokens = stored.read_counter(execute, limit.key)
    money, tokens = limit.config.money, limit.config.tokens
    return (
        None if money is None else money - spent_money - held_money,
        None if tokens is None else tokens - spent_tokens - held_tokens,
    )


def _within(wanted: int, left: int | None) -> int:
    return 0 if left is None else max(0, min(wanted, left))
