"""Make titles with a model beside the turns, so that no reply waits for a title."""

from __future__ import annotations

import asyncio
import logging

from agent.context import Meter
from bot.claims import ClaimedRun
from bot.current import Current
from bot.storage import conversations, runs
from bot.storage.database import Database, Execute, StorageError

log = logging.getLogger(__name__)


class Titles:
    """Makes one title at a time for each conversation without a title, and records it."""

    def __init__(self, store: Database, current: Current) -> None:
        self._store = store
        self._current = current
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def begin(self, job: ClaimedRun) -> str:
        """Return the title that the end of this run is to record.

        "" when the conversation has a title, or a task makes one from now on.
        """
        if job.title or not job.messages or job.conversation in self._tasks:
            return ""
        text = job.messages[0].text
        if title := self._current.agent.title_at_once(text):
            return title
        task = asyncio.create_task(self._make(job, text), name=f"title {job.run}")
        self._tasks[job.conversation] = task
        task.add_done_callback(lambda _: self._tasks.pop(job.conversation))
        return ""

    async def _make(self, job: ClaimedRun, text: str) -> None:
        meter = Meter()
        async with self._current.use_agent() as agent:
            title = await agent.make_title(text, meter)

        def record(execute: Execute) -> None:
            runs.add_usage(execute, job.run, meter.take_unrecorded())
            conversations.set_title(execute, job.conversation, title)

        try:
            await self._store.run(record)
        except StorageError as error:  # the next turn makes another
            log.warning("title.not_recorded reason=%s", error)

    async def close(self) -> None:
        """Cancel unfinished titles: the next turn of the conversation makes one."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
