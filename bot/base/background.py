"""Run background work so that its failure ends neither another task nor the process."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import NoReturn, TypeVar

from agent.backoff import backoff_seconds
from bot.database.database import Execute, StorageError, WorkRunner
from channels.base import ChannelError

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
