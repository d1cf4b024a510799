"""See the runs in progress, here and at other processes that share the database, with what they show."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial

from agent.messages import Thread
from bot.database.database import Database
from bot.fleet.feed_mirrors import FeedMirrors
from bot.fleet.feed_teller import FeedTeller
from bot.journey.fed_run import FedRun
from bot.journey.running_turn import RunningTurn
from bot.journey.scheduler import Scheduler
from bot.rights.current import Current
from bot.storage import runs

SIGHT_SECONDS = 1.0  # to wait for what a run shows that is in progress elsewhere


class RunsInSight:
    """The turns of this process, and the runs that others tell of places which are wanted here."""

    def __init__(self, store: Database, scheduler: Scheduler, current: Current) -> None:
        self._store = store
        self._scheduler = scheduler
        self._mirrors = FeedMirrors(store)
        self._teller = FeedTeller(store, scheduler, current)

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Tell other processes what they want, and hear what they tell, where they share the database."""
        if not self._store.is_shared:
            yield
            return
        loops = (self._mirrors.serve(), self._teller.serve())
        tasks = [asyncio.create_task(loop, name="feeds of others") for loop in loops]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    @property
    def running_turns(self) -> Sequence[RunningTurn]:
        """The turns in progress in this process."""
        return self._scheduler.running_turns

    def find(self, run: int) -> FedRun | None:
        """Return a run in progress; None for one that is not in sight."""
        return self._scheduler.find(run) or self._mirrors.find(run)

    def at(self, place: Thread) -> Sequence[FedRun]:
        """Return the runs in progress at a thread (also of its older conversations), or in all threads of a chat."""
        mine: list[FedRun] = [live for live in self._scheduler.running_turns if _is_at(live, place)]
        known = {live.job.run for live in mine}
        return [*mine, *(each for each in self._mirrors.runs if _is_at(each, place) and each.job.run not in known)]

    def follow(self, follower: Callable[[FedRun], None]) -> None:
        """Call `follower` with each run that begins, or comes into sight."""
        self._scheduler.follow(follower)
        self._mirrors.follow(follower)

    def wanted(self, place: Thread) -> AbstractContextManager[None]:
        """Keep the runs at a thread, or in all threads of a chat, in sight."""
        return self._mirrors.wanted(place)

    async def look(self, thread: Thread) -> None:
        """Have the runs at a thread in sight that are in progress elsewhere, if their processes tell them soon."""
        if not self._store.is_shared:
            return
        read = partial(runs.runs_elsewhere, thread=thread, owner=self._store.me)
        if elsewhere := await self._store.run(read, durable=False):
            with self.wanted(thread):
                await self._mirrors.wait_for(elsewhere, SIGHT_SECONDS)


def _is_at(live: FedRun, place: Thread) -> bool:
    return live.job.thread == place or (not place.topic and live.job.thread.without_topic == place)
