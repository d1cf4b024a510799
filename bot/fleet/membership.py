"""Keep the lease of this process, release what dead processes held, and stop when the lease cannot be kept.

A process whose lease ends must have stopped before: others take over what it held. So it stops by its own clock when it
could not renew the lease for two thirds of it, whatever the database does meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from bot.database import replicas
from bot.database.database import Database, Execute, StorageError
from bot.database.replicas import LEASE_SECONDS, SURE_SECONDS
from bot.database.wake_ups import Written
from bot.fleet.lease_thread import STUCK_SECONDS, LeaseThread

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0  # between looks for dead processes
CLOSE_SECONDS = 2.0  # that the end waits for the thread of the lease


def exit_timer(code: int) -> threading.Timer:
    """Return what ends this process before its lease ends, whatever still waits for something, once it is started."""
    timer = threading.Timer(LEASE_SECONDS - SURE_SECONDS, os._exit, (code,))
    timer.daemon = True
    return timer


class Replicas:
    """The lease of this process among those that share the database. `lost` is called once, when it is over.

    It is called on the thread of the lease, which nothing holds up. `release` releases what dead processes held, in the
    transaction that removes them. `count` gets the number of living processes, with each renewal.
    """

    def __init__(
        self,
        store: Database,
        release: Callable[[Execute], object],
        lost: Callable[[], None],
        count: Callable[[int], None] = lambda _processes: None,
        stuck_seconds: float = STUCK_SECONDS,
    ) -> None:
        self.me = store.me
        self._store, self._release = store, release
        self._loop = asyncio.get_running_loop()
        self._has_predecessors = True
        self._lease = LeaseThread(
            store.lease_session(), lambda _why: lost(), lambda living: self._call(count, living), stuck_seconds
        )

    @property
    def is_sure(self) -> bool:
        """Whether no other process can have taken over what this one holds."""
        return self._lease.is_sure

    def _call(self, function: Callable[[int], None], value: Any) -> None:
        """Call a function on the loop, from another thread."""
        with contextlib.suppress(RuntimeError):  # it was closed
            self._loop.call_soon_threadsafe(function, value)

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Keep the lease in this context; at its end, release everything at once."""
        self._lease.start()
        burying = asyncio.create_task(self._bury(), name="bury")
        self._store.lease = self
        try:
            yield
        finally:
            burying.cancel()
            await asyncio.wait([burying])
            was_sure = self.is_sure
            await asyncio.to_thread(self._lease.stop, CLOSE_SECONDS)
            if was_sure:
                self._store.lease = None
                await self._leave()

    async def _bury(self) -> None:
        """Release what dead processes held."""
        wake = self._store.listen(Written.LEASE)
        while True:
            wake.clear()
            try:
                if dead := await self._store.run(self._release_dead, durable=False):
                    log.warning("replica.dead ids=%s", ",".join(dead))
                self._lease.note_work()
            except StorageError as error:
                log.warning("replica.not_released reason=%s", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await wake.wait()

    def _release_dead(self, execute: Execute) -> list[str]:
        dead = replicas.forget_dead(execute)
        if self._has_predecessors:
            earlier, self._has_predecessors = replicas.forget_predecessors(execute, self.me)
            dead += earlier
        if dead:
            self._release(execute)
        return dead

    async def _leave(self) -> None:
        def leave(execute: Execute) -> None:
            replicas.leave(execute, self.me)
            self._release(execute)

        try:
            await self._store.run(leave)
        except StorageError as error:  # its lease ends by itself
            log.warning("replica.not_left reason=%s", error)
