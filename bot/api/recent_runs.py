"""Keep the feeds of the latest runs over HTTP for a while, so that who asks just after the end is told the same."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol

from bot.journey.claimed_run import ClaimedRun
from bot.journey.feed import RunFeed
from bot.journey.running_turn import RunningTurn
from bot.journey.scheduler import Scheduler
from bot.storage.web_people import WEB

MAX_RUNS = 100  # each has the latest blocks of its run (`bot.journey.feed.RING_BLOCKS`)


class FedRun(Protocol):
    """A run whose blocks can be read: in progress, or just ended."""

    @property
    def job(self) -> ClaimedRun: ...

    @property
    def feed(self) -> RunFeed: ...


@dataclass(frozen=True, slots=True)
class KeptRun:
    """A run without what only its progress needs."""

    job: ClaimedRun
    feed: RunFeed


class RecentRuns:
    """The runs that began last on the channel `web`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._runs: OrderedDict[int, KeptRun] = OrderedDict()
        scheduler.follow(self._keep)

    def find(self, run: int) -> FedRun | None:
        """Return a run; None for one that is not kept."""
        return self._runs.get(run)

    def _keep(self, live: RunningTurn) -> None:
        if live.job.thread.channel != WEB:
            return
        self._runs.pop(live.job.run, None)
        self._runs[live.job.run] = KeptRun(live.job, live.feed)
        if len(self._runs) > MAX_RUNS:
            self._runs.popitem(last=False)
