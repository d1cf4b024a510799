"""Background tasks with one owner, whose failures affect no other task."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from typing import Any

from channels.base import ChannelError

log = logging.getLogger(__name__)


class BackgroundTasks:
    """Tasks with one owner. A failed task is logged; the others continue."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._forget_task)
        return task

    def start_best_effort(self, call: Awaitable[object], name: str) -> None:
        """Make a platform call that nothing depends on, such as a typing action."""

        async def attempt() -> None:
            try:
                await call
            except ChannelError as error:
                log.debug("task.call_failed name=%s reason=%s", name, error)

        self.start(attempt(), name)

    def _forget_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("task.failed name=%s", task.get_name(), exc_info=error)

    async def cancel(self) -> None:
        """Cancel the running tasks and wait until they have ended."""
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
