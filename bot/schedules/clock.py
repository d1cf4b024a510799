"""The clock of the schedules: it looks when the next one is due, and when one has changed.

The rows are the truth (`bot/storage/schedules.py`). APScheduler only keeps the time of the next look.
"""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from agent.imports import import_in_thread
from bot.base.background import run_forever
from bot.database.database import Database
from bot.database.wake_ups import Written
from bot.rights.current import Current
from bot.schedules.firing import fire_due

if TYPE_CHECKING:
    from apscheduler.job import Job  # type: ignore[import-untyped]  # it has no stubs

LOOK_SECONDS = 30.0  # between looks without a wake-up; a clock that was set, and a busy schedule, are noticed then


class ScheduleClock:
    """Fires schedules."""

    def __init__(self, store: Database, current: Current) -> None:
        self._store = store
        self._current = current
        self._wake = store.listen(Written.SCHEDULE)
        self._is_first_look = True

    async def serve(self) -> None:
        """Fire until cancelled."""
        logging.getLogger("apscheduler").setLevel(logging.WARNING)  # it logs every look
        module = await import_in_thread("apscheduler.schedulers.asyncio")
        clock = module.AsyncIOScheduler(timezone=UTC)
        clock.start()
        job = clock.add_job(self._tick, "interval", seconds=LOOK_SECONDS, coalesce=True, misfire_grace_time=None)
        try:
            await run_forever("schedules", partial(self._look, job))
        finally:
            clock.shutdown(wait=False)

    async def _tick(self) -> None:
        self._wake.set()

    async def _look(self, job: Job) -> None:
        self._wake.clear()
        now = time.time()
        grace = self._current.config.schedules.grace_minutes * 60
        first = self._is_first_look
        look = partial(fire_due, access=self._current.access, now=now, grace_seconds=grace, at_start=first)
        next_at = await self._store.run(look)
        self._is_first_look = False
        if next_at is not None and next_at < now + LOOK_SECONDS:
            job.modify(next_run_time=datetime.fromtimestamp(max(next_at, now), UTC))
        await self._wake.wait()
