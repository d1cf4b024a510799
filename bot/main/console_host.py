"""Tell the console about the service: progress, open questions, and what its end stops."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agent.blocks import Approve, Ask, Final, View
from agent.messages import Thread
from bot.database.database import Database, Execute
from bot.database.states import QuestionKind
from bot.journey.addressing import held_question
from bot.journey.scheduler import Scheduler
from bot.status.status import ServiceStatus
from bot.storage import conversations, questions
from bot.storage.questions import QuestionRow
from catalogue import _, format_duration, ngettext
from channels.console.view import ConsoleHost, Progress

LOOK_SECONDS = 0.05  # between looks for open work of one console


class ServiceConsoleHost(ConsoleHost):
    """The running service. `others` are the channels beside the console."""

    def __init__(self, store: Database, scheduler: Scheduler, status: ServiceStatus, others: Sequence[str]) -> None:
        self._store = store
        self._scheduler = scheduler
        self._status = status
        self._others = others

    def describe_channels(self) -> Sequence[tuple[str, bool]]:
        return tuple(self._status.describe_channels().values())

    def describe_leaving(self) -> str:
        if not self._others:
            return _("Press Ctrl-C again to leave.")
        if not (count := len(self._scheduler.running_turns)):
            return _("Press Ctrl-C again to stop Fawn for everybody (no turn is running).")
        return ngettext(
            "Press Ctrl-C again to stop Fawn for everybody ({n} turn is running).",
            "Press Ctrl-C again to stop Fawn for everybody ({n} turns are running).",
            count,
        )

    def describe_stop(self, seconds: float) -> str:
        """Return what a shutdown waits for."""
        if not (count := len(self._scheduler.running_turns)):
            return _("Stopping Fawn.")
        return ngettext(
            "Stopping Fawn: {n} turn has {time} to end. The next start resumes it.",
            "Stopping Fawn: {n} turns have {time} to end. The next start resumes them.",
            count,
            time=format_duration(seconds),
        )

    def progress(self, thread: Thread) -> Progress | None:
        live = self._scheduler.at(thread)
        if not live:
            return None
        used = [turn.meter.total for turn in live]
        now = asyncio.get_running_loop().time()
        return Progress(now - min(turn.started for turn in live), sum(each.input + each.output for each in used))

    async def open_question(self, thread: Thread) -> Final | None:
        return await self._store.run(lambda execute: _open_question(execute, thread))

    async def wait_until_idle(self, thread: Thread) -> None:
        while await self._store.run(lambda execute: conversations.has_open_work(execute, thread)):  # noqa: ASYNC110 — the store is the only place that knows, and one console waits
            await asyncio.sleep(LOOK_SECONDS)


def _open_question(execute: Execute, thread: Thread) -> Final | None:
    """Return what is open in a thread, also of background tasks and schedules there: the choice between them alone,
    while one is open."""
    view = View()
    if which := held_question(execute, thread):
        view.add(which)
        return view.final()
    for row in questions.open_questions_at(execute, thread):
        view.add(_asked(row))
    return view.final() if view.asks else None


def _asked(row: QuestionRow) -> Ask | Approve:
    if row.kind == QuestionKind.APPROVE:
        return Approve(row.id, row.text, call=row.call)
    return Ask(row.id, row.text, row.options, free_text=bool(row.free_text))
