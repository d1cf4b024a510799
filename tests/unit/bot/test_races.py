"""What two processes that share a database do at the same moment happens once. `test_postgres.py` has the row locks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest

from agent.messages import Author, Message, Origin, Thread
from bench.journeys import TWICE, Found, Travel, open_journeys, register
from bot.config.schema import AccessConfig, ServiceLimits
from bot.database.database import Database, Execute
from bot.database.states import FireResult
from bot.journey import claims
from bot.journey.inbox import longest_wait
from bot.storage import conversations, inbox, outbox, schedules, tasks
from bot.storage.outbox import Holder
from channels.base import Receipt
from tests.support.current_config import OPEN_ACCESS, current_of
from tests.support.idle_turns import IDLE_TURNS
from tests.support.postgres_sessions import beside, session
from tests.support.reception import open_inbox

THREAD = Thread("telegram", "1", "42")
LONGEST = longest_wait(ServiceLimits())


@pytest.fixture
async def pair(url: str) -> AsyncIterator[tuple[Database, Database]]:
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(open_journeys(url)) for _ in range(2)]
        for store in (one, two):
            await register(store)
        yield one, two


def message(number: int, thread: Thread = THREAD) -> Message:
    key, person = f"{thread}:{number}", Author("42", "Jane")
    return Message(thread, key, str(number), person, "hello", time.time(), private=True, origin=Origin.PERSON)


def prepare(execute: Execute) -> None:
    """Store one of everything that a process takes."""
    key = conversations.current_conversation(execute, THREAD, 1.0)
    inbox.store_message(execute, message(1), key, ready=1.0, received=1.0)
    conversations.refresh_pending(execute, key)
    outbox.enqueue_notice(execute, THREAD, "words", key="words", now=1.0)
    task = dict.fromkeys(("kind", "name", "language", "conversation", "title", "what", "follow_up"), "")
    task |= {"channel": "telegram", "person": "42", "thread": str(THREAD), "state": "queued"}
    tasks.add_task(execute, {**task, "key": "task", "guest": 0, "private": 1, "created": 1.0})


def claim(execute: Execute, owner: str = "a") -> list[Any]:
    return claims.claim_conversations(execute, OPEN_ACCESS, owner, time.time(), LONGEST, 5)


TAKES: dict[str, Callable[[Execute], Any]] = {
    "a conversation": claim,
    "a row of the outbox": partial(outbox.claim_rows, holder=Holder("a", shared=True), limit=5),
    "a command in the background": partial(tasks.claim_queued, owner="a", now=1.0),
    "the time of a schedule": lambda execute: [True] * schedules.record_fire(execute, 1, 5.0, 6.0, FireResult.RUN),
}


@pytest.mark.parametrize("what", TAKES)
async def test_one_of_two_processes_takes(url: str, what: str) -> None:
    with session(url) as one:
        prepare(one.execute)
        one.commit()
    first, second = await asyncio.to_thread(beside, url, TAKES[what], TAKES[what])
    assert (len(first), len(second)) == (1, 0)


async def test_an_event_that_reaches_two_processes_is_stored_once(pair: tuple[Database, Database]) -> None:
    inboxes = [open_inbox(store, current_of(telegram=AccessConfig(open=True)), IDLE_TURNS) for store in pair]
    for number in range(20):
        event = message(number, Thread("telegram", "1", str(number % 3)))
        receipts = await asyncio.gather(*(each.receive([event]) for each in inboxes))
        assert sorted(receipt for [receipt] in receipts) == sorted([Receipt.ACCEPTED, Receipt.DUPLICATE])
    assert (await pair[0].run(lambda execute: execute("SELECT count(*) AS n FROM inbox", {})))[0]["n"] == 20


async def test_under_load_nothing_is_left_and_nothing_is_answered_twice(pair: tuple[Database, Database]) -> None:
    found = [Found(), Found()]
    await asyncio.gather(*(Travel(store, each).run(3.0) for store, each in zip(pair, found, strict=True)))
    left: list[Any] = [1]
    while left:  # what a caller stored when the time was over
        left = await pair[0].run(partial(claim, owner=pair[0].me))
    assert all(each.runs for each in found)
    assert (await pair[0].run(lambda execute: execute(TWICE, {})))[0][0] == 0
    counts = "SELECT count(*) AS n FROM inbox WHERE state=0 AND coalesce(run, 0)=0"
    assert (await pair[0].run(lambda execute: execute(counts, {})))[0]["n"] == 0
