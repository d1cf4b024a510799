"""Connection health of a channel."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import NoReturn

from agent.backoff import backoff_seconds
from channels.base import Health, Readiness


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
