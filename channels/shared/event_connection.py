"""Keep one connection for events: a lost one is replaced, and no event waits for another's commit."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from functools import partial
from typing import Generic, TypeVar

import aiohttp

from channels.base import ChannelError
from channels.shared.health import ConnectionHealth

STEADY_SECONDS = 30.0  # a connection that lasts longer did not fail
MAX_BACKOFF_SECONDS = 30.0  # between two connections

H = TypeVar("H")  # what handles one event


class EventConnection(ABC, Generic[H]):
    """One connection of an account; `platform` names it in sentences, `name` in the log."""

    def __init__(self, name: str, platform: str, log: logging.Logger) -> None:
        self.health = ConnectionHealth(name, log)
        self._platform = platform

    async def run(self, handle_event: H) -> None:
        """Pass events to `handle_event` until cancelled, in the order of arrival."""
        async with asyncio.TaskGroup() as handlers:
            await self.health.supervise(partial(self._try_to_connect, handle_event, handlers), STEADY_SECONDS)

    async def _try_to_connect(self, handle_event: H, handlers: asyncio.TaskGroup) -> tuple[str, float]:
        try:
            return await self._connect_once(handle_event, handlers)
        except (ChannelError, aiohttp.ClientError, OSError) as error:
            return f"The {self._platform} connection failed ({error or type(error).__name__}).", MAX_BACKOFF_SECONDS

    @abstractmethod
    async def _connect_once(self, handle_event: H, handlers: asyncio.TaskGroup) -> tuple[str, float]:
        """Serve one connection, whose events are handled in tasks of `handlers`.

        Returns why it ended, and the longest time to wait before the next one.
        """
