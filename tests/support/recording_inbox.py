"""The in-memory inbox of the contract kit, and the part of the service that a rig needs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from channels.base import Channel, ChannelError, StateKeeper
from contracts.recording import Box as Box
from contracts.recording import Memory as Memory
from contracts.recording import Rows as Rows
from contracts.recording import listening as listening
from contracts.recording import until

log = logging.getLogger(__name__)


class Service:
    """The part of the service that a rig needs: it supervises a channel, and can be stopped and restarted."""

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[Channel]], box: Box) -> None:
        self._connect = connect
        self._box = box
        self._task: asyncio.Task[None] | None = None
        self._channel: Channel | None = None

    @property
    def channel(self) -> Channel:
        """The current channel."""
        assert self._channel, "nothing is connected"
        return self._channel

    async def begin(self) -> None:
        """Connect, and listen with the inbox."""
        self._channel = None
        self._task = task = asyncio.create_task(self._run(), name="service")
        await until(lambda: self._channel or task.done(), what="a channel")
        if task.done():
            await task

    async def end(self) -> None:
        """Close the channel. Raises the error with which it failed."""
        if self._task:
            self._task.cancel()
            await asyncio.wait({self._task})
            if not self._task.cancelled():
                self._task.result()

    async def _run(self) -> None:
        while True:
            try:
                async with self._connect() as channel:
                    if isinstance(channel, StateKeeper):
                        channel.keep_state(self._box)
                    self._channel = channel
                    await channel.listen(self._box.receive, self._box)
            except (ChannelError, OSError) as error:
                log.info("service.again reason=%s", error)
            await asyncio.sleep(0.1)
