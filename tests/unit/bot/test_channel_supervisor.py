"""Channels under supervision: a failure restarts one and no other, and a shutdown disconnects last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import pytest

from bot.service.channel_supervisor import ChannelSupervisor
from channels.base import NO_CATCH_UP, CatchUpSource, ChannelError, CommandInfo, Receipt, Receive, StateStore
from tests.fakes.server import until
from tests.unit.bot.test_outbox import RecordingChannel


class FailingChannel(RecordingChannel):
    """A channel that records `events`. If it `fails`, it stops listening once, with `error` or without."""

    def __init__(self, name: str, events: list[str], error: BaseException | None = None, fails: bool = False) -> None:
        super().__init__()
        self.name = name
        self._events, self._error, self._fails = events, error, fails

    async def listen(self, receive: Receive, past: CatchUpSource = NO_CATCH_UP) -> None:
        self._events.append(f"{self.name} listens")
        if self._fails:
            self._fails = False
            if self._error:
                raise self._error
            return
        try:
            await asyncio.Event().wait()
        finally:
            self._events.append(f"{self.name} listens no more")


@asynccontextmanager
async def connect(
    channel: FailingChannel, events: list[str], error: Exception | None = None
) -> AsyncIterator[RecordingChannel]:
    yield channel
    events.append(f"{channel.name} disconnects")
    if error:
        raise error


async def receive(events: object) -> list[Receipt]:
    return []


async def console_ended() -> None:
    raise AssertionError


def no_state(name: str) -> StateStore:
    raise AssertionError(name)


@pytest.mark.parametrize("error", [None, OSError("away"), asyncio.CancelledError()])
async def test_a_channel_that_ends_is_restarted_and_no_other(error: BaseException | None) -> None:
    events: list[str] = []
    failing, steady = FailingChannel("failing", events, error, fails=True), FailingChannel("steady", events)
    connects = {each.name: partial(connect, each, events) for each in (failing, steady)}
    supervisor = ChannelSupervisor(connects, console_ended, list, no_state)
    serving = asyncio.create_task(supervisor.serve(receive, NO_CATCH_UP))
    await until(lambda: events.count("failing listens") == 2, what="the restart")
    assert supervisor.channels == {"failing": failing, "steady": steady}
    assert events.count("steady listens") == 1
    serving.cancel()
    await asyncio.wait([serving])


async def test_channels_stay_connected_after_they_stopped_listening() -> None:
    events: list[str] = []
    channel = FailingChannel("wall", events)
    failing_to_close = partial(connect, channel, events, OSError("away"))
    supervisor = ChannelSupervisor({"wall": failing_to_close}, console_ended, list, no_state)
    serving = asyncio.create_task(supervisor.serve(receive, NO_CATCH_UP))
    await until(lambda: "wall listens" in events, what="a connection")
    supervisor.stop_listening()
    await until(lambda: events[-1] == "wall listens no more", what="the end of listening")
    assert supervisor.channels == {"wall": channel}
    serving.cancel()
    async with asyncio.timeout(60):
        await asyncio.wait([serving])
    assert not supervisor.channels
    assert serving.cancelled()


async def test_commands_are_announced_again_when_there_are_others_and_only_then() -> None:
    told: list[list[str]] = []
    looks = 0

    class Telling(FailingChannel):
        async def announce(self, commands: Sequence[CommandInfo]) -> None:
            told.append([command.name for command in commands])
            if len(told) == 1:
                raise ChannelError("the platform is away")

    names = ["help"]

    def list_commands() -> list[CommandInfo]:
        nonlocal looks
        looks += 1
        return [CommandInfo(name, "…") for name in names]

    events: list[str] = []
    channel = Telling("wall", events)
    supervisor = ChannelSupervisor({"wall": partial(connect, channel, events)}, console_ended, list_commands, no_state)
    serving = asyncio.create_task(supervisor.serve(receive, NO_CATCH_UP))
    await until(lambda: looks >= 2, what="a second look")
    assert told == [["help"]]
    names.append("modern_review")
    await until(lambda: len(told) == 2, what="the new command")
    names.remove("modern_review")
    await until(lambda: len(told) == 3, what="the end of a command")
    assert told[1:] == [["help", "modern_review"], ["help"]]
    serving.cancel()
    await asyncio.wait([serving])


async def test_the_end_of_the_console_is_reported_and_leaves_it_connected() -> None:
    events: list[str] = []
    ended = asyncio.Event()

    async def console_ended() -> None:
        ended.set()

    console = FailingChannel("console", events, fails=True)
    supervisor = ChannelSupervisor({"console": partial(connect, console, events)}, console_ended, list, no_state)
    serving = asyncio.create_task(supervisor.serve(receive, NO_CATCH_UP))
    async with asyncio.timeout(60):
        await ended.wait()
    assert supervisor.channels == {"console": console}
    serving.cancel()
    await asyncio.wait([serving])


async def test_another_connection_begins_when_the_one_before_has_ended() -> None:
    events: list[str] = []
    old, new = FailingChannel("one", events), FailingChannel("one", events)
    supervisor = ChannelSupervisor({"one": partial(connect, old, events)}, console_ended, list, no_state)
    async with asyncio.timeout(60):
        serving = asyncio.create_task(supervisor.serve(receive, NO_CATCH_UP))
        await until(lambda: supervisor.channels.get("one") is old, what="the old one")
        supervisor.reconnect("one", partial(connect, new, events))
        await until(lambda: supervisor.channels.get("one") is new, what="the new one")
        assert events == ["one listens", "one listens no more", "one listens"]
        serving.cancel()
        await asyncio.wait({serving})


async def test_another_connection_does_not_wait_for_the_backoff_of_the_one_before() -> None:
    events: list[str] = []
    old = FailingChannel("one", events)

    @asynccontextmanager
    async def refused() -> AsyncIterator[RecordingChannel]:
        events.append("refused")
        if events:
            raise ChannelError("the token is refused")
        yield old

    supervisor = ChannelSupervisor({"one": refused}, console_ended, list, no_state)
    async with asyncio.timeout(60):
        serving = asyncio.create_task(supervisor.serve(receive, NO_CATCH_UP))
        await until(lambda: len(events) >= 3, what="a long backoff")
        new = FailingChannel("one", events)
        supervisor.reconnect("one", partial(connect, new, events))
        await until(lambda: supervisor.channels.get("one") is new, 3.0, "the new one")  # before the third backoff ends
        serving.cancel()
        await asyncio.wait({serving})
