"""Keep one connection for events: a lost one is replaced, and no event waits for another's commit.

Report the health of the connection.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, NoReturn, TypeVar

import aiohttp

from agent.backoff import backoff_seconds
from channels.base import ChannelError, Health, Readiness


class ConnectionHealth:
    """The health of a connection. Each change is logged once, under the channel's `name`."""

    def __init__(self, name: str, log: logging.Logger) -> None:
        self._name = name
        self._log = log
        self._now = Readiness(Health.STARTING, time.time())
        self.failures = 0  # in a row
        self.ready_at = 0.0  # time.monotonic() at which the present connection became READY, 0 before

    @property
    def now(self) -> Readiness:
        return self._now

    @property
    def is_ready(self) -> bool:
        return self._now.health is Health.READY

    async def supervise(self, connect: Callable[[], Awaitable[tuple[str, float]]], steady_seconds: float) -> NoReturn:
        """Make one connection after the other until cancelled.

        `connect` returns when its connection has ended: why, and the longest time to wait before the next one. One that
        was READY for `steady_seconds` did not fail: it is replaced at once.
        """
        while True:
            self.ready_at = 0.0
            detail, max_wait_seconds = await connect()
            if self.ready_at and time.monotonic() - self.ready_at > steady_seconds:
                self.failures = 0
                self.set_health(Health.DOWN, detail)
            else:
                await asyncio.sleep(self.note_failure(detail, max_wait_seconds))

    def note_failure(self, detail: str, max_wait_seconds: float) -> float:
        """Count a failure, DOWN if it has a `detail`. Returns the seconds to wait before the next attempt."""
        self.failures += 1
        if detail:
            self.set_health(Health.DOWN, detail)
        return backoff_seconds(self.failures, max_wait_seconds)

    def set_health(self, health: Health, detail: str = "", *, usual: bool = False) -> None:
        """Record the health, with the account if it is READY, else with a sentence.

        A `usual` interruption logs no warning.
        """
        if health is Health.READY:
            self.ready_at = self.ready_at or time.monotonic()
        if (health, detail) == (self._now.health, self._now.detail):
            return
        self._now = Readiness(health, time.time(), detail)
        if usual:
            self._log.info("%s.reconnecting", self._name)
        elif health is Health.DOWN:
            self._log.warning("%s.down reason=%s", self._name, detail)
        else:
            self._log.info("%s.%s", self._name, health)


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
