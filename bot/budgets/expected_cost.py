"""Say what a plan has cost so far, and what its work will probably cost, by those that were carried out before it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median_low

from agent.spending import CostBound, ExpectedCost, Meter, Unit
from bot.database.database import Database, Execute
from bot.rights.budgets import format_money
from bot.rights.reservations import Budgets
from bot.storage.usage import Payer, RequestCost, Spending, finished_requests, spent_by_request
from catalogue import _, format_duration, join_sentences

HISTORY_DAYS = 30
MIN_REQUESTS = 5
SMALL_MONEY = 100_000  # micro-dollars; below, `format_money` shows four digits


class RequestCosts:
    """`agent.spending.CostHistory` of one turn."""

    def __init__(self, store: Database, budgets: Budgets, payer: Payer, meter: Meter) -> None:
        self._store = store
        self._budgets = budgets
        self._payer = payer
        self._meter = meter

    async def expected(self) -> ExpectedCost:
        """Return what the plan has cost so far, and what the work after it will cost."""
        requests = await self._store.run(self._comparable, durable=False)
        planning = await self._spent()
        if len(requests) >= MIN_REQUESTS:
            return await self._with_hold(estimate_cost(requests, planning), planning)
        unknown = _(
            "I can't say what its work will cost: fewer than {n} plans were carried out here in the last {days} days.",
            n=MIN_REQUESTS,
            days=HISTORY_DAYS,
        )
        unit: Unit = "tokens" if planning.unpriced or not planning.cost else "money"
        return ExpectedCost(join_sentences(_describe_planning(planning, unit), unknown))

    async def hold(self, bound: CostBound) -> None:
        """Hold in the budgets what is left of this bound, until the request ends."""
        spent = await self._spent()
        money = max(0, bound["amount"] - spent.cost) if bound["unit"] == "money" else 0
        tokens = max(0, bound["amount"] - spent.tokens) if bound["unit"] == "tokens" else bound["tokens"]
        await self._budgets.hold_plan(self._payer, money, tokens)

    async def _with_hold(self, expected: ExpectedCost, planning: Spending) -> ExpectedCost:
        """Say what "go" holds in the budgets, if there are any."""
        money, tokens = await self._budgets.left_for_plan(self._payer)
        amounts: list[tuple[int, int | None, Unit]] = [(expected.tokens, tokens, "tokens")]
        if expected.unit == "money":
            amounts.insert(0, (max(0, (expected.amount or 0) - planning.cost), money, "money"))
        counted = [(wanted, left, unit) for wanted, left, unit in amounts if left is not None]
        if not counted:
            return expected
        short = next(((left, unit) for wanted, left, unit in counted if left < wanted), None)
        if short:
            left = format_amount(*short)
            said = _(
                "Only {left} of the budget are left: Go reserves them, and I stop when they are used up.", left=left
            )
        else:
            wanted = format_amount(counted[0][0], counted[0][2])
            said = _("Go reserves {amount} in the budget, so that other work can't use it up.", amount=wanted)
        return replace(expected, text=join_sentences(expected.text, said))

    async def spent(self, unit: Unit) -> int:
        """Return what this request has cost so far."""
        spending = await self._spent()
        return spending.cost if unit == "money" else spending.tokens

    def excess(self, spent: int, expected: int, unit: Unit) -> str:
        """Return the question whether to go on."""
        return _(
            "This has cost {spent} of the {expected} that I expected. Go on?",
            spent=format_amount(round_up(spent, unit), unit),
            expected=format_amount(expected, unit),
        )

    def _comparable(self, execute: Execute) -> list[RequestCost]:
        """Return the plans of the person that were carried out in this chat, else those of everybody there."""
        since = time.time() - HISTORY_DAYS * 86400
        groups = (finished_requests(execute, self._payer, since, own=own) for own in (True, False))
        return next((each for each in groups if len(each) >= MIN_REQUESTS), [])

    async def _spent(self) -> Spending:
        unrecorded = [*self._meter.root.unrecorded]
        await self._budgets.load_prices(unrecorded)
        calls = [self._budgets.price(call) for call in unrecorded]
        run, conversation = self._payer.run, self._payer.conversation
        stored = await self._store.run(lambda execute: spent_by_request(execute, run, conversation), durable=False)
        return Spending(
            stored.cost + sum(each.cost or 0 for each in calls),
            stored.tokens + sum(each.call.input + each.call.output for each in calls),
            stored.calls + len(calls),
            stored.unpriced + sum(each.cost is None for each in calls),
        )


def estimate_cost(requests: Sequence[RequestCost], planning: Spending) -> ExpectedCost:
    """Return what the plan has cost, the median of cost and time of the work after others, and what nine of ten of
    these did not pass: above both, this one asks whether to go on."""
    priced = not planning.unpriced and not any(each.unpriced for each in requests)
    money = priced and any(each.cost for each in requests)
    unit: Unit = "money" if money else "tokens"
    amounts = sorted(each.cost if money else each.tokens for each in requests)
    seconds = sorted(each.seconds for each in requests)
    most = _ninth_of_ten(amounts)
    bound = round_up((planning.cost if money else planning.tokens) + most, unit)
    text = _(
        "The work of earlier plans cost {amount} and took {time} in the middle; 9 of 10 stayed within {most} and"
        " {longest}. I'll ask you if this one passes {bound} in all.",
        amount=format_amount(round_up(median_low(amounts), unit), unit),
        time=format_duration(max(1.0, median_low(seconds))),
        most=format_amount(round_up(most, unit), unit),
        longest=format_duration(max(1.0, _ninth_of_ten(seconds))),
        bound=format_amount(bound, unit),
    )
    tokens = _ninth_of_ten(sorted(each.tokens for each in requests))
    return ExpectedCost(join_sentences(_describe_planning(planning, unit), text), bound, unit, tokens)


def _describe_planning(planning: Spending, unit: Unit) -> str:
    spent = planning.cost if unit == "money" else planning.tokens
    return _("Planning has cost {amount} so far.", amount=format_amount(round_up(spent, unit), unit))


def _ninth_of_ten(values: Sequence[int] | Sequence[float]) -> int:
    """Return the smallest of these sorted values that 90 % of them do not pass, in whole units."""
    return round(values[-(-9 * len(values) // 10) - 1])


def round_up(amount: int, unit: Unit) -> int:
    """Round up to what `format_amount` shows: the amount that people agree to is the one that counts."""
    if unit == "tokens":
        return amount
    step = 100 if amount <= SMALL_MONEY - 100 else 10_000
    return -(-amount // step) * step


def format_amount(amount: int, unit: Unit) -> str:
    """Return an amount of money or tokens for people."""
    return format_money(amount) if unit == "money" else _("{n} tokens", n=f"{amount:,}")
