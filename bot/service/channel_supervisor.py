"""Run the channels: restart each one that fails, and isolate the others."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial

from agent.messages import Message, Unreadable
from agent.spans import SpanKind, note_event
from bot.config.schema import ChannelConfig
from bot.service.background import run_forever
from channels.base import CatchUpSource, Channel, ChannelError, CommandInfo, Receipt, Receive, StateKeeper, StateStore

log = logging.getLogger(__name__)

CHANGED_SECONDS = 10.0  # between two looks whether there are other commands

Connect = Callable[[], AbstractAsyncContextManager[Channel]]


def connector_of(entry: ChannelConfig) -> Connect:
    """Return what connects a platform by its settings."""
    return partial(importlib.import_module(entry.module).connect, entry.settings)


class ChannelSupervisor:
    """Connects every channel and listens. `channels` holds those that are connected."""

    def __init__(
        self,
        connects: Mapping[str, Connect],
        on_console_end: Callable[[], Awaitable[None]],
        list_commands: Callable[[], Sequence[CommandInfo]],
        open_state: Callable[[str], StateStore],
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
        """Accept no more events. The channels stay connected, so that the last replies are delivered."""
        self._stopped = True
        for listening in self._listening.values():
            listening.cancel()

    async def _run_channel(self, name: str, connect: Connect, receive: Receive, catch_up: CatchUpSource) -> None:
        async with connect() as channel:
            if channel.name != name:  # its messages would have no access rules
                raise ChannelError(
                    f"the channel {name} calls itself {channel.name}: its `name` must be that of its section"
                )
            if isinstance(channel, StateKeeper):
                channel.keep_state(self._open_state(name))
            listening = asyncio.create_task(channel.listen(_noting(name, receive), catch_up), name=f"listen {name}")
            announcing = asyncio.create_task(
                run_forever(f"commands of {name}", partial(self._announce, channel)), name=f"announce {name}"
            )
            self.channels[name], self._listening[name] = channel, listening
            if self._stopped:
                listening.cancel()
            try:
                await asyncio.wait({listening})
                if not self._stopped:
                    await self._check_listening(name, listening)
                await asyncio.Event().wait()  # stay connected until cancelled
            finally:
                del self.channels[name], self._listening[name]
                listening.cancel()
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
