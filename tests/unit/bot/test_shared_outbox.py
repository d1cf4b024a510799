"""Two processes deliver from one outbox: each row once, and those of a thread in order."""

from __future__ import annotations

import asyncio
import time

from agent.messages import Author, Message, Origin, Thread
from bot.database.database import Database, Execute
from bot.database.states import OutboxKind, OutboxState, RunState
from bot.journey import claims
from bot.journey.outbox import Outbox
from bot.storage import conversations, outbox, runs
from bot.storage.outbox import Holder, OutboxItem, enqueue_notice
from channels.base import SentMessages
from tests.fakes.server import until
from tests.support.current_config import current_of
from tests.support.postgres_sessions import beside, die
from tests.unit.bot.test_outbox import HERE, THERE, RecordingChannel

ENDED_HERE = "SELECT count(*) AS n FROM outbox WHERE state=:state"


async def enqueue(store: Database, *texts: str, thread: Thread = HERE) -> None:
    for text in texts:
        await store.run(lambda execute, text=text: enqueue_notice(execute, thread, text, key=text, now=time.time()))  # type: ignore[misc]  # bound now


async def claim(store: Database, *without: str) -> list[int]:
    holder = Holder(store.me, shared=True, without=without)
    return [item.id for item in await store.run(lambda execute: outbox.claim_rows(execute, holder, 10, 9e9))]


async def end(store: Database, row: int) -> None:
    await store.run(lambda execute: outbox.end_row(execute, row, OutboxState.SENT, ""))


async def test_a_thread_is_delivered_by_one_process_at_a_time(pair: tuple[Database, Database]) -> None:
    one, two = pair
    await enqueue(one, "1")
    assert await claim(one) == [1]
    await enqueue(two, "2")
    await enqueue(two, "3", thread=THERE)
    assert await claim(two) == [3]
    assert await claim(one) == [2]
    await end(one, 1)
    await enqueue(two, "4")
    assert await claim(two) == []
    await end(one, 2)
    assert await claim(two) == [4]


async def test_what_a_run_ends_with_waits_for_what_another_process_delivers_there(
    pair: tuple[Database, Database],
) -> None:
    one, two = pair
    await enqueue(one, "1")
    assert await claim(one) == [1]

    def finish(execute: Execute) -> list[OutboxItem]:
        key = conversations.current_conversation(execute, HERE, 1.0)
        hello = Message(HERE, "k", "1", Author("42", "Jane"), "hello", 1.0, private=True, origin=Origin.PERSON)
        run = runs.create_run(execute, 1, key, hello, RunState.RUNNING, 1.0, ())
        holder = Holder(two.me, shared=True)
        kinds = (OutboxKind.REPLY, OutboxKind.FILE)
        return [
            item
            for kind in kinds
            for item in outbox.enqueue_claimed(execute, holder, run.id, kind, str(kind), b"{}", 1.0)
        ]

    items = await two.run(finish)
    assert [item.state for item in items] == [OutboxState.NEW] * 2
    assert await claim(two) == []
    await enqueue(one, "4")
    await end(one, 1)
    assert await claim(one) == []  # the reply that streams is the other's
    assert await claim(two) == [2, 3, 4]
    await end(two, 2)
    await die(one, two)
    await one.run(claims.release_stale_claims)
    assert await claim(one) == [3, 4]


async def test_two_looks_at_once_do_not_split_a_thread(url: str, pair: tuple[Database, Database]) -> None:
    await enqueue(pair[0], "1", "2")

    def look(execute: Execute, store: Database) -> list[int]:
        items = outbox.claim_rows(execute, Holder(store.me, shared=True), 1 if store is pair[0] else 10)
        return [item.id for item in items]

    looks = (lambda execute: look(execute, pair[0])), (lambda execute: look(execute, pair[1]))
    assert await asyncio.to_thread(beside, url, *looks) == ([1], [])


async def test_a_channel_that_only_another_process_can_post_to_is_left_to_it(pair: tuple[Database, Database]) -> None:
    one, two = pair
    await enqueue(one, "1")
    assert await claim(two, "wall") == []
    assert await claim(one) == [1]
    await one.run(lambda execute: outbox.give_back(execute, 1))
    assert await claim(two) == [1]


class HeldChannel(RecordingChannel):
    """A channel whose first post waits for `go_on`."""

    def __init__(self, shown: list[tuple[str, str]]) -> None:
        super().__init__()
        self.shown, self.begun, self.go_on = shown, asyncio.Event(), asyncio.Event()

    async def write(self, thread: Thread, text: str, posts: SentMessages) -> None:
        if text == "first":
            self.begun.set()
            await self.go_on.wait()
        await super().write(thread, text, posts)


async def test_two_processes_post_in_order(pair: tuple[Database, Database]) -> None:
    shown: list[tuple[str, str]] = []
    walls = [HeldChannel(shown) for _ in pair]
    parts = [Outbox(store, {"wall": wall}.get, current_of()) for store, wall in zip(pair, walls, strict=True)]
    await enqueue(pair[0], "first")
    tasks = [asyncio.create_task(parts[0].serve())]
    await walls[0].begun.wait()
    tasks.append(asyncio.create_task(parts[1].serve()))
    await enqueue(pair[1], "second", "third")
    await enqueue(pair[1], "elsewhere", thread=THERE)
    await until(lambda: shown == [("there", "elsewhere")], what="what nothing holds up")
    await parts[1].wait_until_idle()
    assert len(shown) == 1
    walls[0].go_on.set()
    await until(lambda: len(shown) == 4, what="the rest")
    assert [text for chat, text in shown if chat == "here"] == ["first", "second", "third"]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
