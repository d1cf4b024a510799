"""Run background work so that its failure ends nothing else: neither another task nor the process."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import NoReturn

from bot.storage.database import StorageError

log = logging.getLogger(__name__)

MIN_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 1.0, 60.0
STEADY_SECONDS = 60.0  # a step that ran this long before it failed begins with the first wait again


async def run_forever(name: str, step: Callable[[], Awaitable[None]]) -> NoReturn:
    """Await `step` again and again until cancelled. A step that fails is logged and retried after a wait.

    The wait grows while the step keeps failing. Only the store's own trouble is retried every second: it ends from
    outside, and everybody waits for it.
    """
    wait = MIN_BACKOFF_SECONDS
    while True:
        began = time.monotonic()
        try:
            await step()
        except StorageError as error:
            log.error("task.store name=%s reason=%s", name, error)  # noqa: TRY400 — the reason is enough
            await asyncio.sleep(MIN_BACKOFF_SECONDS)
        except Exception:  # the boundary of one background task
            if time.monotonic() - began > STEADY_SECONDS:
                wait = MIN_BACKOFF_SECONDS
            log.exception("task.failed name=%s retry_in=%.0f", name, wait)
            await asyncio.sleep(wait * random.uniform(0.8, 1.2))  # noqa: S311 — jitter
            wait = min(MAX_BACKOFF_SECONDS, wait * 2)
        else:
            wait = MIN_BACKOFF_SECONDS
