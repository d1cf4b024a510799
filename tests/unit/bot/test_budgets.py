"""Budgets: reservations, settlement, what is left of a dead process, prices of calls, and the ends of periods."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from agent.messages import Thread
from agent.models.answers import call_model
from agent.models.errors import BudgetExceeded
from agent.models.prices import price_call
from agent.settings.models import ModelPrice, ModelSettings
from agent.settings.sections import VoiceConfig
from agent.spending import ModelCall, PlannedCall, Refusal
from bot.config.schema import Config
from bot.config.spending import BudgetConfig, Money, TokenCount
from bot.database.database import Database
from bot.rights.budgets import limits_of, period_bounds
from bot.rights.current import Current
from bot.rights.reservations import BudgetReservation, Budgets
from bot.storage import usage
from bot.storage.budgets import list_counters, release_stale_holds
from bot.storage.usage import Payer
from tests.support.rehearsed_database import make_empty_database, rehearsed_database

MODEL = ModelSettings("main", model="any", price=ModelPrice(input=1.0, output=2.0, cached=0.1))
THREAD = Thread("telegram", "bot", "-100", "7")
PAYER = Payer(1, f"{THREAD}#1", THREAD, "42")
CALL = PlannedCall("lead", "main", "turn", 100, 50)  # holds 200 micro-dollars


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as opened:
        yield opened


def budgets_of(store: Database, *entries: BudgetConfig, model: ModelSettings = MODEL, zone: str = "UTC") -> Budgets:
    return Budgets(store, Current(Config(models=(model,), budgets=entries, time_zone=zone)))


def ended(input: int, output: int = 0, cached: int = 0, **more: Any) -> ModelCall:
    return replace(ModelCall("lead", "main", "turn", input, output, cached, 0, 0.1, 0.0), **more)


async def reserve(budgets: Budgets, payer: Payer = PAYER, planned: PlannedCall = CALL) -> BudgetReservation | Refusal:
    gate = budgets.gate(payer)
    assert gate
    found = await gate.reserve(planned)
    assert found
    return found


async def spend(budgets: Budgets, call: ModelCall, payer: Payer = PAYER, planned: PlannedCall = CALL) -> list[str]:
    gate = budgets.gate(payer)
    assert gate
    held = await gate.reserve(planned)
    assert isinstance(held, BudgetReservation)
    await held.settle(call)
    return gate.take_warnings()


async def counters(store: Database) -> list[tuple[Any, ...]]:
    rows = await store.run(partial(list_counters, now=0.0, limit=100))
    return [(row.scope, row.money, row.held_money) for row in sorted(rows, key=lambda row: (row.scope, row.period))]


async def test_32_tasks_never_pass_a_budget_by_more_than_one_call(store: Database) -> None:
    """Every call costs up to what it reserved. All that run at once hold that much, or wait."""
    limit, dice = 20_000, random.Random(1)
    everything = BudgetConfig("everything", money=Money(limit))
    budgets = budgets_of(store, everything, BudgetConfig("person", period="day", money=Money(limit // 4)))
    done, refused = 0, 0

    async def work(person: int) -> None:
        nonlocal done, refused
        payer = replace(PAYER, requester=str(person % 8), run=person)
        while isinstance(held := await reserve(budgets, payer), BudgetReservation):
            await asyncio.sleep(0)
            await held.settle(ended(100, dice.randrange(10, 51)))
            done += 1
        refused += 1

    await asyncio.gather(*(work(person) for person in range(32)))
    assert refused == 32
    found = {scope: (money, held) for scope, money, held in await counters(store)}
    assert {held for _, held in found.values()} == {0}
    spent = found["everything:all"][0]
    assert limit <= spent < limit + 200
    assert all(money < limit // 4 + 200 for scope, (money, _) in found.items() if scope.startswith("person"))
    total = await store.run(lambda execute: usage.spent(execute, "everything", "all", 0.0))
    assert (total.cost, total.calls) == (spent, done)


async def test_a_call_waits_for_those_that_hold_the_rest(store: Database) -> None:
    """A reservation is an upper bound: what it gives back is used, so nobody is refused too early."""
    budgets = budgets_of(store, BudgetConfig("everything", money=Money(300)))
    first, second = await reserve(budgets), await reserve(budgets)
    assert isinstance(first, BudgetReservation)
    assert isinstance(second, BudgetReservation)
    third = asyncio.create_task(reserve(budgets))
    await store.run(lambda execute: None)
    await store.run(lambda execute: None)
    assert not third.done()
    await first.settle(ended(10))
    held = await third
    assert isinstance(held, BudgetReservation)
    await held.settle(ended(10))
    await second.settle(ended(10))
    assert await counters(store) == [("everything:all", 30, 0)]


async def test_what_others_give_back_admits_no_call_beyond_the_last_one(store: Database) -> None:
    """The last call may cost more than what was left for it, so that is used up, too, until it ends."""
    budgets = budgets_of(store, BudgetConfig("everything", money=Money(300)))
    first, last = await reserve(budgets), await reserve(budgets)
    assert isinstance(first, BudgetReservation)
    assert isinstance(last, BudgetReservation)
    late = asyncio.create_task(reserve(budgets))
    await first.settle(ended(100, 25))
    for _ in range(3):
        await store.run(lambda execute: None)
    assert not late.done()
    await last.settle(ended(100, 50))
    assert isinstance(await late, Refusal)
    assert await counters(store) == [("everything:all", 350, 0)]


async def test_a_call_that_was_cancelled_before_it_began_costs_nothing(store: Database) -> None:
    budgets = budgets_of(store, BudgetConfig("everything", money=Money(10_000)))
    held = await reserve(budgets)
    assert isinstance(held, BudgetReservation)
    await held.cancel()
    assert await counters(store) == [("everything:all", 0, 0)]
    assert not await store.run(lambda execute: execute("SELECT input, output, cost, open FROM usage", {}))


@pytest.mark.parametrize(
    "limit", [BudgetConfig("everything", money=Money(300)), BudgetConfig("everything", tokens=TokenCount(300))]
)
async def test_a_call_of_nothing_waits_for_nothing(store: Database, limit: BudgetConfig) -> None:
    """An empty recording has no seconds: it must not wait for room that it does not need."""
    budgets = budgets_of(store, limit)
    held = await reserve(budgets, planned=replace(CALL, input=0, output=0))
    assert isinstance(held, BudgetReservation)
    await held.settle(ended(0))
    everything = [await reserve(budgets), await reserve(budgets)]
    nothing = await asyncio.wait_for(reserve(budgets, planned=replace(CALL, input=0, output=0)), 60)
    assert isinstance(nothing, BudgetReservation)
    for each in [*everything, nothing]:
        assert isinstance(each, BudgetReservation)
        await each.cancel()


async def test_a_cancelled_task_settles(store: Database) -> None:
    budgets = budgets_of(store, BudgetConfig("everything", money=Money(10_000)))
    held = await reserve(budgets)
    assert isinstance(held, BudgetReservation)
    task = asyncio.create_task(held.settle(ended(100, 50)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(60):
        while (await counters(store))[0][2]:
            await asyncio.sleep(0)
    assert await counters(store) == [("everything:all", 200, 0)]


async def test_the_calls_of_a_dead_process_count_with_their_input(store: Database) -> None:
    entry = BudgetConfig("person", money=Money(1000))
    await spend(budgets_of(store, entry), ended(100, 100))
    assert isinstance(await reserve(budgets_of(store, entry)), BudgetReservation)
    assert await counters(store) == [("person:telegram:42", 300, 200)]
    await store.run(release_stale_holds)
    await spend(budgets_of(store, entry), ended(7))
    assert await counters(store) == [("person:telegram:42", 300 + 100 + 7, 0)]


async def test_a_refusal_says_whose_budget_how_much_until_when_and_who_can_raise_it(store: Database) -> None:
    budgets = budgets_of(store, BudgetConfig("person", period="day", money=Money.parse("0.50 USD")))
    assert await spend(budgets, ended(300_000)) == []
    [warning] = await spend(budgets, ended(120_000))
    assert warning.startswith("More than 80 % of your budget of $0.50 a day is used. It is renewed at ")
    assert await spend(budgets, ended(90_000)) == [], "one warning in a period"
    refused = await reserve(budgets)
    assert isinstance(refused, Refusal)
    assert refused.what == "Your budget of $0.50 a day is used up."
    assert refused.what_to_do.startswith("It is renewed at 20")
    assert refused.what_to_do.endswith("An operator can raise it: `budgets` in the configuration.")
    assert isinstance(await reserve(budgets, replace(PAYER, requester="43")), BudgetReservation)


async def test_tokens_of_a_turn(store: Database) -> None:
    budgets = budgets_of(store, BudgetConfig("turn", tokens=TokenCount.parse("1k")), model=replace(MODEL, price=None))
    await spend(budgets, ended(900, 200))
    refused = await reserve(budgets)
    assert isinstance(refused, Refusal)
    assert refused.what == "This request has used up its budget of 1,000 tokens."
    assert isinstance(await reserve(budgets, replace(PAYER, run=2)), BudgetReservation)


async def test_a_caller_that_is_cancelled_while_it_reserves_holds_nothing(store: Database) -> None:
    """Its transaction may be under way, and is committed nevertheless."""
    budgets = budgets_of(store, BudgetConfig("everything", money=Money(300)))

    def named(*names: str) -> list[asyncio.Task[Any]]:
        return [each for each in asyncio.all_tasks() if each.get_name() in names]

    for moment in range(7):
        task = asyncio.create_task(reserve(budgets))
        if moment == 6:
            while not named("reserve"):
                await asyncio.sleep(0)
        for _ in range(moment % 6):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.gather(*named("reserve", "give back"))
    assert {held for _, _, held in await counters(store)} <= {0}
    assert (await store.run(lambda execute: usage.spent(execute, "everything", "all", 0.0))).calls == 0


async def test_a_voice_message_is_reserved_by_its_length(store: Database) -> None:
    """What a dead process had sent counts with the price of the whole audio."""
    limit = BudgetConfig("person", money=Money(10_000))
    config = Config(models=(MODEL,), budgets=(limit,), voice=VoiceConfig("http://10.0.0.1/v1", price_per_minute=0.006))
    budgets = Budgets(store, Current(config))
    planned = PlannedCall("lead", "whisper-1", "voice", 600, 600, audio_seconds=60.0)
    first, second = await reserve(budgets, planned=planned), await reserve(budgets, planned=planned)
    assert [held for _, _, held in await counters(store)] == [12_000]
    assert isinstance(first, BudgetReservation)
    await first.settle(ended(600, kind="voice", model="whisper-1", audio_seconds=30.0))
    assert await counters(store) == [("person:telegram:42", 3000, 6000)]
    await store.run(release_stale_holds)
    assert isinstance(second, BudgetReservation)
    spent = await store.run(lambda execute: usage.spent(execute, "everything", "all", 0.0))
    assert (spent.cost, spent.calls) == (3000 + 6000, 2)


@pytest.mark.parametrize(
    ("kind", "setting"), [("voice", "price_per_minute"), ("embedding", "price_per_million_tokens")]
)
async def test_an_unknown_price_of_another_endpoint_names_its_setting(store: Database, kind: str, setting: str) -> None:
    refused = await reserve(
        budgets_of(store, BudgetConfig("chat", money=Money(10))), planned=PlannedCall("lead", "x", kind, 10, 0)
    )
    assert isinstance(refused, Refusal)
    assert setting in refused.what_to_do


async def test_an_unknown_price_is_refused_under_a_budget_in_money_only(store: Database) -> None:
    unknown = replace(MODEL, price=None, base_url="http://10.0.0.1/v1")
    refused = await reserve(budgets_of(store, BudgetConfig("chat", money=Money(10)), model=unknown))
    assert isinstance(refused, Refusal)
    assert "the model main costs" in refused.what
    assert "`price`" in refused.what_to_do
    tokens = budgets_of(store, BudgetConfig("chat", tokens=TokenCount(10)), model=unknown)
    assert isinstance(await reserve(tokens), BudgetReservation)


async def test_a_change_of_the_budgets_counts_what_was_spent_before(store: Database) -> None:
    budgets = budgets_of(store, BudgetConfig("person", money=Money(1000)))
    await spend(budgets, ended(100, 50))
    budgets.current.config = replace(budgets.current.config, budgets=(BudgetConfig("chat", money=Money(150)),))
    assert isinstance(await reserve(budgets), Refusal)


def test_a_budget_for_one_replaces_that_for_all() -> None:
    entries = (
        BudgetConfig("person", "42", "day", Money(5)),
        BudgetConfig("person", "", "day", Money(1)),
        BudgetConfig("person", "", "month", Money(9)),
        BudgetConfig("workspace", "slack:other", "month", Money(2)),
        BudgetConfig("model", "other", "month", Money(3)),
        BudgetConfig("chat", "-100", "month", Money(4)),
    )
    found = limits_of(entries, PAYER, CALL, 1_800_000_000.0, ZoneInfo("UTC"))
    assert [(limit.key.scope, limit.key.key, limit.config.money) for limit in found] == [
        ("person", "telegram:42", 5),
        ("person", "telegram:42", 9),
        ("chat", "telegram/bot/-100/", 4),
    ]


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", "2026-03-29", 23),
        ("Europe/Berlin", "2026-10-25", 25),
        ("Europe/Berlin", "2026-11-23", 24),
        ("America/Santiago", "2026-09-06", 23),  # its midnight does not exist
        ("Asia/Shanghai", "2026-03-29", 24),
    ],
)
def test_a_day_ends_at_midnight_on_days_when_clocks_change(zone: str, day: str, hours: int) -> None:
    at = datetime.fromisoformat(f"{day}T12:00").replace(tzinfo=ZoneInfo(zone)).timestamp()
    since, until = period_bounds("day", at, ZoneInfo(zone))
    assert until - since == hours * 3600
    assert period_bounds("day", until - 1, ZoneInfo(zone)) == (since, until)
    assert period_bounds("day", until, ZoneInfo(zone))[0] == until


def test_a_month() -> None:
    zone = ZoneInfo("Europe/Berlin")
    at = datetime(2026, 10, 31, 23, 59, tzinfo=zone).timestamp()
    since, until = (datetime.fromtimestamp(each, zone).isoformat() for each in period_bounds("month", at, zone))
    assert (since, until) == ("2026-10-01T00:00:00+02:00", "2026-11-01T00:00:00+01:00")


@pytest.mark.parametrize(
    ("use", "model", "call", "micro_dollars"),
    [
        ("langchain_google_genai:ChatGoogleGenerativeAI", "gemini-2.5-pro", ended(100_000), 125_000),
        ("langchain_google_genai:ChatGoogleGenerativeAI", "gemini-2.5-pro", ended(300_000), 750_000),
        ("langchain_anthropic:ChatAnthropic", "claude-sonnet-4-5", ended(10_000, 500, 8_000), 15_900),
        ("langchain_openai:ChatOpenAI", "no-such-model", ended(1), None),
        ("langchain_ollama:ChatOllama", "gpt-5-mini", ended(1), None),
        ("agent.demo.model:DemoModel", "", ended(1), 0),
    ],
)
def test_each_call_has_the_price_of_its_tier(use: str, model: str, call: ModelCall, micro_dollars: int | None) -> None:
    """Two calls of 150,000 tokens cost less than one of 300,000: a sum must not be priced."""
    assert price_call(ModelSettings("m", use, model), call)[0] == micro_dollars


def test_the_operators_price_wins_and_counts_cached_input() -> None:
    assert price_call(MODEL, ended(1000, 100, 400)) == (600 + 40 + 200, "config")
    assert (
        price_call(ModelSettings("m", model="gpt-5-mini", base_url="https://llm.example.com/v1"), ended(1))[0] is None
    )
    assert price_call(None, ended(1)) == (None, "")


@pytest.mark.parametrize(("text", "amount"), [("5 USD", 5_000_000), ("$0.5", 500_000), (3, 3_000_000), (0.1, 100_000)])
def test_amounts_of_money(text: object, amount: int) -> None:
    assert Money.parse(text) == amount


@pytest.mark.parametrize("text", ["5 EUR", "-1", "", True, None, "five"])
def test_what_is_no_amount_of_money(text: object) -> None:
    with pytest.raises(ValueError, match="write dollars"):
        Money.parse(text)


async def test_a_refused_call_is_not_made(store: Database) -> None:
    """By every path a model is called: the gate is part of the meter, and a part's calls count in the whole."""
    from langchain_core.language_models.fake_chat_models import FakeListChatModel
    from langchain_core.messages import AIMessage

    from agent.spending import Meter

    budgets = budgets_of(store, BudgetConfig("person", money=Money(0)))
    meter = Meter(whole=budgets.meter(PAYER))
    model = FakeListChatModel(responses=["never"], name="main")

    async def ask() -> AIMessage:
        raise AssertionError("the call was made")

    with pytest.raises(BudgetExceeded, match="Your budget"):
        await call_model(meter, model, ask, lambda answer: answer, lambda: 10, prompt=list)
