"""Let operators change the schedules and the background tasks of everybody. The audit has who did it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from bot.api.operate.answers import ChangedSchedule, ChangedTask
from bot.api.shared.caller import Caller, find_caller
from bot.api.shared.read_models import not_found
from bot.api.shared.requests import path_number
from bot.base.times import TimingError
from bot.commands import background
from bot.commands.background import cancel_task
from bot.commands.feature import Door
from bot.database.database import Execute
from bot.database.states import ScheduleState
from bot.database.web_people import WEB
from bot.http.route import HttpProblem, Route, Spec, json_response
from bot.rights import deeds
from bot.service.schedule_changes import record_change
from bot.storage import schedules, tasks
from bot.storage.api_access import OPERATE
from bot.storage.schedules import ScheduleRow

if TYPE_CHECKING:
    from aiohttp import web

Stops = Sequence[Callable[[], None]]  # to call after the commit
NOT_NOW = HttpProblem(409, "not_changed", "This schedule cannot be changed so now.", "Read the schedules again.")
ENDED = HttpProblem(409, "ended", "This task has ended.", "Read the tasks again.")


@dataclass(frozen=True, slots=True)
class OperateChanges:
    """The routes."""

    door: Door

    def routes(self) -> Sequence[Route]:
        """Return the routes."""
        schedule, problems = "/v1/operate/schedules/{schedule}", (404, 409)

        def change(method: str, path: str, verb: str, summary: str) -> Route:
            spec = Spec(summary, ChangedSchedule, problems=problems)
            return Route(method, path, partial(self._change, verb=verb), spec=spec)

        return [
            change("POST", f"{schedule}/pause", "pause", "Pause a schedule of anybody"),
            change("POST", f"{schedule}/resume", "resume", "Resume a schedule of anybody"),
            change("DELETE", schedule, "delete", "Delete a schedule of anybody"),
            Route(
                *("POST", "/v1/operate/tasks/{task}/cancel", self._cancel),
                spec=Spec("Cancel a background task of anybody", ChangedTask, problems=problems),
            ),
        ]

    async def _change(self, request: web.Request, verb: str) -> web.Response:
        caller = await find_caller(self.door, request, OPERATE, deed=deeds.END_ANYWHERE)
        number = path_number(request, "schedule")
        await self._do(partial(self._change_row, caller=caller, number=number, verb=verb))
        row = await self.door.store.run(partial(schedules.find_schedule, number=number), durable=False)
        return json_response(200, ChangedSchedule(number, row.state if row else "deleted"))

    def _change_row(self, execute: Execute, caller: Caller, number: int, verb: str) -> Stops:
        row, now, by = schedules.find_schedule(execute, number), time.time(), caller.author.id
        if row is None or row.state == ScheduleState.ENDED:
            raise not_found("schedule")
        stops: Stops = ()
        match verb, row.state:
            case "pause", ScheduleState.ACTIVE:
                background.pause_schedule(execute, row)
            case "resume", ScheduleState.PAUSED:
                _resume(execute, row, now)
            case "delete", _:
                stops = background.delete_schedule(execute, row, by, now, self.door.running().stop_run, WEB)
            case _:
                raise NOT_NOW
        record_change(execute, row, verb, by, WEB)
        return stops

    async def _cancel(self, request: web.Request) -> web.Response:
        caller = await find_caller(self.door, request, OPERATE, deed=deeds.END_ANYWHERE)
        number = path_number(request, "task")
        await self._do(partial(self._cancel_row, caller=caller, number=number))
        return json_response(202, ChangedTask(number, "cancelled"))

    def _cancel_row(self, execute: Execute, caller: Caller, number: int) -> Stops:
        row = tasks.find_task(execute, number)
        if row is None:
            raise not_found("task")
        stop = cancel_task(execute, row, caller.author.id, time.time(), self.door.running().stop_run, WEB)
        if stop is None:
            raise ENDED
        return (stop,)

    async def _do(self, change: Callable[[Execute], Stops]) -> None:
        self.door.running()
        for stop in await self.door.store.run(change):
            stop()


def _resume(execute: Execute, row: ScheduleRow, now: float) -> None:
    try:
        if background.resume_schedule(execute, row, now):
            return
    except TimingError as error:
        raise NOT_NOW from error
    raise NOT_NOW
