"""Run background jobs until the process is killed: `python -m tests.support.job_process FOLDER`.

A job appends a line to FOLDER/begun, waits for the file FOLDER/go, and then stores a title in the transaction that ends
it.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from bot.base.background import Effect, JobWorker
from bot.database.database import Database
from bot.storage.conversations import set_title
from bot.storage.jobs import BackgroundJob, release_stale_jobs
from tests.fakes.server import until


async def main(folder: Path) -> None:
    async def handle(job: BackgroundJob) -> Effect:
        with (folder / "begun").open("a") as begun:
            begun.write(f"{job.attempts}\n")
        await until((folder / "go").exists, 60, "the file")
        return lambda execute: set_title(execute, job.arguments["conversation"], "made")

    async with Database(folder / "fawn.db") as store:
        await store.run(release_stale_jobs)
        worker = JobWorker(store)
        worker.register("slow", handle)
        await worker.serve()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
