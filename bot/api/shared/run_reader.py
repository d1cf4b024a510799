"""Read one run in progress as events, from where its reader was.

Keep the feeds of the latest runs over HTTP for a while, so that who asks just after the end is told the same.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from agent.blocks import View
from bot.api.shared.event_json import Json, RunPosition, block_event, view_json
from bot.database.web_people import WEB
from bot.fleet.runs_in_sight import RunsInSight
from bot.http.event_stream import SlowReader
from bot.journey.feed import MOVED, SUSPENDED, Ended, FedRun, KeptRun, recall
from bot.rights.current import Current


@dataclass(slots=True)
class RunEvent:
    """An event of a run, and the position behind it."""

    name: str
    data: Json
    position: RunPosition


class RunReader:
    """Reads the feed of a run. `woken` is set when there is more; `close` ends that."""

    def __init__(self, live: FedRun, current: Current, woken: asyncio.Event) -> None:
        self.run = live.job.run
        self.thread = live.job.thread
        self.ended = self.suspended = False
        self.moved = False  # the run goes on elsewhere, or has ended there: the rest was not told
        self.told = False  # the reader knows of the end
        self._live = live
        self._current = current
        self._woken = woken
        self._after = 0
        self.feed = live.feed
        self.feed.follow(woken)

    def close(self) -> None:
        """Follow the run no more."""
        self.feed.unfollow(self._woken)

    async def begin(self, at: RunPosition | None) -> list[RunEvent]:
        """Go on behind this position; anywhere else, begin with a snapshot of what the run shows."""
        job = self._live.job
        if at and at.began == self.feed.began and self.feed.holds(at.number):
            self._after = at.number
            return []
        begun = {
            "id": self.run,
            "run": self.run,
            "thread": job.thread.topic,
            "attempt": job.attempt,
            "started": job.started,
        }
        earlier = await recall(self._live, self._current)
        if not (self.feed.last or self.feed.view.blocks() or earlier.texts or earlier.steps):
            return [self._event("run", begun, 0)]
        numbered = self.feed.read(-1)[0]  # whatever the ring holds, the view and its number
        view = numbered.content if isinstance(numbered.content, View) else View()
        view.texts, view.steps = earlier.texts | view.texts, earlier.steps | view.steps
        view.inner = earlier.inner | view.inner
        self._after = numbered.number
        shown = {"run": self.run, **view_json(view)}
        return [self._event("run", begun, self._after), self._event("snapshot", shown, self._after)]

    def read(self) -> list[RunEvent]:
        """Return what is new. Raises SlowReader where the ring does not hold it any more."""
        events = []
        for numbered in self.feed.read(self._after):
            self._after = numbered.number
            match numbered.content:
                case View():
                    raise SlowReader
                case Ended(state):
                    self.ended, self.suspended, self.moved = True, state == SUSPENDED, state == MOVED
                case block:
                    if event := block_event(block):
                        events.append(self._event(event[0], {"run": self.run, **event[1]}, self._after))
        return events

    def _event(self, name: str, data: Json, number: int) -> RunEvent:
        return RunEvent(name, data, RunPosition(self.feed.began, number))


MAX_RUNS = 100  # each has the latest blocks of its run (`bot.journey.feed.RING_BLOCKS`)


class RecentRuns:
    """The runs that began last on the channel `web`."""

    def __init__(self, runs: RunsInSight) -> None:
        self._runs: OrderedDict[int, KeptRun] = OrderedDict()
        runs.follow(self._keep)

    def find(self, run: int) -> FedRun | None:
        """Return a run; None for one that is not kept."""
        return self._runs.get(run)

    def _keep(self, live: FedRun) -> None:
        if live.job.thread.channel != WEB:
            return
        self._runs.pop(live.job.run, None)
        self._runs[live.job.run] = KeptRun(live.job, live.feed)
        if len(self._runs) > MAX_RUNS:
            self._runs.popitem(last=False)
