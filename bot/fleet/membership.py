"""Keep the lease of this process, release what dead processes held, and stop when the lease cannot be kept.

A process whose lease ends must have stopped before: others take over what it held. So it stops by its own clock when it
could not renew the lease for two thirds of it, whatever the database does meanwhile.

Renew the lease of this process on a thread with its own event loop and connection.

Whatever holds up the service's loop (imports, a slow call) or its database thread does not cost the lease. A process
that does nothing any more must lose it, so its work has to show now and then that it goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from bot.database import replicas
from bot.database.database import Database, Execute, LeaseSession, StorageError
from bot.database.replicas import LEASE_SECONDS, RENEW_SECONDS, SURE_SECONDS
from bot.database.wake_ups import Written

log = logging.getLogger(__name__)

AGAIN_SECONDS = 0.25  # between tries to renew while the database is away
STUCK_SECONDS = 30.0  # without a sign of work, after which a lease is not renewed

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # Linux's other one rests in a suspended machine


def passed_seconds() -> float:
    """Return seconds by a clock that goes on while the machine is suspended (clock_gettime(2))."""
    return time.clock_gettime(_CLOCK)


class LeaseThread:
    """The lease of this process and the thread that renews it. Both functions are called on that thread.

    `lost` is called once with the reason when the lease is over, also while the loop is held. `renewed` is called with
    the number of processes that have a lease.
    """

    def __init__(
        self,
        session: LeaseSession,
        lost: Callable[[str], None],
        renewed: Callable[[int], None],
        stuck_seconds: float = STUCK_SECONDS,
    ) -> None:
        self._session, self._lost, self._note_renewal = session, lost, renewed
        self._stuck_seconds = stuck_seconds
        self._renewed = self._worked = passed_seconds()
        self._is_lost = False
        self._loop: asyncio.AbstractEventLoop
        self._ended: asyncio.Event
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    @property
    def is_sure(self) -> bool:
        """Whether no other process can have taken over what this one holds, by a clock that goes on in a pause."""
        return not self._is_lost and passed_seconds() < self._renewed + SURE_SECONDS

    def note_work(self) -> None:
        """Say that the loop and the database work."""
        self._worked = passed_seconds()

    def start(self) -> None:
        """Renew from now on."""
        self._thread.start()
        self._begun.wait()

    def stop(self, seconds: float) -> None:
        """Renew no more; wait for so long until the connection is closed. It blocks."""
        with contextlib.suppress(RuntimeError):  # the thread has ended
            self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            asyncio.run(self._keep())
        except Exception:  # the boundary of the thread: a process that does not renew must end
            log.exception("lease.thread")
            self._lose("its thread failed")
        finally:
            self._begun.set()

    async def _keep(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        self._begun.set()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each, name="lease") for each in (self._renew(), self._watch())]
            await self._ended.wait()
            for task in tasks:
                task.cancel()
        await self._session.close()

    async def _renew(self) -> None:
        while not self._is_lost:
            began = passed_seconds()
            if began > self._worked + self._stuck_seconds:
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            try:
                if living := await self._session.renew():
                    self._renewed = began
                    self._note_renewal(living)
                    await asyncio.sleep(RENEW_SECONDS)
                else:
                    self._lose("it was not renewed in time")
            except StorageError as error:
                log.warning("replica.not_renewed reason=%s", error)
                await asyncio.sleep(AGAIN_SECONDS)

    async def _watch(self) -> None:
        """Give up by this machine's clock, whatever the database does."""
        while True:
            left = self._renewed + SURE_SECONDS - passed_seconds()
            if left <= 0:
                break
            await asyncio.sleep(left)
        stuck = passed_seconds() > self._worked + self._stuck_seconds
        self._lose("this process does nothing any more" if stuck else "the database could not be reached")

    def _lose(self, why: str) -> None:
        if not self._is_lost:
            self._is_lost = True
            log.critical("replica.lease_lost reason=%s", why)
            self._lost(why)


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
