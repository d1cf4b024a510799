"""Of several processes, one listens to an account; where it ends, or cannot reach the database, another one does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from bot.base.leases import Leases
from bot.database.database import Database, Execute
from bot.service.channel_supervisor import ChannelSupervisor
from bot.storage import leases
from channels.base import NO_CATCH_UP, CatchUpSource, Channel, ChannelError, Receive
from tests.fakes.server import until
from tests.support.postgres_sessions import die, session
from tests.unit.bot.test_channel_supervisor import console_ended, no_state, receive
from tests.unit.bot.test_outbox import RecordingChannel


def take(store: Database, execute: Execute) -> set[str]:
    return leases.take_leases(execute, store.me, ("listen a", "listen b"))


async def test_a_lease_is_one_living_process_s(pair: tuple[Database, Database]) -> None:
    one, two = pair
    assert await one.run(lambda execute: leases.take_leases(execute, one.me, ["listen a"])) == {"listen a"}
    assert await two.run(partial(take, two)) == {"listen b"}
    assert await one.run(partial(take, one)) == {"listen a"}
    await one.run(lambda execute: leases.release_lease(execute, one.me, "listen b"))  # not its own
    await die(two, one)
    assert await one.run(partial(take, one)) == set()
    assert await two.run(partial(take, two)) == {"listen a", "listen b"}


class Listener(RecordingChannel):
    """A channel that notes when it listens. `error` ends its first listening."""

    name = "wall"

    def __init__(self, label: str, events: list[str], error: ChannelError | None = None) -> None:
        super().__init__()
        self.label, self.events, self.error = label, events, error

    async def listen(self, receive: Receive, past: CatchUpSource = NO_CATCH_UP) -> None:
        self.events.append(f"{self.label} listens")
        if self.error:
            error, self.error = self.error, None
            raise error
        try:
            await asyncio.Event().wait()
        finally:
            self.events.append(f"{self.label} ends")


class OnlyListener(Listener):
    """One that can post only where it listens."""

    posts_by_listening = True


@asynccontextmanager
async def connect(channel: Channel) -> AsyncIterator[Channel]:
    yield channel


class Process:
    """The channels of a process, and its leases."""

    def __init__(self, store: Database, channel: Channel) -> None:
        self.leases = Leases(store, unsure_seconds=4.0)
        connects = {"wall": partial(connect, channel)}
        self.supervisor = ChannelSupervisor(connects, console_ended, list, no_state, self.leases)
        self._tasks = [
            asyncio.create_task(self.supervisor.serve(receive, NO_CATCH_UP)),
            asyncio.create_task(self.leases.serve()),
        ]

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)


@pytest.mark.parametrize("kind", [Listener, OnlyListener])
async def test_one_process_listens_and_the_next_one_when_it_stops(
    pair: tuple[Database, Database], kind: type[Listener]
) -> None:
    events: list[str] = []
    a = Process(pair[0], kind("a", events))
    await until(lambda: events == ["a listens"], what="a listener")
    b = Process(pair[1], kind("b", events))
    posts = kind is Listener
    await until(
        lambda: ("wall" in b.supervisor.channels) is posts and b.supervisor.stands_by("wall"), what="a stand-by"
    )
    await until(lambda: b.supervisor.without() == ([] if posts else ["wall"]), what="what it leaves to the other")
    assert not a.supervisor.stands_by("wall")
    a.supervisor.stop_listening()
    if not posts:  # it stays connected for the last replies, and nobody else can post
        await asyncio.sleep(0)
        await a.end()
    await until(lambda: events == ["a listens", "a ends", "b listens"], what="the next listener")
    assert b.supervisor.without() == []
    await b.end()
    if posts:
        await a.end()


async def test_a_process_that_cannot_listen_leaves_it_to_another(pair: tuple[Database, Database]) -> None:
    events: list[str] = []
    a = Process(pair[0], Listener("a", events, ChannelError("the platform is away")))
    await until(lambda: "a listens" in events, what="a listener")
    b = Process(pair[1], Listener("b", events))
    await until(lambda: "b listens" in events or events.count("a listens") == 2, what="the next one")
    await a.end()
    await until(lambda: events[-1] == "b listens", what="the other one")
    await b.end()


async def test_a_dead_process_s_accounts_are_taken_and_it_notices(pair: tuple[Database, Database]) -> None:
    events: list[str] = []
    a = Process(pair[0], Listener("a", events))
    await until(lambda: events == ["a listens"], what="a listener")
    b = Process(pair[1], Listener("b", events))
    await die(pair[1], pair[0])
    await until(lambda: {*events} == {"a listens", "a ends", "b listens"}, what="the take-over")
    for each in (a, b):
        await each.end()


async def test_a_process_that_the_database_does_not_answer_stops_listening(
    url: str, pair: tuple[Database, Database]
) -> None:
    events: list[str] = []
    a = Process(pair[0], Listener("a", events))
    await until(lambda: events == ["a listens"], what="a listener")
    with session(url) as holder:
        holder.execute("LOCK TABLE leases")
        await until(lambda: events[-1] == "a ends", what="the end")
        holder.rollback()
    await until(lambda: events[-1] == "a listens", what="a listener again")
    with suppress(asyncio.CancelledError):
        await a.end()


async def test_a_process_that_works_alone_asks_nobody(tmp_path: Path) -> None:
    events: list[str] = []
    a = Process(Database(tmp_path / "none.db"), Listener("a", events))  # it is never opened
    await until(lambda: events == ["a listens"], what="a listener")
    assert a.leases.has("listen wall")
    await a.end()
