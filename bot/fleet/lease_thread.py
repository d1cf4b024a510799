"""Renew the lease of this process on a thread with its own event loop and connection.

Whatever holds up the service's loop (imports, a slow call) or its database thread does not cost the lease. A process
that does nothing any more must lose it, so its work has to show now and then that it goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable

from bot.database.database import LeaseSession, StorageError
from bot.database.replicas import RENEW_SECONDS, SURE_SECONDS

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
