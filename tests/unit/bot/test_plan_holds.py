"""What a plan holds of the budgets: its own calls use it, others do not, and it ends with its request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.messages import Author, Message, Origin
from agent.spending import Refusal
from bot.config.spending import BudgetConfig, Money, TokenCount
from bot.database.database import Database, Execute
from bot.database.states import RunState
from bot.rights.reservations import BudgetReservation, Budgets
from bot.storage import runs
from bot.storage.budgets import PlanHold, read_holds, release_dead, release_ended
from bot.storage.usage import Payer
from tests.support.rehearsed_database import make_empty_database
from tests.unit.bot.test_budgets import PAYER, budgets_of, counters, ended, reserve

OTHER = replace(PAYER, run=2, conversation="other")
PERSON = BudgetConfig("person", money=Money(1000))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    make_empty_database(tmp_path / "fawn.db")
    async with Database(tmp_path / "fawn.db") as opened:
        message = Message(PAYER.thread, "k", "1", Author("42", "Jane"), "hello", 0.0, origin=Origin.PERSON)
        for payer in (PAYER, OTHER):

            def begin(execute: Execute, run: int = payer.run, conversation: str = payer.conversation) -> None:
                runs.create_run(execute, run, conversation, message, RunState.RUNNING, 0.0)

            await opened.run(begin)
        yield opened


async def finish(store: Database, state: RunState = RunState.DONE) -> None:
    """End the request of the plan."""

    def work(execute: Execute) -> None:
        runs.finish_run(execute, PAYER.run, state, 1.0)
        release_ended(execute)

    await store.run(work)


async def spend(budgets: Budgets, tokens: int, payer: Payer = PAYER) -> None:
    held = await reserve(budgets, payer)
    assert isinstance(held, BudgetReservation)
    await held.settle(ended(tokens))


async def test_others_do_not_use_up_what_a_plan_holds(store: Database) -> None:
    budgets = budgets_of(store, PERSON)
    await budgets.hold_plan(PAYER, 900, 0)
    await spend(budgets, 100, OTHER)
    refused = await asyncio.wait_for(reserve(budgets, OTHER), 60)
    assert isinstance(refused, Refusal)
    assert refused.what.startswith("What is left of your budget of $0.0010 a month is reserved for a plan")
    for _ in range(4):
        await spend(budgets, 200)
    assert await counters(store) == [("person:telegram:42", 900, 100)], "what the plan has left"
    await finish(store)
    assert await counters(store) == [("person:telegram:42", 900, 0)]
    await spend(budgets, 50, OTHER)


async def test_a_plan_holds_what_is_left_and_no_more(store: Database) -> None:
    budgets = budgets_of(store, PERSON, BudgetConfig("everything", tokens=TokenCount(500)))
    await spend(budgets, 300, OTHER)
    assert await budgets.left_for_plan(PAYER) == (700, 200)
    await budgets.hold_plan(PAYER, 5000, 5000)
    holds = await store.run(read_holds)
    assert {(hold.scope, hold.money, hold.tokens) for hold in holds} == {
        ("person:telegram:42", 700, 0),
        ("everything:all", 0, 200),
    }
    assert await budgets.left_for_plan(OTHER) == (0, 0)


async def test_what_was_spent_before_go_is_a_part_of_the_amount(store: Database) -> None:
    budgets = budgets_of(store, PERSON)
    await spend(budgets, 150)
    for _ in range(2):  # as after a crash between the answer and the checkpoint
        await budgets.hold_plan(PAYER, 400, 0)
        assert await counters(store) == [("person:telegram:42", 150, 250)]


async def test_a_start_holds_again_for_plans_that_go_on(store: Database) -> None:
    budgets = budgets_of(store, PERSON)
    await budgets.hold_plan(PAYER, 500, 0)
    await budgets.hold_plan(OTHER, 300, 0)
    assert isinstance(await reserve(budgets), BudgetReservation)  # and the process dies
    await store.run(lambda execute: runs.finish_run(execute, OTHER.run, RunState.FAILED, 1.0))
    await store.run(release_dead)
    [hold] = await store.run(read_holds)
    assert hold == PlanHold(PAYER.conversation, "person:telegram:42", hold.period, 500, 0)
    await spend(budgets_of(store, PERSON), 100)
    assert await counters(store) == [("person:telegram:42", 200, 400)]


async def test_a_plan_whose_end_nobody_recorded_holds_nothing_back(store: Database) -> None:
    """Its conversation was closed, forgotten or given up: the next one that needs room finds it."""
    budgets = budgets_of(store, PERSON)
    await budgets.hold_plan(PAYER, 1000, 0)
    await store.run(lambda execute: runs.finish_run(execute, PAYER.run, RunState.WAITING, 1.0))
    await spend(budgets, 10, OTHER)
    assert await counters(store) == [("person:telegram:42", 10, 0)]


@pytest.mark.parametrize("first", [0, 1])
async def test_a_hold_loses_what_calls_used_in_whichever_order_they_end(store: Database, first: int) -> None:
    """The second call takes the rest of the hold and uses more than that; the first one gives back a part."""
    budgets = budgets_of(store, BudgetConfig("person", money=Money(10_000)))
    await budgets.hold_plan(PAYER, 250, 0)
    calls = [await reserve(budgets), await reserve(budgets)]
    used = [100, 150]
    for number in (first, 1 - first):
        call = calls[number]
        assert isinstance(call, BudgetReservation)
        await call.settle(ended(used[number]))
    assert await counters(store) == [("person:telegram:42", 250, 0)]


async def test_many_calls_at_once_neither_lose_nor_double_what_a_plan_holds(store: Database) -> None:
    budgets = budgets_of(store, BudgetConfig("person", money=Money(10_000)))
    await budgets.hold_plan(PAYER, 5000, 0)

    async def work(number: int) -> int:
        payer = PAYER if number % 2 else OTHER
        spent = 0
        for step in range(12):
            held = await reserve(budgets, payer)
            if isinstance(held, Refusal):
                break
            await asyncio.sleep(0)
            if (number + step) % 5:
                await held.settle(ended(100, step))
                spent += 100 + 2 * step
            else:
                await held.cancel()
        return spent

    spent = await asyncio.gather(*(work(number) for number in range(16)))
    own, others = sum(spent[1::2]), sum(spent[::2])
    [(_, money, held)] = await counters(store)
    assert money == own + others
    assert held == max(0, 5000 - own)
    assert others <= 10_000 - 5000 + 200, "more than one call over what the plan left"
    await finish(store)
    assert (await counters(store))[0][2] == 0
