"""Say what a request will probably cost, by the finished ones of the last days, and what it has cost so far."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median_low

from agent.expected_cost import CostBound, ExpectedCost, Unit
from agent.spending import Meter
from bot.database.database import Database, Execute
from bot.rights.budget_texts import format_money
from bot.rights.reservations import Budgets
from bot.storage.request_costs import RequestCost, finished_requests, spent_by_request
from bot.storage.usage import Payer, Spending
from catalogue import _, format_duration, join_sentences

HISTORY_DAYS = 30
MIN_REQUESTS = 5
SMALL_MONEY = 100_000  # micro-dollars; below, `format_money` shows four digits


class RequestCosts:
    """`agent.expected_cost.CostHistory` of one turn."""

    def __init__(self, store: Database, budgets: Budgets, payer: Payer, meter: Meter) -> None:
        self._store = store
        self._budgets = budgets
        self._payer = payer
        self._meter = meter

    async def expected(self) -> ExpectedCost:
        """Return what a request like this one costs."""
        requests = await self._store.run(self._comparable, durable=False)
        if len(requests) < MIN_REQUESTS:
            return ExpectedCost(
                _(
                    "I can't say what this will cost: fewer than {n} requests were finished here in the last {days}"
                    " days.",
                    n=MIN_REQUESTS,
                    days=HISTORY_DAYS,
                )
            )
        this = await self._spent()
        return await self._with_hold(estimate_cost(requests, priced=not this.unpriced))

    async def hold(self, bound: CostBound) -> None:
        """Hold in the budgets what this request may still cost, until it ends."""
        money = bound["amount"] if bound["unit"] == "money" else 0
        tokens = bound["amount"] if bound["unit"] == "tokens" else bound["tokens"]
        await self._budgets.hold_plan(self._payer, money, tokens)

    async def _with_hold(self, expected: ExpectedCost) -> ExpectedCost:
        """Say what "go" holds in the budgets, if there are any."""
        money, tokens = await self._budgets.left_for_plan(self._payer)
        amounts: list[tuple[int, int | None, Unit]] = [(expected.tokens, tokens, "tokens")]
        if expected.unit == "money":
            amounts.insert(0, (expected.amount or 0, money, "money"))
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
        """Return requests of the person in this chat, else of the chat; those with a question, if there are enough."""
        since = time.time() - HISTORY_DAYS * 86400
        groups = [finished_requests(execute, self._payer, since, own=own) for own in (True, False)]
        groups = [each for group in groups for each in ([one for one in group if one.asked], group)]
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


def estimate_cost(requests: Sequence[RequestCost], *, priced: bool = True) -> ExpectedCost:
    """Return the median of cost and time, and what nine of ten of these requests did not pass."""
    money = priced and not any(each.unpriced for each in requests) and any(each.cost for each in requests)
    unit: Unit = "money" if money else "tokens"
    amounts = sorted(each.cost if money else each.tokens for each in requests)
    seconds = sorted(each.seconds for each in requests)
    most = round_up(_ninth_of_ten(amounts), unit)
    text = _(
        "Runs like this one cost {amount} and took {time} in the middle; 9 of 10 stayed within {most} and"
        " {longest}. I'll ask you if this one passes {most}.",
        amount=format_amount(round_up(median_low(amounts), unit), unit),
        time=format_duration(max(1.0, median_low(seconds))),
        most=format_amount(most, unit),
        longest=format_duration(max(1.0, _ninth_of_ten(seconds))),
    )
    return ExpectedCost(text, most, unit, _ninth_of_ten(sorted(each.tokens for each in requests)))


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
