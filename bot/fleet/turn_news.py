"""Show running turns what other processes have stored for them: messages, answers, and that they are to stop.

The process that stores a message shows it to its own turns at once. Where several share a database, the turn may be
another's, which looks at the rows each second while it has turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from agent.stored_json import Damaged
from bot.base.background import run_forever
from bot.database.database import Database, Execute
from bot.journey.scheduler import Scheduler
from bot.storage import conversations, inbox, runs
from bot.storage.inbox import InboxRow
from bot.storage.runs import RunRow

LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _News:
    """What no run has taken yet, the runs that are to stop, and the conversations that other processes work in."""

    rows: Sequence[InboxRow]
    stopped: Sequence[RunRow]
    elsewhere: Collection[str]


class TurnNews:
    """Looks while the process has turns, or replies that say that they wait."""

    def __init__(self, store: Database, scheduler: Scheduler) -> None:
        self._store = store
        self._scheduler = scheduler
        self._shown: set[int] = set()  # rows

    async def serve(self) -> None:
        """Look until cancelled. A process that works alone need not."""
        if self._store.is_shared:
            await run_forever("turn news", self._look)

    async def _look(self) -> None:
        await asyncio.sleep(LOOK_SECONDS)
        if not self._scheduler.is_busy:
            return
        news = await self._store.run(partial(_read_news, me=self._store.me), durable=False)
        live = {turn.job.conversation: turn for turn in self._scheduler.running_turns}
        for row in news.rows:
            if row.id not in self._shown and (turn := live.get(row.conversation)):
                with suppress(Damaged):  # the turn meets it, and deals with it
                    turn.message_arrived(row.message)
        self._shown = {row.id for row in news.rows}
        for run in news.stopped:
            self._scheduler.stop_run(run.id, run.stop_by)
        await self._scheduler.leave_queue(news.elsewhere)


def _read_news(execute: Execute, me: str) -> _News:
    return _News(
        inbox.untaken_rows(execute, me), runs.stopped_runs(execute, me), conversations.claimed_by_others(execute, me)
    )
