"""A turn hears what other processes store for it, and one reply says that a conversation waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from agent.messages import Message
from bot.config.schema import AccessConfig, ServiceLimits
from bot.config.spending import RateLimitConfig
from bot.database.database import Database, Execute
from bot.fleet.turn_news import TurnNews
from bot.journey import claims
from bot.journey.running_turn import RunningTurn
from bot.storage import conversations, inbox, runs
from channels.base import Receipt
from sandbox.base import Sandbox
from tests.fakes.server import until
from tests.support.current_config import OPEN_ACCESS, current_of
from tests.support.idle_turns import IDLE_TURNS
from tests.support.postgres_sessions import beside, session
from tests.support.reception import open_inbox
from tests.unit.bot.test_turn_runner import HELLO, Lingering, TurnHarness


class Holding(Lingering):
    """A sandbox that never starts: a turn that needs it works until it is stopped."""

    @asynccontextmanager
    async def acquire(self, key: str, folder: Path) -> AsyncIterator[Sandbox]:
        await asyncio.Event().wait()
        async with super().acquire(key, folder) as sandbox:
            yield sandbox


async def receive(store: Database, message: Message) -> list[Receipt]:
    return await open_inbox(store, current_of(wall=AccessConfig(open=True)), IDLE_TURNS).receive([message])


async def begin_turn(harness: TurnHarness) -> RunningTurn:
    await harness.inbox.receive([replace(HELLO, text="plot")])
    await until(lambda: bool(harness.threads.running_turns), what="the turn")
    [live] = harness.threads.running_turns
    await until(lambda: live.working, what="the work")
    return live


@asynccontextmanager
async def working(store: Database, folder: Path) -> AsyncIterator[tuple[TurnHarness, RunningTurn]]:
    """A turn of a process that looks at what others store."""
    harness = TurnHarness(store, folder, Holding(folder / "skills"), ServiceLimits())
    async with harness.serving():
        watching = asyncio.create_task(TurnNews(store, harness.threads).serve())
        yield harness, await begin_turn(harness)
        watching.cancel()
        await asyncio.wait([watching])


async def test_a_turn_hears_a_message_that_another_process_stored(
    tmp_path: Path, pair: tuple[Database, Database]
) -> None:
    async with working(pair[0], tmp_path) as (_harness, live):
        news = live.next_message()
        await receive(pair[1], replace(HELLO, key="k2", text="and quickly"))
        async with asyncio.timeout(60):
            await news


async def test_a_turn_ends_that_is_stopped_at_another_process(tmp_path: Path, pair: tuple[Database, Database]) -> None:
    async with working(pair[0], tmp_path) as (harness, live):
        await pair[1].run(partial(runs.request_stop, run=live.job.run, by="42"))
        await until(lambda: live.stopped_by == "42", what="the stop")
        await until(lambda: live not in harness.threads.running_turns, what="the end of the turn")


async def test_two_processes_say_once_that_a_conversation_waits(url: str, pair: tuple[Database, Database]) -> None:
    await receive(pair[0], HELLO)

    def queue(execute: Execute) -> int:
        return len(claims.queue_conversations(execute, OPEN_ACCESS, 9e9, 2.0, 0.0))

    assert await asyncio.to_thread(beside, url, queue, queue) == (1, 0)
    with session(url) as one:
        assert len(one.execute("SELECT 1 FROM runs")) == 1


async def test_what_another_process_works_on_leaves_the_queue(pair: tuple[Database, Database]) -> None:
    one, two = pair
    await receive(one, HELLO)
    [key] = await one.run(lambda execute: [row["key"] for row in execute("SELECT key FROM conversations", {})])
    await two.run(lambda execute: conversations.claim_conversation(execute, key, two.me))
    assert await one.run(lambda execute: conversations.claimed_by_others(execute, one.me)) == {key}
    assert await two.run(lambda execute: conversations.claimed_by_others(execute, two.me)) == set()
    assert [row.key for row in await two.run(lambda execute: inbox.untaken_rows(execute, two.me))] == ["k1"]


async def test_messages_at_two_processes_count_for_one_limit(pair: tuple[Database, Database]) -> None:
    limit = RateLimitConfig("person", count=2, seconds=3600)
    current = current_of(wall=AccessConfig(open=True))
    current.config = replace(current.config, rate_limits=(limit,))
    inboxes = [open_inbox(store, current, IDLE_TURNS) for store in pair]

    async def say(process: int, key: str) -> Receipt:
        [receipt] = await inboxes[process].receive([replace(HELLO, key=f"wall:{key}", time=time.time())])
        return receipt

    assert await say(0, "k1") is Receipt.ACCEPTED
    assert await say(1, "k2") is Receipt.ACCEPTED
    inboxes[0]._rates.SHARED_SECONDS = 0.0
    assert await say(0, "k3") is Receipt.IGNORED
