"""Budgets: reserve before a model call, settle after it, refuse when nothing is left.

Both are units of work of the store that do not wait for the disk, so that kill -9 loses no call; without budgets there
are none. A reservation is an upper bound, also where less is left of a budget: what others give back meanwhile admits
no further call beyond it. So whatever runs at once, a budget is passed by the last call at most. A call for which
running ones hold everything waits for them.

Plan holds: "go" holds what a plan is expected to cost in the standing budgets, so that no other work uses it up.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from zoneinfo import ZoneInfo

from agent.models.prices import REPORTED_PRICE, Priced, load_prices, price_call
from agent.settings.models import DEMO_CLASS_PATH, ModelSettings
from agent.spending import EMBEDDING, EXTERNAL, LEAD, VOICE, Meter, ModelCall, PlannedCall, Refusal
from bot.base.background import until_stored
from bot.config.spending import BudgetConfig
from bot.config.team import RoleConfig
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Database, Execute
from bot.rights.budgets import (
    STANDING_SCOPES,
    Limit,
    limits_of,
    record_used_up,
    refusal_of,
    reserved_for_plan,
    unknown_price,
    warning_of,
)
from bot.rights.current import Current
from bot.storage import budgets as stored
from bot.storage import usage
from bot.storage.budgets import (
    CallHold,
    PlanHold,
    add_hold,
    read_holds,
    release_ended,
    release_hold,
    settle,
    sum_holds,
    take,
)
from bot.storage.usage import Payer, PricedCall, spent_by_request
from channels.shared.background import BackgroundTasks

Rest = tuple[int | None, int | None]
"""Money and tokens that are left; None: no budget counts them."""


@dataclass(frozen=True, slots=True)
class ReservedForPlan:
    """What is left of a budget is held by the plans of other requests."""

    limit: Limit


def set_plan_hold(execute: Execute, payer: Payer, limits: Sequence[Limit], money: int, tokens: int) -> None:
    """Hold what a request may still cost of these amounts, or what is left, in place of what its plan held before."""
    release_hold(execute, payer.conversation)
    release_ended(execute)
    spent = spent_by_request(execute, payer.run, payer.conversation)
    for limit in limits:
        left_money, left_tokens = _left_of(execute, limit)
        held = (_within(money - spent.cost, left_money), _within(tokens - spent.tokens, left_tokens))
        if any(held):
            add_hold(execute, payer.conversation, limit.key, *held)


def left_for_plan(execute: Execute, limits: Sequence[Limit]) -> Rest:
    """Return what a plan could hold now in all of these budgets."""
    release_ended(execute)
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
    money, tokens = sum_holds(others)
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


log = logging.getLogger(__name__)

WARNING_SHARE = 0.8
LOOK_SECONDS = 1.0  # between looks whether another process has given back what it held


@dataclass(frozen=True, slots=True)
class Hold:
    """What a call holds of one budget, a part of which it may have taken from what its request's plan holds."""

    limit: Limit
    money: int
    tokens: int
    plan: PlanHold | None = None
    taken: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Opened:
    """A call that may be sent: the id of its row, and what it holds."""

    id: int
    holds: Sequence[Hold]


Attempt = Opened | Limit | ReservedForPlan | None
"""The outcome of trying to hold what a call may cost: the opened call; a budget of which nothing is left, or only what
plans hold; None if running calls hold what is left."""


