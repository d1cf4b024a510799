"""Overwrite what databases still have of deleted rows, and give free pages back: in small steps, while others work.

A process that reads the database (`fawn export`) keeps the write-ahead log from being emptied. Then a job tries again
until it has finished ([decision 84](docs/decisions/0084-overwriting-in-steps.md)).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from bot.service.jobs import Effect
from bot.storage.database import Database
from bot.storage.jobs import BackgroundJob, enqueue_job

log = logging.getLogger(__name__)

OVERWRITE_JOB = "overwrite"
RETRY_SECONDS = 30.0
FREE_PAGES_JOB = "free_pages"
FREE_PAGES_SECONDS = 3600.0  # between two rounds


async def overwrite_deleted(databases: Sequence[Database]) -> bool:
    """Overwrite all databases. False: another process reads one of them."""
    begun = time.monotonic()
    done = [await database.overwrite_deleted() for database in databases]
    log.info("overwrite.done complete=%s seconds=%.1f", all(done), time.monotonic() - begun)
    return all(done)


async def overwrite_now(databases: Sequence[Database]) -> bool:
    """Overwrite all databases, or enqueue the job that does it when nobody else reads; return whether it is done."""
    if await overwrite_deleted(databases):
        return True
    await databases[0].run(partial(_enqueue, due=time.time() + RETRY_SECONDS))
    return False


_enqueue = partial(enqueue_job, key=OVERWRITE_JOB, kind=OVERWRITE_JOB, payload={})


@dataclass(frozen=True, slots=True)
class OverwriteJobs:
    """Handles the job that overwrites later, and the one that gives back what retention has freed."""

    databases: tuple[Database, ...]

    async def overwrite(self, job: BackgroundJob) -> Effect | None:
        """Overwrite, or try again in a while."""
        if await overwrite_deleted(self.databases):
            return None
        return partial(_enqueue, due=time.time() + RETRY_SECONDS)

    async def free_pages(self, _: BackgroundJob) -> None:
        """Make the files smaller where many pages are free."""
        for database in self.databases:
            await database.free_pages()
