"""Rewrite the databases after somebody was forgotten: deleted rows stay readable in free pages.

Other work waits meanwhile, so a large database waits for a moment of the night in which no turn works
([decision 77](docs/decisions/0077-compaction-at-night.md)).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from zoneinfo import ZoneInfo

from bot.current import Current
from bot.jobs import Effect
from bot.storage.database import Database, Execute
from bot.storage.jobs import BackgroundJob, enqueue_job
from bot.storage.runs import has_open_run

log = logging.getLogger(__name__)

COMPACT_JOB = "compact"
SMALL_BYTES = 3 << 20  # it takes less than 100 ms
FIRST_HOUR, END_HOUR = 2, 5  # of the night, in the time zone of the configuration
LAST_MINUTES = 10  # of the night: then it does not wait for turns any more
RETRY_SECONDS = 60.0


async def compact_small(store: Database, databases: Sequence[Database], zone: str) -> bool:
    """Compact the small databases now, and enqueue the job for the others; return whether there are no others."""
    sizes = [await database.size() for database in databases]
    for database, size in zip(databases, sizes, strict=True):
        if size <= SMALL_BYTES:
            await database.compact()
    if is_whole := max(sizes) <= SMALL_BYTES:
        return is_whole
    work = partial(enqueue_job, key=COMPACT_JOB, kind=COMPACT_JOB, payload={}, due=next_night(time.time(), zone))
    await store.run(work)
    return False


def next_night(now: float, zone: str) -> float:
    """Return when the next night begins, in unix time; `now` if it is night."""
    here = datetime.fromtimestamp(now, ZoneInfo(zone) if zone else None)
    if FIRST_HOUR <= here.hour < END_HOUR:
        return now
    day = here if here.hour < FIRST_HOUR else here + timedelta(days=1)
    return day.replace(hour=FIRST_HOUR, minute=0, second=0, microsecond=0).timestamp()


def must_compact(now: float, zone: str) -> bool:
    """Return whether the night is nearly over, so that even turns at work have to wait."""
    here = datetime.fromtimestamp(now, ZoneInfo(zone) if zone else None)
    return here.hour == END_HOUR - 1 and here.minute >= 60 - LAST_MINUTES


@dataclass(frozen=True, slots=True)
class CompactionJobs:
    """Handles the job that compacts all databases. The first one is the store."""

    databases: tuple[Database, ...]
    current: Current

    async def compact(self, job: BackgroundJob) -> Effect | None:
        """Compact if nobody has to wait for it, else try again."""
        now, zone = time.time(), self.current.config.time_zone
        due = next_night(now, zone)
        if due == now and not must_compact(now, zone) and await self.databases[0].run(has_open_run):
            due = now + RETRY_SECONDS
        if due > now:
            return partial(_again, job=job, due=due)
        begun = time.monotonic()
        for database in self.databases:
            await database.compact()
        log.info("compact.done seconds=%.1f", time.monotonic() - begun)
        return None


def _again(execute: Execute, job: BackgroundJob, due: float) -> None:
    enqueue_job(execute, key=job.key, kind=job.kind, payload={}, due=due)