class Budgets:
    """The budgets of the service. One instance: calls that wait for each other share it."""

    def __init__(self, store: Database, current: Current) -> None:
        self.current = current
        self._store = store
        self._freed = asyncio.Event()
        self._tasks = BackgroundTasks()
        self._summed: Sequence[BudgetConfig] = ()  # for which the counters are kept
        self._summing = asyncio.Lock()

    def meter(self, payer: Payer) -> Meter:
        """Return the meter of a turn or background job."""
        return Meter(gate=self.gate(payer))

    def gate(self, payer: Payer) -> BudgetGate | None:
        """Return the gate of calls that `payer` pays for; None if there are no budgets."""
        return BudgetGate(self, payer) if self.current.config.budgets else None

    async def role_of(self, payer: Payer) -> RoleConfig:
        """Return the present role of who pays, which says what models may work for them."""
        access = self.current.access
        return await self._store.run(
            lambda execute: access.role_of(execute, payer.thread, payer.requester), durable=False
        )

    def settings(self, kind: str, model: str) -> Priced | None:
        """Return the settings of what a call of a kind uses; None if the model is not configured any more."""
        if kind == VOICE:
            return self.current.config.voice
        if kind == EMBEDDING:
            return self.current.config.memory.embeddings
        if not self.current.config.models:
            return ModelSettings(model, DEMO_CLASS_PATH)
        return next((each for each in self.current.config.models if each.name == model), None)

    async def load_prices(self, calls: Iterable[PlannedCall | ModelCall]) -> None:
        """Load the table of prices if one of the calls needs it."""
        for kind, model in {(call.kind, call.model) for call in calls}:
            await load_prices(self.settings(kind, model))

    def price(self, call: ModelCall) -> PricedCall:
        """Return the call with its cost."""
        if call.kind == EXTERNAL:
            return PricedCall(call, call.reported_cost or 0, REPORTED_PRICE)
        return PricedCall(call, *price_call(self.settings(call.kind, call.model), call))

    async def reserve(self, payer: Payer, planned: PlannedCall) -> Opened | Refusal | None:
        """Reserve for a call; wait while running calls hold what is left of a budget."""
        await self.load_prices([planned])
        while True:
            zone, limits = self._limits(payer, planned)
            if not limits:
                return None
            await self._sum_again(self.current.config.budgets)
            least, most = self.bounds(planned)
            if most.cost is None and any(limit.config.money is not None for limit in limits):
                log.warning("budget.unknown_price model=%s", planned.model)
                what = {"kind": planned.kind, "reason": "unknown price"}
                event = AuditEvent(
                    AuditKind.BUDGET_REFUSED, payer.thread, payer.requester, run=payer.run, what=what, result="refused"
                )
                await self._store.run(partial(audit.record, event=event))
                return unknown_price(planned.kind, planned.model)
            freed = self._freed
            work = partial(self._try_reserve, payer=payer, limits=limits, least=least, most=most)
            found = await self._open(work)
            if isinstance(found, ReservedForPlan):
                return reserved_for_plan(found.limit.config)
            if isinstance(found, Limit):
                log.info("budget.refused scope=%s period=%s kind=%s", *found.key.values.values(), planned.kind)
                return refusal_of(found.config, found.key.until, zone, *await self._used(found))
            if found:
                return found
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS if self._store.is_shared else None):
                    await freed.wait()

    def _limits(self, payer: Payer, planned: PlannedCall) -> tuple[ZoneInfo | None, list[Limit]]:
        config = self.current.config
        zone = config.zone
        return zone, limits_of(config.budgets, payer, planned, time.time(), zone)

    def _standing_limits(self, payer: Payer) -> list[Limit]:
        """Return the budgets of a person and the team, which other work uses, too."""
        _zone, limits = self._limits(payer, PlannedCall(LEAD, "", "turn", 0, 0))
        return [limit for limit in limits if limit.config.scope in STANDING_SCOPES]

    async def hold_plan(self, payer: Payer, money: int, tokens: int) -> None:
        """Hold what a request may still cost, until it ends. Its calls use that first."""
        if limits := self._standing_limits(payer):
            work = partial(set_plan_hold, payer=payer, limits=limits, money=money, tokens=tokens)
            await until_stored("hold a plan", partial(self._store.run, work))

    async def left_for_plan(self, payer: Payer) -> Rest:
        """Return what a plan could hold now."""
        limits = self._standing_limits(payer)
        return await self._store.run(partial(left_for_plan, limits=limits), durable=False)

    def wake(self) -> None:
        """Let calls that wait look again whether there is room for them."""
        freed, self._freed = self._freed, asyncio.Event()
        freed.set()

    async def _sum_again(self, budgets: Sequence[BudgetConfig]) -> None:
        """Have the counters summed up again if the configuration has changed since."""
        async with self._summing:
            if self._summed is not budgets:
                await until_stored("sums", partial(self._store.run, stored.forget_sums, durable=False))
                self._summed = budgets

    def bounds(self, planned: PlannedCall) -> tuple[PricedCall, PricedCall]:
        """Return the call as it counts if the process dies, and as it may become."""
        return self.price(planned.cut_off()), self.price(planned.cut_off(planned.output))

    async def _open(self, attempt: Callable[[Execute], Attempt]) -> Attempt:
        """Commit an attempt. If the caller is cancelled meanwhile, what it reserved is given back."""
        found: list[Attempt] = []

        async def commit() -> None:
            found.append(await until_stored("reserve", partial(self._store.run, attempt, durable=False)))

        async def give_back() -> None:
            await task
            if isinstance(opened := found[0], Opened):
                await self._end(opened, lambda execute: usage.delete_call(execute, opened.id), [])

        task = self._tasks.start(commit(), name="reserve")
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            self._tasks.start(give_back(), name="give back")
            raise
        return found[0]

    async def _used(self, limit: Limit) -> tuple[int, int]:
        money, tokens, *_held = await self._store.run(partial(stored.read_counter, key=limit.key), durable=False)
        return money, tokens

    def _try_reserve(
        self, execute: Execute, payer: Payer, limits: Sequence[Limit], least: PricedCall, most: PricedCall
    ) -> Attempt:
        """Try to hold what a call may cost."""
        counters = [stored.read_counter(execute, limit.key) for limit in limits]
        plans = read_holds(execute)
        holds: list[Hold] = []
        cost, tokens = most.cost or 0, most.call.input + most.call.output
        for limit, (spent_money, spent_tokens, held_money, held_tokens) in zip(limits, counters, strict=True):
            if limit.share(spent_money, spent_tokens) >= 1.0:
                record_used_up(execute, limit, payer.thread, payer.requester, least.call.kind, payer.run)
                return limit
            plan = own_hold(plans, payer, limit)
            plan_money, plan_tokens = (max(0, plan.money), max(0, plan.tokens)) if plan else (0, 0)
            most_money, most_tokens = limit.config.money, limit.config.tokens
            left_money = cost if most_money is None else most_money - spent_money - held_money + plan_money
            left_tokens = tokens if most_tokens is None else most_tokens - spent_tokens - held_tokens + plan_tokens
            if (left_tokens > 0 or not tokens) and (left_money > 0 or not cost):  # nothing needs no room
                holds.append(Hold(limit, cost, tokens, plan, (min(cost, plan_money), min(tokens, plan_tokens))))
            elif is_reserved(plans, payer, limit, (spent_money, spent_tokens)):
                if release_ended(execute):
                    return self._try_reserve(execute, payer, limits, least, most)
                record_used_up(execute, limit, payer.thread, payer.requester, least.call.kind, payer.run)
                return ReservedForPlan(limit)
        if len(holds) < len(limits):
            return None
        call = usage.open_call(execute, self._store.me, payer, least)
        for each in holds:
            taken_from, taken = (each.plan.conversation, each.taken) if each.plan else ("", (0, 0))
            stored.hold(execute, each.limit.key, call, CallHold(each.money, each.tokens, taken_from, *taken))
            if each.plan:
                take(execute, each.plan, *each.taken)
        return Opened(call, holds)

    async def end(self, opened: Opened, done: Callable[[Execute], PricedCall | None]) -> list[Limit]:
        """Give back what a call holds and book what it cost, also if the caller is cancelled.

        Returns the budgets of which a warning is due.
        """
        due: list[Limit] = []
        task = self._tasks.start(self._end(opened, done, due), name=f"settle {opened.id}")
        await asyncio.shield(task)
        return due

    async def _end(self, opened: Opened, done: Callable[[Execute], PricedCall | None], due: list[Limit]) -> None:
        def work(execute: Execute) -> list[Limit]:
            call = done(execute)
            cost, tokens = (call.cost or 0, call.call.input + call.call.output) if call else (0, 0)
            warned = []
            stored.give_back(execute, opened.id)
            for each in opened.holds:
                if each.plan:
                    settle(execute, each.plan, each.taken, (cost, tokens))
                share = each.limit.share(*stored.book(execute, each.limit.key, cost, tokens))
                if share >= WARNING_SHARE and stored.mark_warned(execute, each.limit.key):
                    warned.append(each.limit)
            return warned

        due += await until_stored("settle", partial(self._store.run, work, durable=False))
        self.wake()


