"""Run the channels: restart each one that fails, and isolate the others."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, NoReturn

from agent.messages import Message, Unreadable
from agent.spans import SpanKind, note_event
from bot.base.background import run_forever
from bot.base.leases import Leases
from bot.config.schema import ChannelConfig
from bot.database.web_people import WEB
from channels.base import (
    CatchUpSource,
    Channel,
    ChannelError,
    CommandInfo,
    Fenced,
    ListenerPosts,
    Receipt,
    Receive,
    Refused,
    StateKeeper,
    StateStore,
)
from sandbox.named_code import find_misfit

log = logging.getLogger(__name__)

LOCAL = ("console", WEB)  # each process listens there
CHANGED_SECONDS = 10.0  # between two looks whether there are other commands

Connect = Callable[[], AbstractAsyncContextManager[Channel]]


def connector_of(entry: ChannelConfig) -> Connect:
    """Return what connects a platform by its settings."""
    return partial(importlib.import_module(entry.module).connect, entry.settings)


class ChannelSupervisor:
    """Connects every channel and listens. `channels` holds those that are connected.

    Of several processes, one listens to an account; the others stand by. They post, too, unless only that one can.
    """

    def __init__(
        self,
        connects: Mapping[str, Connect],
        on_console_end: Callable[[], Awaitable[None]],
        list_commands: Callable[[], Sequence[CommandInfo]],
        open_state: Callable[[str], StateStore],
        leases: Leases | None = None,
    ) -> None:
        self.channels: dict[str, Channel] = {}
        self.names = tuple(connects)
        self._connects = dict(connects)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._begin: Callable[[str], None] = lambda _name: None  # while it serves: starts a channel's task
        self._on_console_end = on_console_end
        self._list_commands = list_commands
        self._open_state = open_state
        self._listening: dict[str, asyncio.Task[None]] = {}
        self._stopped = False
        self._leases = leases  # of this process; None: it listens to every account
        self._by_listening: set[str] = set()  # channels that only the listening process can post to

    def stands_by(self, name: str) -> bool:
        """Return whether another process listens there, or is about to."""
        return bool(self._leases and name not in LOCAL and not self._leases.has(_lease_of(name)))

    def without(self) -> list[str]:
        """Return the channels that only another process can post to."""
        return [name for name in self._by_listening if name not in self.channels and self.stands_by(name)]

    async def serve(self, receive: Receive, catch_up: CatchUpSource) -> None:
        """Run until cancelled; the channels then disconnect."""
        async with asyncio.TaskGroup() as group:

            def begin(name: str) -> None:
                step = partial(self._run_channel, name, self._connects[name], receive, catch_up)
                run = _run_after(self._tasks.get(name), f"channel {name}", step)
                self._tasks[name] = group.create_task(run, name=f"channel {name}")

            self._begin = begin
            for name in self._connects:
                begin(name)

    def reconnect(self, name: str, connect: Connect) -> None:
        """End the connection of a channel and connect it by another function, such as one with another token.

        What people write meanwhile is read from the platform as after a start; replies go on over the new connection.
        """
        self._connects[name] = connect
        if name in self._tasks and not self._stopped:
            log.info("channel.replaced name=%s", name)
            self._tasks[name].cancel()
            self._begin(name)

    def stop_listening(self) -> None:
        """Accept no more events. The channels stay connected, so that the last replies are delivered.

        Where only one process can be connected, another one takes over, and posts what is still to be said there.
        """
        self._stopped = True
        for name, listening in self._listening.items():
            if name in self._by_listening and self._leases and self._leases.is_shared:
                self._tasks[name].cancel()
            else:
                listening.cancel()

    async def _run_channel(self, name: str, connect: Connect, receive: Receive, catch_up: CatchUpSource) -> None:
        """Connect a channel and listen, while this process has the lease where there are several."""
        async with connect() as channel:
            check_parts(name, channel)
            listen = partial(self._listen, channel, _noting(name, receive), catch_up)
            by_listening = isinstance(channel, ListenerPosts) and channel.posts_by_listening
            if name in LOCAL or not self._leases or (by_listening and self._leases.has(_lease_of(name))):
                await self._serve_channel(channel, listen)
            elif not by_listening:
                await self._serve_channel(channel, partial(self._leases.run, _lease_of(name), listen))
        self._by_listening.add(name)
        again = partial(self._run_channel, name, connect, receive, catch_up)
        await self._leases.run(_lease_of(name), again)  # it connects only with the lease

    async def _serve_channel(self, channel: Channel, listen: Callable[[], Coroutine[Any, Any, None]]) -> NoReturn:
        """Listen, and stay connected afterwards, until cancelled. Raises the error that ended the channel."""
        name = channel.name
        if isinstance(channel, Fenced) and self._leases:
            channel.fence(self._leases.may_act)
        if isinstance(channel, StateKeeper):
            channel.keep_state(self._open_state(name))
        listening = asyncio.create_task(listen(), name=f"listen {name}")
        self.channels[name], self._listening[name] = channel, listening
        if self._stopped:
            listening.cancel()
        try:
            await asyncio.wait({listening})
            if not self._stopped:
                await self._check_listening(name, listening)
            while True:
                await asyncio.Event().wait()  # stay connected until cancelled
        finally:
            del self.channels[name], self._listening[name]
            listening.cancel()

    async def _listen(self, channel: Channel, receive: Receive, catch_up: CatchUpSource) -> None:
        announcing = asyncio.create_task(
            run_forever(f"commands of {channel.name}", partial(self._announce, channel)),
            name=f"announce {channel.name}",
        )
        try:
            await channel.listen(receive, catch_up)
        finally:
            announcing.cancel()

    async def _announce(self, channel: Channel) -> None:
        """Announce the commands, and again when there are others: skills and servers come and go.

        What a platform refuses is not tried again: the channel works without its list of commands.
        """
        said: list[CommandInfo] | None = None
        while True:
            if (commands := list(self._list_commands())) != said:
                said = commands
                try:
                    await channel.announce(commands)
                except ChannelError as error:
                    log.warning("channel.announce name=%s reason=%s", channel.name, error)
            await asyncio.sleep(CHANGED_SECONDS)

    async def _check_listening(self, name: str, listening: asyncio.Task[None]) -> None:
        """Raise the error that ended the channel. Only a console may end without one."""
        if listening.cancelled() or (name != "console" and not listening.exception()):
            raise ChannelError("the channel stopped listening")
        listening.result()
        await self._on_console_end()


def check_parts(name: str, channel: Channel) -> None:
    """Raise Refused where the channel of this section lacks what the service calls."""
    if misfit := find_misfit(channel, Channel):
        raise Refused(f"the channel {name} {misfit}: docs/channels.md says what a channel does")
    if channel.name != name:  # its messages would have no access rules
        raise Refused(f"the channel {name} calls itself {channel.name}: its `name` must be that of its section")


def _lease_of(name: str) -> str:
    return f"listen {name}"


async def _run_after(before: asyncio.Task[None] | None, name: str, step: Callable[[], Awaitable[None]]) -> None:
    """Run `step` forever once the task `before` has ended: no two connections of a channel work at once."""
    if before:
        await asyncio.wait({before})
    await run_forever(name, step)


def _noting(channel: str, receive: Receive) -> Receive:
    """Return `receive`, which also reports each event."""

    async def received(events: Sequence[Message | Unreadable]) -> list[Receipt]:
        receipts = await receive(events)
        for receipt in receipts:
            note_event(SpanKind.EVENT, channel, outcome=receipt)
        return receipts

    return received
