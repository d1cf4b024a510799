"""Measure jobs of procrastinate a second on the same server, beside `bench journeys`, where it is installed.

`pip install procrastinate`, by hand: Fawn does not depend on it. A job that does nothing is deferred, fetched and
finished by the process that deferred it, as a journey is; each process has as many callers as for journeys.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

NAME = "procrastinate"
SESSIONS = 8  # with the server, of one process: Fawn has one, and two for wake-ups
DONE = "SELECT count(*) FROM procrastinate_jobs WHERE queue_name=%s AND status='succeeded'"
PIDS = "SELECT pid FROM pg_stat_activity WHERE datname=current_database() AND backend_type='client backend'"


def version() -> str:
    """Return its version; "" where it is not installed."""
    return importlib.metadata.version(NAME) if importlib.util.find_spec(NAME) else ""


def _open(target: str) -> Any:
    package = importlib.import_module(NAME)
    return package.App(connector=package.PsycopgConnector(conninfo=target, min_size=SESSIONS, max_size=SESSIONS))


async def prepare(target: str) -> None:
    """Make its tables."""
    app = _open(target)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


class Jobs:
    """The jobs of one process: those of its own queue."""

    def __init__(self, app: Any, callers: int) -> None:
        self._app, self._callers, self._queue = app, callers, f"bench-{os.getpid()}"
        self._waiting: dict[str, asyncio.Event] = {}

        @app.task(name="nothing", queue=self._queue)  # type: ignore[untyped-decorator]  # it is imported when it is used
        async def nothing(name: str) -> None:
            self._waiting.pop(name).set()

        self._task = nothing

    async def run(self, seconds: float) -> int:
        """Defer for some seconds, each caller the next job after the last was run; return how many are finished."""
        before, stop = await self._count(), time.monotonic() + seconds

        async def call(number: int) -> None:
            count = 0
            while time.monotonic() < stop:
                count += 1
                name = f"{number}-{stop}-{count}"
                done = self._waiting[name] = asyncio.Event()
                await self._task.defer_async(name=name)
                await done.wait()

        async with asyncio.TaskGroup() as group:
            for number in range(self._callers):
                group.create_task(call(number), name=f"caller {number}")
        return await self._count() - before

    async def work(self) -> None:
        """Run them until cancelled."""
        quiet = {"install_signal_handlers": False, "fetch_job_polling_interval": 1.0}
        await self._app.run_worker_async(queues=[self._queue], concurrency=self._callers, **quiet)

    async def _count(self) -> int:
        async with self._app.connector.pool.connection() as connection:
            [[count]] = await (await connection.execute(DONE, (self._queue,))).fetchall()
        return int(count)


async def _server_cpu(app: Any) -> float:
    """Return the CPU seconds of the server's processes behind the sessions of all processes."""
    async with app.connector.pool.connection() as connection:
        pids = [pid for (pid,) in await (await connection.execute(PIDS)).fetchall()]
    places = [Path(f"/proc/{pid}/stat") for pid in pids]
    spent = [each.read_text().rsplit(")", 1)[1].split() for each in places if each.is_file()]
    return sum(int(fields[11]) + int(fields[12]) for fields in spent) / os.sysconf("SC_CLK_TCK")


async def _work(target: str, seconds: float, warm: float, callers: int, processes: int) -> None:
    """Be one of the processes: warm up, wait for a line, measure, print what was found."""
    logging.disable(logging.ERROR)
    app = _open(target)
    async with app.open_async():
        jobs = Jobs(app, callers)
        worker = asyncio.create_task(jobs.work(), name="worker")
        await jobs.run(warm)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        used, elsewhere = time.process_time(), await _server_cpu(app)
        done = await jobs.run(seconds)
        elsewhere = (await _server_cpu(app) - elsewhere) / processes  # each sees those of all
        print(json.dumps([done, 0, 0, time.process_time() - used, elsewhere]), flush=True)
        worker.cancel()
        await asyncio.wait([worker])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.procrastinate_jobs", description=__doc__)
    parser.add_argument("--work", required=True, metavar="TARGET", help="be one of the processes (of `measure`)")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--warm", type=float, required=True)
    parser.add_argument("--callers", type=int, required=True)
    parser.add_argument("--processes", type=int, required=True)
    given = parser.parse_args()
    asyncio.run(_work(given.work, given.seconds, given.warm, given.callers, given.processes))
