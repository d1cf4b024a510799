"""Background jobs: due times, retries, keys, and what a crash or a shutdown leaves."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bot.base.background import MAX_ATTEMPTS, MAX_RUNNING_JOBS, Effect, JobWorker
from bot.database.database import Database, Execute
from bot.storage.jobs import INTERRUPTED, BackgroundJob, count_jobs, enqueue_job, release_stale_jobs
from tests.fakes.server import until
from tests.support.forked_services import PYTHON, ROOT, fork
from tests.support.rehearsed_database import make_empty_database, rehearsed_database, stored_rows

NOON = 1_800_000_000.0


class JobBench:
    """A worker with a clock that stands still, and a handler that tests control."""

    def __init__(self, store: Database) -> None:
        self.store = store
        self.now = NOON
        self.begun: list[str] = []
        self.go = asyncio.Event()
        self.go.set()
        self.error: Exception | None = None
        self.worker = JobWorker(store, lambda: self.now)
        self.worker.register("work", self.handle)

    async def handle(self, job: BackgroundJob) -> Any:
        self.begun.append(f"{job.key} {job.arguments.get('n', 0)}")
        await self.go.wait()
        if self.error and job.arguments.get("n", 1) == 1:
            raise self.error

    async def enqueue(self, key: str = "a", **more: Any) -> None:
        given = {"kind": "work", "payload": {}, **more}
        await self.store.run(lambda execute: enqueue_job(execute, key=key, **given))

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.worker._wake.set()  # its clock is the test's

    def rows(self, columns: str = "key") -> list[tuple[Any, ...]]:
        return stored_rows(self.store._path, f"SELECT {columns} FROM jobs ORDER BY key")  # noqa: S608 — a constant

    async def finished(self) -> None:
        await until(lambda: not self.rows(), what="the end of all jobs")

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.worker.serve())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[JobBench]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as store:
        yield JobBench(store)


async def test_a_job_runs_when_it_is_due(bench: JobBench) -> None:
    async with bench.serving():
        await bench.enqueue("tomorrow", due=NOON + 86400)
        await bench.enqueue("now")
        await until(lambda: bench.rows() == [("tomorrow",)], what="the end of the first job")
        bench.advance(86399)
        await bench.enqueue("later")
        await until(lambda: bench.rows() == [("tomorrow",)], what="the end of the second job")
        bench.advance(1)
        await bench.finished()
    assert bench.begun == ["now 0", "later 0", "tomorrow 0"]


async def test_a_rolled_back_transaction_enqueues_nothing(bench: JobBench) -> None:
    def work(execute: Execute) -> None:
        enqueue_job(execute, key="a", kind="work", payload={})
        raise ValueError("the caller's")

    with pytest.raises(ValueError, match="the caller's"):
        await bench.store.run(work)
    assert bench.rows() == []


async def test_a_failing_job_is_visible_retried_later_and_given_up(bench: JobBench) -> None:
    bench.error = ValueError("no luck")
    async with bench.serving():
        await bench.enqueue()
        for attempt in range(1, MAX_ATTEMPTS + 1):
            await until(lambda: bench.rows("attempts, owner") == [(attempt, None)], what="the failure")  # noqa: B023 — at once
            [(due, error)] = bench.rows("due, error")
            assert error == "ValueError('no luck')"
            assert "Last error: work: ValueError('no luck')" in str(await bench.store.run(count_jobs))
            if attempt < MAX_ATTEMPTS:
                assert due > bench.now
                bench.advance(due - bench.now)
        assert bench.rows("due") == [(None,)]
        assert "0 waiting, 0 running, 1 given up" in str(await bench.store.run(count_jobs))
        bench.advance(10 * 86400)
        bench.error = None
        await bench.enqueue("other")  # the failed one blocks nothing
        await until(lambda: bench.rows() == [("a",)], what="the end of the other job")
        assert len(bench.begun) == MAX_ATTEMPTS + 1
        await bench.enqueue()  # enqueued again, it is tried again
        await bench.finished()


async def test_a_recurring_job_runs_at_the_start_and_is_never_given_up(bench: JobBench) -> None:
    bench.worker.register("hourly", bench.handle, every_seconds=3600)
    async with bench.serving():
        await until(lambda: bench.rows("due, attempts") == [(NOON + 3600, 0)], what="the first round")
        bench.error = ValueError("no luck")
        for _ in range(MAX_ATTEMPTS):
            count = len(bench.begun)
            [(due,)] = bench.rows("due")
            bench.advance(due - bench.now)
            await until(lambda: len(bench.begun) > count and bench.rows("owner") == [(None,)], what="the failure")  # noqa: B023 — at once
        assert bench.rows("due, attempts, error") == [(bench.now + 3600, 0, "ValueError('no luck')")]
        bench.error = None
        bench.advance(3600)
        await until(lambda: bench.rows("due, error") == [(bench.now + 3600, "")], what="the next round")


async def test_a_second_job_with_the_same_key_replaces_the_first_or_is_dropped(bench: JobBench) -> None:
    await bench.enqueue(due=NOON + 60, payload={"n": 1})
    await bench.enqueue(due=NOON + 120, payload={"n": 2}, keep=True)
    assert bench.rows("due") == [(NOON + 60,)]
    await bench.enqueue(due=NOON + 120, payload={"n": 3})
    async with bench.serving():
        bench.advance(60)
        await bench.enqueue("other")
        await until(lambda: bench.rows() == [("a",)], what="the end of the other job")
        bench.advance(60)
        await bench.finished()
    assert bench.begun == ["other 0", "a 3"]


@pytest.mark.parametrize("error", [None, ValueError("no luck")])
async def test_a_job_that_is_replaced_while_it_runs_runs_once_more(bench: JobBench, error: Exception | None) -> None:
    """The second one also replaces the failure of the first, and never runs beside it."""
    bench.go.clear()
    bench.error = error
    async with bench.serving():
        await bench.enqueue(payload={"n": 1})
        await until(lambda: bench.begun, what="the start")
        await bench.enqueue(payload={"n": 2})
        await bench.enqueue(payload={"n": 9}, keep=True)
        await bench.enqueue("other", payload={"n": 0})
        await until(lambda: len(bench.begun) == 2, what="the other job")
        assert bench.begun == ["a 1", "other 0"]
        bench.go.set()
        await bench.finished()
    assert bench.begun[2:] == ["a 2"]


async def test_an_effect_that_fails_is_undone_and_its_job_is_retried(bench: JobBench) -> None:
    def effect(execute: Execute) -> None:
        enqueue_job(execute, key="next", kind="work", payload={})
        raise ValueError("the effect failed")

    async def handle(job: BackgroundJob) -> Effect:
        return effect

    bench.worker.register("chain", handle)
    async with bench.serving():
        await bench.enqueue(kind="chain")
        await until(lambda: bench.rows("key, attempts, owner") == [("a", 1, None)], what="the failure")
    assert "the effect failed" in bench.rows("error")[0][0]


async def test_few_jobs_run_at_once(bench: JobBench) -> None:
    bench.go.clear()
    for number in range(2 * MAX_RUNNING_JOBS):
        await bench.enqueue(f"job {number}")
    async with bench.serving():
        await until(lambda: len(bench.begun) == MAX_RUNNING_JOBS, what="the first jobs")
        counts = f"{MAX_RUNNING_JOBS} waiting, {MAX_RUNNING_JOBS} running, 0 given up."
        assert str(await bench.store.run(count_jobs)) == f"Background jobs: {counts}"
        bench.go.set()
        await bench.finished()
    assert len(bench.begun) == 2 * MAX_RUNNING_JOBS


@pytest.mark.sqlite
async def test_a_job_that_cannot_be_read_or_is_of_an_unknown_kind_fails_alone(bench: JobBench) -> None:
    await bench.enqueue("unknown", kind="later version")
    await bench.enqueue("damaged")
    await bench.store.run(lambda execute: execute("UPDATE jobs SET payload=x'ff' WHERE key='damaged'", {}))
    async with bench.serving():
        await bench.enqueue("fine")
        await until(
            lambda: len(bench.rows()) == 2 and all(error for (error,) in bench.rows("error")), what="the errors"
        )
    assert bench.begun == ["fine 0"]
    assert bench.rows("key, attempts") == [("damaged", 1), ("unknown", 1)]


async def test_a_shutdown_releases_a_job_without_counting_the_attempt(bench: JobBench) -> None:
    bench.go.clear()
    await bench.enqueue()
    async with bench.serving():
        await until(lambda: bench.begun, what="the start")
    assert bench.rows("attempts, owner, due, error") == [(0, None, 0.0, "")]
    bench.go.set()
    async with bench.serving():
        await bench.finished()
    assert len(bench.begun) == 2


@pytest.mark.sqlite
async def test_a_job_that_kills_the_process_is_given_up(bench: JobBench) -> None:
    """As after so many crashes that each attempt is counted but none was recorded."""
    await bench.enqueue()
    crashed = "UPDATE jobs SET owner='dead', attempts=:attempts"
    await bench.store.run(lambda execute: execute(crashed, {"attempts": MAX_ATTEMPTS}))
    await bench.store.run(release_stale_jobs)
    async with bench.serving():
        await until(lambda: bench.rows("due, owner") == [(None, None)], what="the end")
    assert bench.begun == []
    assert INTERRUPTED in bench.rows("error")[0][0]


@pytest.mark.sqlite
async def test_killed_in_the_middle_of_a_job_it_runs_again_and_its_effect_happens_once(bench: JobBench) -> None:
    folder = bench.store._path.parent
    conversation = "INSERT INTO conversations(key, thread, created, used) VALUES ('c', 't', 0, 0)"
    await bench.store.run(lambda execute: execute(conversation, {}))
    await bench.enqueue("c", kind="slow", payload={"conversation": "c"})

    def begun() -> list[str]:
        return (folder / "begun").read_text().split() if (folder / "begun").exists() else []

    for attempt in (1, 2, 3):
        words = [PYTHON, "-m", "tests.support.job_process", str(folder)]
        process = await fork(words, ROOT, os.environ, folder / "log")
        await until(lambda: len(begun()) == attempt, what="the start of the job")  # noqa: B023 — at once
        if attempt == 3:
            (folder / "go").touch()
            await bench.finished()
        process.kill()
        await process.wait()
    assert begun() == ["1", "2", "3"]
    rows = await bench.store.run(lambda execute: execute("SELECT title FROM conversations", {}))
    assert [row["title"] for row in rows] == ["made"]
