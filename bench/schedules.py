"""Measure schedules: the idle cost of 10,000, and a minute in which all of them fire. `python -m bench.schedules`."""

from __future__ import annotations

import argparse
import asyncio
import resource
import tempfile
import time
from functools import partial
from pathlib import Path

from bot.config.schema import AccessConfig, ChannelConfig, Config
from bot.database.database import Database, Execute
from bot.database.migrate import migrate_database
from bot.rights.current import Current
from bot.schedules.firing import BATCH, ScheduleClock, fire_due
from tests.support.schedule_rows import add_schedule

GOAL_PERCENT = 0.1


def fill(execute: Execute, count: int, now: float) -> None:
    """Store reminders that are due tomorrow, and ended schedules beside them."""
    for number in range(count):
        add_schedule(execute, now, owner=str(number), next_at=now + 86400)
        if number % 10 == 0:
            add_schedule(execute, now, owner=str(number), state="ended", next_at=now - 86400)


def spent() -> float:
    """Return the CPU seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def main(count: int, seconds: float) -> None:
    """Print the figures."""
    current = Current(Config(channels=(ChannelConfig("telegram", None, AccessConfig(open=True)),)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fawn.db"
        migrate_database(path)
        async with Database(path) as store:
            now = time.time()
            await store.run(partial(fill, count=count, now=now))
            clock = asyncio.create_task(ScheduleClock(store, current).serve())
            await asyncio.sleep(3)  # the imports
            before = spent()
            await asyncio.sleep(seconds)
            share = (spent() - before) / seconds * 100
            clock.cancel()
            await asyncio.wait([clock])
            print(f"{count} schedules, idle: {share:.3f} % of a core in {seconds:g} s (goal {GOAL_PERCENT} %)")
            look = partial(fire_due, access=current.access, now=now + 86400, grace_seconds=3600.0)
            began, looks = time.perf_counter(), 0
            while (next_at := await store.run(look)) is not None and next_at <= now + 86400:
                looks += 1
            took = time.perf_counter() - began
            print(f"all due at once: {took:.1f} s, {took / count * 1e3:.2f} ms each, {looks} looks of {BATCH}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=90.0)
    options = parser.parse_args()
    asyncio.run(main(options.count, options.seconds))
