"""Run background work so that its failure ends neither another task nor the process.

Run background jobs: claim those that are due, retry failures, give up after a limit.

A job runs at least once: one that a crash or a shutdown interrupts runs again. What its handler returns is executed in
the transaction that ends the job, so that this part happens once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NoReturn, TypeVar

from agent.backoff import backoff_seconds
from agent.spans import SpanKind, open_span
from bot.database.database import Database, Execute, StorageError, WorkRunner
from bot.database.wake_ups import Written
from bot.storage import jobs
from bot.storage.jobs import BackgroundJob
from channels.base import ChannelError
from channels.shared.background import BackgroundTasks

log = logging.getLogger(__name__)
T = TypeVar("T")

MIN_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 1.0, 60.0
STEADY_SECONDS = 60.0  # a step that ran this long before it failed starts again with the shortest wait


async def run_forever(name: str, step: Callable[[], Awaitable[None]]) -> NoReturn:
    """Await `step` again and again until cancelled. Log a step that fails, and retry it with backoff.

    A StorageError is retried every second: the database recovers from outside, and everything waits for it.
    """
    failures = 0
    while True:
        began = time.monotonic()
        try:
            await step()
        except StorageError as error:
            log.error("task.store name=%s reason=%s", name, error)  # noqa: TRY400 — the reason is enough
            wait = MIN_BACKOFF_SECONDS
        except Exception as error:  # the boundary of one background task
            failures = 1 if time.monotonic() - began > STEADY_SECONDS else failures + 1
            wait = backoff_seconds(failures, MAX_BACKOFF_SECONDS, MIN_BACKOFF_SECONDS)
            level = logging.WARNING if isinstance(error, ChannelError) else logging.ERROR
            log.log(level, "task.failed name=%s retry_in=%.0f", name, wait, exc_info=error)
        else:
            failures, wait = 0, 0.0
        if (task := asyncio.current_task()) and task.cancelling():  # an error while it was cancelled
            raise asyncio.CancelledError
        await asyncio.sleep(wait)


async def until_stored(name: str, commit: Callable[[], Awaitable[T]]) -> T:
    """Await `commit` every second until the database accepts it, and return its result: its effect has happened.

    Every other error of `commit` is raised.
    """
    while True:
        try:
            return await commit()
        except StorageError as error:
            log.error("task.not_recorded name=%s reason=%s", name, error)  # noqa: TRY400 — the reason is enough
            await asyncio.sleep(MIN_BACKOFF_SECONDS)


@dataclass(frozen=True, slots=True)
class PatientStore:
    """A database whose units of work are tried every second until it accepts them: what they record has happened."""

    store: WorkRunner
    name: str  # of what is recorded, for the log

    async def run(self, work: Callable[[Execute], T], *, durable: bool = True, first: bool = False) -> T:
        """Run a unit of work. Raises every error but StorageError."""
        return await until_stored(self.name, partial(self.store.run, work, durable=durable, first=first))


MAX_RUNNING_JOBS = 4
MAX_ATTEMPTS = 12  # with the backoff they take about two and a half hours
MIN_JOB_BACKOFF_SECONDS, MAX_JOB_BACKOFF_SECONDS = 5.0, 3600.0
MAX_JOB_SECONDS = 3600.0
LOOK_SECONDS = 30.0  # between looks without a wake-up
MAX_ERROR_CHARS = 300

Effect = Callable[[Execute], object]
JobHandler = Callable[[BackgroundJob], Awaitable[Effect | None]]


@dataclass(frozen=True, slots=True)
class JobKind:
    """How to run the jobs of one kind.

    The key of a recurring job is its kind. It also runs at the start of a process that works alone; several run it
    only when it is due, whichever of them is first.
    """

    handler: JobHandler
    every_seconds: float = 0.0  # 0: it does not recur


class JobWorker:
    """Runs the jobs of the registered kinds. `clock` returns the unix time."""

    def __init__(self, store: Database, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._kinds: dict[str, JobKind] = {}
        self._running = 0
        self._begun = False
        self._wake = store.listen(Written.JOB)
        self._tasks = BackgroundTasks()

    def register(self, kind: str, handler: JobHandler, every_seconds: float = 0.0) -> None:
        """Run jobs of this kind with `handler`; before `serve`."""
        self._kinds[kind] = JobKind(handler, every_seconds)

    def register_kinds(self, kinds: Mapping[str, JobKind]) -> None:
        """Run jobs of these kinds; before `serve`."""
        self._kinds.update(kinds)

    async def serve(self) -> None:
        """Run jobs until cancelled. Jobs that are then running are released and run again after the next start."""
        try:
            await run_forever("jobs", self._claim_and_start)
        finally:
            await self._tasks.cancel()

    async def _claim_and_start(self) -> None:
        self._wake.clear()
        claimed, due = await self._store.run(self._claim)
        self._begun = True
        for job in claimed:
            self._running += 1
            self._tasks.start(self._run_job(job), name=f"job {job.key}")
        seconds = LOOK_SECONDS
        if due is not None and self._running < MAX_RUNNING_JOBS:
            seconds = min(seconds, max(0.0, due - self._clock()) + 0.01)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    def _claim(self, execute: Execute) -> tuple[list[BackgroundJob], float | None]:
        if not self._begun:
            for name, kind in self._kinds.items():
                if kind.every_seconds and self._store.is_shared:
                    jobs.plan_recurring(execute, name, self._clock() + kind.every_seconds)
                elif kind.every_seconds:
                    jobs.enqueue_job(execute, key=name, kind=name, payload={})
        claimed = jobs.claim_jobs(execute, self._store.me, self._clock(), MAX_RUNNING_JOBS - self._running)
        return claimed, jobs.earliest_due(execute)

    async def _run_job(self, job: BackgroundJob) -> None:
        """Run a job and record its end. This is the boundary of one job."""
        try:
            await self._record(partial(self._finish, job=job, effect=await self._handle(job)))
        except asyncio.CancelledError:
            await self._release(job)
            raise
        except Exception as error:  # the boundary: a failing job fails alone
            log.warning("job.failed key=%s attempt=%d", job.key, job.attempts, exc_info=error)
            await self._record(self._reschedule(job, error))
        finally:
            self._running -= 1
            self._wake.set()

    async def _handle(self, job: BackgroundJob) -> Effect | None:
        if job.attempts > MAX_ATTEMPTS:  # the process ended during the last one
            raise RuntimeError(job.error)
        if job.kind not in self._kinds:
            raise LookupError(f"this version of Fawn has no jobs of the kind {job.kind!r}")
        with open_span(SpanKind.JOB, job.kind):
            async with asyncio.timeout(MAX_JOB_SECONDS):
                return await self._kinds[job.kind].handler(job)

    def _finish(self, execute: Execute, job: BackgroundJob, effect: Effect | None) -> None:
        if every := self._kinds[job.kind].every_seconds:
            jobs.reschedule_job(execute, job, self._clock() + every, attempts=0, error="")
        else:
            jobs.finish_job(execute, job)
        if effect:
            effect(execute)

    def _reschedule(self, job: BackgroundJob, error: Exception) -> Effect:
        """Return what reschedules a failed job. After too many attempts it is given up, or waits for its next round."""
        attempts, now = job.attempts, self._clock()
        due: float | None = now + backoff_seconds(attempts, MAX_JOB_BACKOFF_SECONDS, MIN_JOB_BACKOFF_SECONDS)
        if attempts >= MAX_ATTEMPTS:
            every = self._kinds[job.kind].every_seconds if job.kind in self._kinds else 0.0
            due, attempts = (now + every, 0) if every else (None, attempts)
            log.error("job.given_up key=%s recurs=%s", job.key, bool(every))
        return partial(jobs.reschedule_job, job=job, due=due, attempts=attempts, error=repr(error)[:MAX_ERROR_CHARS])

    async def _record(self, end: Effect) -> None:
        await until_stored("job", partial(self._store.run, end))

    async def _release(self, job: BackgroundJob) -> None:
        """Leave a job to the next process; this attempt does not count."""
        release = partial(jobs.reschedule_job, job=job, due=job.due, attempts=job.attempts - 1, error=job.error)
        try:
            await self._store.run(release)
        except StorageError as error:  # the next start releases it and counts the attempt
            log.warning("job.not_released key=%s reason=%s", job.key, error)
