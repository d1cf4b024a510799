"""Overwrite what the database still has of deleted rows, and give free pages back: in small steps, while others work.

A process that reads the database (`fawn export`) keeps the write-ahead log from being emptied. Then a job tries again
until it has finished ([decision 84](docs/decisions/0084-overwriting-in-steps.md)).
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from functools import partial

from bot.base.jobs import Effect
from bot.database.database import Database
from bot.storage.jobs import BackgroundJob, enqueue_job

log = logging.getLogger(__name__)

OVERWRITE_JOB = "overwrite"
RETRY_SECONDS = 30.0
FREE_PAGES_JOB = "free_pages"
FREE_PAGES_SECONDS = 3600.0  # between two rounds


async def overwrite_deleted(store: Database) -> bool:
    """Overwrite what the database has of deleted rows. False: another process reads it."""
    begun = time.monotonic()
    is_done = await store.overwrite_deleted()
    log.info("overwrite.done complete=%s seconds=%.1f", is_done, time.monotonic() - begun)
    return is_done


async def overwrite_now(store: Database) -> bool:
    """Overwrite, or enqueue the job that does it when nobody else reads; return whether it is done."""
    if await overwrite_deleted(store):
        return True
    await store.run(partial(_enqueue, due=time.time() + RETRY_SECONDS))
    return False


_enqueue = partial(enqueue_job, key=OVERWRITE_JOB, kind=OVERWRITE_JOB, payload={})


@dataclass(frozen=True, slots=True)
class OverwriteJobs:
    """Handles the job that overwrites later, and the one that gives back what retention has freed."""

    store: Database

    async def overwrite(self, job: BackgroundJob) -> Effect | None:
        """Overwrite, or try again in a while."""
        if await overwrite_deleted(self.store):
            return None
        return partial(_enqueue, due=time.time() + RETRY_SECONDS)

    async def free_pages(self, _: BackgroundJob) -> None:
        """Make the file smaller if many of its pages are free."""
        await self.store.free_pages()
