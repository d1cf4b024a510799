"""Units of work a second and their latency: the database executor against sqlite3 on a thread of its own.

`python -m bench.storage --folder DISK`: rounds in turns, medians. A folder in /dev/shm leaves out the disk.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import uvloop

from bot.database.database import Database, Execute

Work = Callable[[Execute], Any]
Run = Callable[[Work], Any]


class Baseline:
    """The standard library's sqlite3 on one executor thread, with group commit and savepoints; it handles no errors."""

    def __init__(self, path: Path) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._waiting: list[tuple[Work, asyncio.Future[Any]]] = []
        self._busy = False
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.row_factory = sqlite3.Row
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "temp_store=MEMORY"):
            self._connection.execute(f"PRAGMA {pragma}")

    async def run(self, work: Work) -> Any:
        """Run `work` in the next transaction."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((work, future))
        if not self._busy:
            self._start()
        return await future

    def _start(self) -> None:
        batch, self._waiting, self._busy = self._waiting, [], True
        loop, futures = asyncio.get_running_loop(), [future for _, future in batch]
        done = self._thread.submit(self._commit, [work for work, _ in batch])
        done.add_done_callback(lambda ended: loop.call_soon_threadsafe(self._settle, futures, ended.result()))

    def _settle(self, futures: list[asyncio.Future[Any]], values: list[Any]) -> None:
        self._busy = False
        if self._waiting:
            self._start()
        for future, value in zip(futures, values, strict=True):
            future.set_result(value)

    def _commit(self, works: list[Work]) -> list[Any]:
        self._connection.execute("BEGIN IMMEDIATE")
        values = [self._run_unit(work, alone=len(works) == 1) for work in works]
        self._connection.execute("COMMIT")
        return values

    def _run_unit(self, work: Work, *, alone: bool) -> Any:
        if alone:
            return work(self._execute)
        self._connection.execute("SAVEPOINT work")
        value = work(self._execute)
        self._connection.execute("RELEASE work")
        return value

    def _execute(self, sql: str, values: Any) -> Any:
        return self._connection.execute(sql, values).fetchall()

    def close(self) -> None:
        """End the thread and the connection."""
        self._thread.shutdown()
        self._connection.close()


def write_row(execute: Execute) -> None:
    """A unit of work of four statements."""
    [row] = execute("INSERT INTO rows(text) VALUES (:text) RETURNING id", {"text": "x" * 200})
    execute("SELECT text FROM rows WHERE id=:id", {"id": row["id"]})
    execute("UPDATE rows SET text='' WHERE id=:id", {"id": row["id"]})
    execute("SELECT count(*) FROM rows WHERE id>:id", {"id": row["id"] - 5})


async def measure_latency(run: Run, units: int) -> tuple[float, float]:
    """Median and 99th percentile (milliseconds) of units that run one after the other."""
    times = []
    for _ in range(units):
        began = time.perf_counter()
        await run(write_row)
        times.append((time.perf_counter() - began) * 1000)
    times.sort()
    return statistics.median(times), times[units * 99 // 100]


async def measure_throughput(run: Run, callers: int, units: int) -> float:
    """Units a second of so many callers at once."""

    async def call() -> None:
        for _ in range(units):
            await run(write_row)

    began = time.perf_counter()
    await asyncio.gather(*(call() for _ in range(callers)))
    return callers * units / (time.perf_counter() - began)


async def main() -> None:
    """Print a line for each executor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--units", type=int, default=1000)
    arguments = parser.parse_args()
    print(f"{arguments.folder}, load average {os.getloadavg()[0]:.1f}, {arguments.rounds} rounds in turns")
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=arguments.folder)))
        baseline = Baseline(folder / "baseline.db")
        stack.callback(baseline.close)
        store = await stack.enter_async_context(Database(folder / "store.db"))
        runs: dict[str, Run] = {"sqlite3 on a thread": baseline.run, "aiosqlite": store.run}
        figures: dict[str, list[tuple[float, ...]]] = {name: [] for name in runs}
        for run in runs.values():
            await run(lambda execute: execute("CREATE TABLE rows(id INTEGER PRIMARY KEY, text TEXT)", {}))
            await measure_throughput(run, 10, 20)  # warms up
        for index in range(arguments.rounds):
            for name, run in list(runs.items())[:: 1 if index % 2 else -1]:
                latency = await measure_latency(run, arguments.units)
                figures[name].append((*latency, await measure_throughput(run, 400, max(1, arguments.units // 40))))
    for name, rounds in figures.items():
        median, tail, rate = ([*column] for column in zip(*rounds, strict=True))
        print(
            f"{name:20} alone {statistics.median(median):.3f} ms ({min(median):.3f} to {max(median):.3f}),"
            f" p99 {statistics.median(tail):.2f} ms; 400 at once {statistics.median(rate) / 1000:.1f} k/s"
            f" ({min(rate) / 1000:.1f} to {max(rate) / 1000:.1f})"
        )


if __name__ == "__main__":
    uvloop.run(main())
