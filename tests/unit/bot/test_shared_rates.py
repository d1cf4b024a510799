"""Processes on one database count the calls of limited tools, and the calls of models, together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from functools import partial

import pytest

from agent.fair_slots import PROCESSES, share_model_calls
from agent.models.traffic import ModelTraffic
from agent.settings.models import CallLimits, ModelSettings
from bot.config.schema import Config
from bot.config.spending import RateLimitConfig
from bot.database.database import Database
from bot.rights.current import Current
from bot.rights.rates import ToolAndMessageRates, ToolCallRates

Pair = tuple[Database, Database]


async def rates_of(store: Database, *limits: RateLimitConfig) -> ToolCallRates:
    rates = ToolAndMessageRates(Current(Config(rate_limits=limits)), is_shared=store.is_shared)
    return await rates.tools_of(store)


@pytest.mark.slow
async def test_processes_together_keep_the_limit_of_a_tool(pair: Pair) -> None:
    limits = RateLimitConfig("tool", count=7, seconds=3600), RateLimitConfig("tool", which="free", count=1000)
    both = [await rates_of(store, *limits) for store in pair]
    found = await asyncio.gather(*(both[number % 2].take("bash") for number in range(40)))
    assert found.count(None) == 7
    assert all(time.time() + 3500 < until < time.time() + 3700 for until in found if until)
    assert await both[0].take("other") is None, "each tool counts by itself"
    for _ in range(9):
        assert await both[0].take("free") is None


@pytest.mark.slow
async def test_a_call_with_a_key_counts_once_and_room_comes_back(pair: Pair) -> None:
    short = RateLimitConfig("tool", count=2, seconds=1.5)
    both = [await rates_of(store, short) for store in pair]

    async def once(which: int, key: str) -> float | None:
        return await pair[which].run(partial(both[which].rates.take_once, tool="bash", key=key))

    began = time.monotonic()
    for which in (0, 1, 0, 1):
        assert await once(which, "same") is None
    assert await both[1].take("bash") is None
    async with asyncio.timeout(60):
        while await both[0].take("bash"):
            await asyncio.sleep(0.05)
    assert time.monotonic() - began >= 1.0
    assert len(await pair[0].run(lambda execute: execute("SELECT * FROM tool_uses", {}))) <= 2, "old uses are deleted"


@pytest.fixture
def alone() -> Iterator[None]:
    yield
    share_model_calls(1)


@pytest.mark.usefixtures("alone")
def test_the_places_of_model_calls_are_divided() -> None:
    settings = ModelSettings(name="main", use="x:Y", model="any", calls=2)
    traffic = ModelTraffic(CallLimits(model_calls=8))
    assert [*traffic.groups_of(settings).values()] == [8, 2]
    share_model_calls(3)
    assert [*traffic.groups_of(settings).values()] == [2, 1], "together no more than 8; at least one each"
    share_model_calls(0)
    assert PROCESSES.count == 1
