"""Keep the feeds of the latest runs over HTTP for a while, so that who asks just after the end is told the same."""

from __future__ import annotations

from collections import OrderedDict

from bot.database.web_people import WEB
from bot.fleet.runs_in_sight import RunsInSight
from bot.journey.fed_run import FedRun, KeptRun

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
