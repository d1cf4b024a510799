"""Keep the lease of this process, release what dead processes held, and stop when the lease cannot be kept.

A process whose lease ends must have stopped before: others take over what it held. So it stops by its own clock when it
could not renew the lease for two thirds of it, whatever the database does meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from bot.storage import replicas
from bot.storage.database import Database, Execute, StorageError
from bot.storage.replicas import LEASE_SECONDS, RENEW_SECONDS, SURE_SECONDS

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0  # between looks for dead processes, and between tries to renew


def exit_timer(code: int) -> threading.Timer:
    """Return what ends this process before its lease ends, whatever still waits for something, once it is started."""
    timer = threading.Timer(LEASE_SECONDS - SURE_SECONDS, os._exit, (code,))
    timer.daemon = True
    return timer


class Replicas:
    """The lease of this process among those that share the database. `lost` is called once, when it is over.

    `release` releases what dead processes held, in the transaction that removes them. `count` gets the number of living
    processes, with each renewal.
    """

    def __init__(
        self,
        store: Database,
        release: Callable[[Execute], object],
        lost: Callable[[], None],
        count: Callable[[int], None] = lambda _processes: None,
    ) -> None:
        self.me = store.me
        self._count = count
        self._store, self._release, self._lost = store, release, lost
        self._renewed = time.monotonic()
        self._is_lost = False
        self._watching: asyncio.TimerHandle

    @property
    def is_sure(self) -> bool:
        """Whether no other process can have taken over what this one holds, by a clock that goes on in a pause."""
        return not self._is_lost and time.monotonic() < self._renewed + SURE_SECONDS

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Keep the lease in this context; at its end, release everything at once."""
        tasks = [asyncio.create_task(each, name="lease") for each in (self._renew(), self._bury())]
        self._watch()
        self._store.lease = self
        try:
            yield
        finally:
            self._watching.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            if self.is_sure:
                self._store.lease = None
                await self._leave()

    async def _renew(self) -> None:
        while not self._is_lost:
            began = time.monotonic()
            try:
                if living := await self._store.run(self._extend, durable=False, first=True):
                    self._renewed = began
                    self._count(living)
                    await asyncio.sleep(RENEW_SECONDS)
                    continue
                self._lose("it was not renewed in time")
            except StorageError as error:
                log.warning("replica.not_renewed reason=%s", error)
            await asyncio.sleep(LOOK_SECONDS)

    def _extend(self, execute: Execute) -> int:
        """Extend the lease. Returns how many processes have one; 0: this one has none any more."""
        return replicas.count_living(execute) if replicas.renew(execute, self.me) else 0

    def _watch(self) -> None:
        """Give up by this machine's clock, whatever the database does."""
        left = self._renewed + SURE_SECONDS - time.monotonic()
        if left <= 0:
            self._lose("the database could not be reached")
        else:
            self._watching = asyncio.get_running_loop().call_later(left, self._watch)

    async def _bury(self) -> None:
        """Release what dead processes held."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                if dead := await self._store.run(self._release_dead, durable=False):
                    log.warning("replica.dead ids=%s", ",".join(dead))
            except StorageError as error:
                log.warning("replica.not_released reason=%s", error)

    def _release_dead(self, execute: Execute) -> list[str]:
        if dead := replicas.forget_dead(execute):
            self._release(execute)
        return dead

    def _lose(self, why: str) -> None:
        if not self._is_lost:
            self._is_lost = True
            log.critical("replica.lease_lost reason=%s", why)
            self._lost()

    async def _leave(self) -> None:
        def leave(execute: Execute) -> None:
            replicas.leave(execute, self.me)
            self._release(execute)

        try:
            await self._store.run(leave)
        except StorageError as error:  # its lease ends by itself
            log.warning("replica.not_left reason=%s", error)
