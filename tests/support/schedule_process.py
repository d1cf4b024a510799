"""Fire schedules as a further process: `python -m tests.support.schedule_process FOLDER BEGIN STEPS`.

It looks STEPS times, as if every look came a minute after the last one, and prints how many reminders it posted.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path

from bot.config.schema import AccessConfig
from bot.database.database import Database
from bot.rights.access import AccessPolicy
from bot.schedules.firing import fire_due


async def main(folder: Path, begin: float, steps: int) -> None:
    access = AccessPolicy({"telegram": AccessConfig(open=True)})
    print("ready", flush=True)
    sys.stdin.readline()
    async with Database(folder / "fawn.db", busy_timeout_seconds=30) as store:
        for step in range(1, steps + 1):
            look = partial(fire_due, access=access, now=begin + 60.0 * step, grace_seconds=3600.0)
            while (next_at := await store.run(look, durable=False)) is not None and next_at <= begin + 60.0 * step:
                pass


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])))
