"""What a request is expected to cost, over real rows: medians, too little history, unknown prices, other chats."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.messages import Author, Message, Mode, Origin, Thread
from agent.settings.models import ModelPrice, ModelSettings
from agent.spending import Meter, ModelCall
from bot.budgets.expected_cost import RequestCosts, round_up
from bot.config.schema import Config
from bot.database.database import Database, Execute
from bot.database.states import RunState
from bot.rights.current import Current
from bot.rights.reservations import Budgets
from bot.storage import runs, usage
from bot.storage.usage import Payer, PricedCall
from tests.support.rehearsed_database import make_empty_database, rehearsed_database

THREAD = Thread("telegram", "bot", "-100", "7")
PAYER = Payer(1000, f"{THREAD}#now", THREAD, "42")
CALL = ModelCall("lead", "main", "turn", 100, 0, 0, 0, 0.1, 0.0)
DAY = 86400.0


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as opened:
        yield opened


class History:
    """Runs and their usage."""

    def __init__(self, store: Database) -> None:
        self.store = store
        self.meter = Meter()
        model = ModelSettings("main", model="any", price=ModelPrice(input=1.0, output=2.0))
        self.costs = RequestCosts(store, Budgets(store, Current(Config(models=(model,)))), PAYER, self.meter)

    async def add(
        self,
        run: int,
        cost: int | None,
        *,
        payer: Payer = PAYER,
        state: RunState = RunState.DONE,
        seconds: float = 60,
        ago: float = DAY,
        tokens: int = 100,
        conversation: str = "",
        mode: Mode = "",
    ) -> None:
        payer = replace(payer, run=run, conversation=conversation or f"c{run}")
        author = Author(payer.requester, "Jane")
        message = Message(payer.thread, str(run), str(run), author, "hello", 0.0, mode=mode, origin=Origin.PERSON)
        at = time.time() - ago
        call = PricedCall(replace(CALL, input=tokens, at=at), cost, "")

        def work(execute: Execute) -> None:
            runs.create_run(execute, run, payer.conversation, message, RunState.RUNNING, at)
            usage.record_calls(execute, payer, [call])
            if state is not RunState.RUNNING:
                runs.finish_run(execute, run, state, at + seconds)

        await self.store.run(work)

    async def add_plan(self, number: int, cost: int | None, *, ago: float = DAY, **work: Any) -> None:
        """Add a run that made a plan and asked, and the run of its work."""
        name, payer = f"p{number}", work.get("payer", PAYER)
        waits = RunState.WAITING
        await self.add(2 * number, 7_000, state=waits, conversation=name, mode="plan", payer=payer, ago=ago)
        await self.add(2 * number + 1, cost, conversation=name, ago=ago, **work)

    async def text(self) -> str:
        return (await self.costs.expected()).text


@pytest.fixture
def history(store: Database) -> History:
    return History(store)


async def test_the_median_and_what_nine_of_ten_did_not_pass(history: History) -> None:
    for number in range(1, 11):
        await history.add_plan(number, number * 100_000, seconds=number * 60)
    history.meter.add(replace(CALL, input=12_300))
    expected = await history.costs.expected()
    assert (expected.amount, expected.unit) == (920_000, "money"), "what is spent, and the work of nine of ten plans"
    assert expected.text == (
        "Planning has cost $0.0123 so far. The work of earlier plans cost $0.50 and took 5 min in the middle; 9 of 10"
        " stayed within $0.90 and 9 min. I'll ask you if this one passes $0.92 in all."
    )


@pytest.mark.parametrize("other", ["old", "failed", "another chat", "answers", "approvals"])
async def test_too_little_history_names_no_amount(history: History, other: str) -> None:
    for number in range(1, 5):
        await history.add_plan(number, 100_000)
    match other:
        case "old":
            await history.add_plan(5, 100_000, ago=31 * DAY)
        case "failed":
            await history.add_plan(5, 100_000, state=RunState.FAILED)
        case "another chat":
            await history.add_plan(5, 100_000, payer=replace(PAYER, thread=Thread("telegram", "bot", "-200")))
        case "answers":  # of another kind
            for number in range(11, 31):
                await history.add(number, 100_000)
        case _:
            for number in range(11, 31, 2):
                await history.add(number, 100_000, state=RunState.WAITING, conversation=f"a{number}")
                await history.add(number + 1, 100_000, conversation=f"a{number}")
    expected = await history.costs.expected()
    assert expected.amount is None
    assert "fewer than 5 plans were carried out here in the last 30 days" in expected.text
    assert "$" not in expected.text


async def test_one_unknown_price_makes_it_tokens(history: History) -> None:
    for number in range(1, 6):
        await history.add_plan(number, None if number == 3 else 100_000, tokens=number * 1000)
    expected = await history.costs.expected()
    assert (expected.amount, expected.unit) == (5000, "tokens")
    assert "cost 3,000 tokens and took 1 min in the middle; 9 of 10 stayed within 5,000 tokens" in expected.text


async def test_so_does_a_request_whose_own_model_has_no_price(history: History) -> None:
    for number in range(1, 6):
        await history.add_plan(number, 100_000)
    history.meter.add(replace(CALL, model="gone"))
    assert (await history.costs.expected()).unit == "tokens"


async def test_the_history_of_the_person_comes_before_that_of_the_chat(history: History) -> None:
    for number in range(1, 10):
        await history.add_plan(number, 1_000_000, payer=replace(PAYER, requester="43"))
    assert (await history.costs.expected()).amount == 1_000_000
    for number in range(10, 15):
        await history.add_plan(number, 200_000)
    assert (await history.costs.expected()).amount == 200_000


async def test_the_work_of_a_plan_is_all_that_follows_it(history: History) -> None:
    for number in range(1, 6):
        name = f"p{number}"
        await history.add(10 * number, 9_000_000, state=RunState.WAITING, conversation=name, mode="plan")
        await history.add(10 * number + 1, 100_000, state=RunState.WAITING, conversation=name)
        await history.add(10 * number + 2, 200_000, conversation=name)
    expected = await history.costs.expected()
    assert expected.amount == 300_000
    assert "took 2 min" in expected.text


async def test_what_is_spent_are_the_runs_since_the_request_and_calls_that_are_not_stored(history: History) -> None:
    here = PAYER.conversation
    await history.add(990, 5_000_000, conversation=here)
    await history.add(991, 100_000, state=RunState.WAITING, conversation=here)
    await history.add(PAYER.run, 20_000, state=RunState.RUNNING, conversation=here)
    history.meter.add(replace(CALL, input=3000))
    assert await history.costs.spent("money") == 123_000
    assert await history.costs.spent("tokens") == 3200


def test_an_amount_is_rounded_up_to_what_is_shown(history: History) -> None:
    assert [round_up(each, "money") for each in (0, 1, 12_301, 99_901, 400_001)] == [0, 100, 12_400, 100_000, 410_000]
    assert history.costs.excess(400_001, 400_000, "money") == (
        "This has cost $0.41 of the $0.40 that I expected. Go on?"
    )