class BudgetGate:
    """`agent.spending.SpendingGate` of one turn or background job."""

    def __init__(self, budgets: Budgets, payer: Payer) -> None:
        self.budgets = budgets
        self._payer = payer
        self._warnings: list[Limit] = []

    async def reserve(self, planned: PlannedCall) -> BudgetReservation | Refusal | None:
        """Reserve for a call."""
        opened = await self.budgets.reserve(self._payer, planned)
        return BudgetReservation(self, opened) if isinstance(opened, Opened) else opened

    def warn(self, limits: Sequence[Limit]) -> None:
        """Have the end of the turn say that these budgets are nearly used up."""
        self._warnings += limits

    def take_warnings(self) -> list[str]:
        """Return what the end of the turn says about budgets."""
        limits, self._warnings = self._warnings, []
        zone = self.budgets.current.config.zone
        return [warning_of(limit.config, limit.key.until, zone, round(100 * WARNING_SHARE)) for limit in limits]


class BudgetReservation:
    """`agent.spending.Reservation` of one call."""

    def __init__(self, gate: BudgetGate, opened: Opened) -> None:
        self._gate = gate
        self._opened = opened

    async def settle(self, call: ModelCall) -> None:
        """Record the call in place of the reservation."""

        def done(execute: Execute) -> PricedCall:
            priced = self._gate.budgets.price(call)
            usage.close_call(execute, self._opened.id, priced)
            return priced

        self._gate.warn(await self._gate.budgets.end(self._opened, done))

    async def cancel(self) -> None:
        """Give the reservation back: the call cost nothing."""

        def done(execute: Execute) -> None:
            usage.delete_call(execute, self._opened.id)

        self._gate.warn(await self._gate.budgets.end(self._opened, done))
