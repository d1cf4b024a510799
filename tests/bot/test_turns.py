"""Turns with the real agent (the demo) and no channel: when they are stopped, and when their end is recorded."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.build import Plan, build_agent
from agent.conversation import Author, Message, Thread
from bot.access import Doors
from bot.inbox import Arrived, Inbox
from bot.migrate import migrate
from bot.outbox import Outbox
from bot.sections import Access, Limits
from bot.store import Execute, Store
from bot.threads import Threads
from bot.turns import Turns
from sandbox.disk.loop_images import Images
from sandbox.docker.spec import DockerSettings
from sandbox.select import choose
from tests.fakes.server import until

HELLO = Message(Thread("wall", "1", "42"), "k1", "1", Author("42", "Jane"), "hello", 0.0, private=True)


class House:
    """A store, its turns and an inbox; `at_once` stops every turn before its first step. Nobody delivers anything."""

    def __init__(self, store: Store, turns: Turns) -> None:
        self.store = store
        self.threads = Threads(store, turns, Limits())
        self.inbox = Inbox(store, Doors({"wall": Access(open=True)}), Limits(), self)
        self.at_once = False

    def woken(self, arrived: Arrived) -> None:
        self.threads.arrived(arrived.accepted)

    async def states(self) -> list[str]:
        rows = await self.store.run(lambda execute: execute("SELECT state FROM runs ORDER BY id", {}))
        return [row["state"] for row in rows]


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    migrate(tmp_path / "fawn.db")
    skills = tmp_path / "skills"
    images = Images(tmp_path / "threads", 16, make=False)
    provider, _ = await choose("none", DockerSettings(skills, state=tmp_path / "sandbox"), images)
    async with Store(tmp_path / "fawn.db", patience=0.1) as store, Store(tmp_path / "checkpoints.db") as checkpoints:
        agent = await build_agent((), Plan(), checkpoints, commands=False)
        outbox = Outbox(store, lambda name: None, Limits())
        made = House(store, Turns(store, agent, provider, images, outbox, lambda name: None, tmp_path, Limits()))
        serving = [asyncio.create_task(outbox.serve()), asyncio.create_task(made.threads.serve())]
        await asyncio.sleep(0.05)
        yield made
        for task in serving:
            task.cancel()
        await asyncio.wait(serving)


async def test_a_turn_that_is_stopped_before_its_first_step_has_an_end(house: House) -> None:
    house.at_once = True
    await house.inbox.receive([HELLO])
    async with asyncio.timeout(5):
        await house.threads.idle()
    assert await house.states() == ["stopped"]


async def test_a_stop_does_not_interrupt_the_recording_of_an_end(house: House, tmp_path: Path) -> None:
    """The disk is busy while the turn ends: until that is recorded, the turn is there, and then comes what was written
    meanwhile."""
    holder = sqlite3.connect(tmp_path / "fawn.db", isolation_level=None, check_same_thread=False)
    await house.inbox.receive([HELLO])
    (live,) = house.threads.live
    holder.execute("BEGIN IMMEDIATE")
    await until(lambda: live.working, 10, "the work")
    await until(lambda: not live.working, 10, "the end of the work")
    house.threads.stop(live.job.run, "42")
    await asyncio.sleep(0.3)
    assert house.threads.live == (live,)
    holder.execute("ROLLBACK")
    holder.close()
    async with asyncio.timeout(5):
        await house.threads.idle()
    assert await house.states() == ["done"]
