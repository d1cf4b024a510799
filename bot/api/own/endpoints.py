"""Serve choices, skills, memory, schedules, tasks and usage of the caller. Commands of the chats make the changes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from agent.memory.visibility import Memory
from agent.messages import Thread
from agent.models.presets import effort_names
from agent.skills.library import SkillSet
from bot.api.operate.answers import UsageList
from bot.api.operate.endpoints import BAD_BY, DAYS, read_days
from bot.api.operate.reading import read_usage, schedule_answer, task_answer
from bot.api.own import answers
from bot.api.own.answers import (
    AgentList,
    Begun,
    Forgotten,
    MemoryList,
    ModelList,
    OwnSchedules,
    OwnTasks,
    ScheduleChange,
    SkillList,
    TaskChange,
)
from bot.api.own.memories import accounts_of, find_memory, memories_of
from bot.api.shared.caller import NO_ACCESS, Caller, find_caller
from bot.api.shared.posting import make_command, offer, run_command
from bot.api.shared.read_models import not_found
from bot.api.shared.requests import CURSOR, MOST, PAGE, make_cursor, path_number, read_cursor
from bot.commands.feature import Door
from bot.config.team import RoleConfig
from bot.database.database import Execute
from bot.database.states import ScheduleState
from bot.database.web_people import WEB, payer_key
from bot.http.route import HttpProblem, Query, Route, Spec, json_response, read_response
from bot.rights.work_rights import allowed_skills
from bot.storage import people, schedules, tasks
from bot.storage.api_access import READ, THREADS
from bot.storage.schedules import ScheduleRow
from bot.storage.tasks import TaskRow
from catalogue import localized, use_language
from channels.shared.texts import language_of

if TYPE_CHECKING:
    from aiohttp import web

T = TypeVar("T")
BY = ("model", "chat", "day")


@dataclass(frozen=True, slots=True)
class OwnEndpoints:
    """The routes."""

    door: Door

    def routes(self) -> Sequence[Route]:
        """Return the routes."""
        read, act = partial(Route, "GET"), partial(Route, "POST")
        schedule = "/v1/schedules/{schedule}"
        changed = partial(Spec, answer=ScheduleChange, problems=(404, 409))
        return [
            read("/v1/models", self._models, spec=Spec("The models to choose from", ModelList)),
            read("/v1/agents", self._agents, spec=Spec("The agents to choose from", AgentList)),
            read("/v1/skills", self._skills, spec=Spec("The skills", SkillList)),
            read(
                "/v1/memory",
                self._memory,
                spec=Spec("What the agent remembers of one", MemoryList, query=(CURSOR,), problems=(400,)),
            ),
            Route(
                *("DELETE", "/v1/memory/{memory}", self._forget),
                spec=Spec("Forget a memory", Forgotten, problems=(404,)),
            ),
            read(
                "/v1/schedules",
                self._schedules,
                spec=Spec("One's schedules", OwnSchedules, query=(CURSOR,), problems=(400,)),
            ),
            act(f"{schedule}/pause", partial(self._change_schedule, verb="pause"), spec=changed("Pause a schedule")),
            act(f"{schedule}/resume", partial(self._change_schedule, verb="resume"), spec=changed("Resume a schedule")),
            Route(
                *("DELETE", schedule, partial(self._change_schedule, verb="delete")), spec=changed("Delete a schedule")
            ),
            act(
                f"{schedule}/run",
                self._run_schedule,
                spec=Spec("Run a schedule now", Begun, 202, problems=(404, 429)),
            ),
            read(
                "/v1/tasks",
                self._tasks,
                spec=Spec("One's background tasks", OwnTasks, query=(CURSOR,), problems=(400,)),
            ),
            act(
                "/v1/tasks/{task}/cancel",
                self._cancel_task,
                spec=Spec("Cancel a background task", TaskChange, problems=(404, 409)),
            ),
            act(
                "/v1/tasks/{task}/retry",
                self._retry_task,
                spec=Spec("Begin a background task again", Begun, 202, problems=(404, 409, 429)),
            ),
            read(
                "/v1/usage",
                self._usage,
                spec=Spec(
                    "What one has spent",
                    UsageList,
                    query=(Query("by", "by what", choices=BY), DAYS),
                    problems=(400,),
                ),
            ),
        ]

    async def _store(self, work: Callable[[Execute], T]) -> T:
        return await self.door.store.run(work, durable=False)

    async def _role(self, caller: Caller) -> RoleConfig:
        return await self._store(partial(self.door.current.access.role_of, place=caller.chat, person=caller.author.id))

    # ------------------------------------------------------------ choices

    async def _models(self, request: web.Request) -> web.Response:
        caller = await find_caller(self.door, request, READ)
        current, role = self.door.current, await self._role(caller)
        entries = {entry.name: entry for entry in current.config.models}
        efforts = {name: effort_names(entry.preset, entry.use) for name, entry in entries.items()}
        with use_language(language_of(caller.chat, caller.author)):
            found = [
                answers.ModelAnswer(name, label, [*efforts.get(name, ())])
                for name, label in current.models.items()
                if role.may_use_model(name)
            ]
        return read_response(request, ModelList(found))

    async def _agents(self, request: web.Request) -> web.Response:
        caller = await find_caller(self.door, request, READ)
        current, role = self.door.current, await self._role(caller)
        known = {"default": "", **current.agents}
        found = [answers.AgentAnswer(name, text) for name, text in known.items() if role.may_use_agent(name)]
        return read_response(request, AgentList(found))

    async def _skills(self, request: web.Request) -> web.Response:
        caller = await find_caller(self.door, request, READ)
        current, role = self.door.current, await self._role(caller)
        allow = allowed_skills(current.config, "", role)
        known = current.skills.current if current.skills else SkillSet()
        with use_language(language_of(caller.chat, caller.author)):
            found = [
                answers.SkillAnswer(
                    *(name, each.skill.description, each.state.value),
                    [localized(warning) for warning in each.skill.warnings],
                )
                for name, each in sorted(known.skills.items())
                if not allow or name in allow
            ]
        return read_response(request, SkillList(found))

    # ------------------------------------------------------------ memory

    async def _memory(self, request: web.Request) -> web.Response:
        caller = await find_caller(self.door, request, READ)
        after = read_cursor(request, (float("inf"), MOST))

        def look(execute: Execute) -> tuple[bool, list[Memory]]:
            found = memories_of(execute, caller)
            return people.allows_memory(execute, WEB, caller.author.id), found

        on, rows = await self._store(look)
        rows = [row for row in rows if (row.said, row.id) < after]
        more = make_cursor(rows[PAGE - 1].said, rows[PAGE - 1].id) if len(rows) > PAGE else None
        shown = [
            answers.MemoryAnswer(row.id, str(row.kind), row.subject, row.text, row.said, row.thread)
            for row in rows[:PAGE]
        ]
        return read_response(request, MemoryList(on, shown, more))

    async def _forget(self, request: web.Request) -> web.Response:
        caller = await find_caller(self.door, request, THREADS)
        number = path_number(request, "memory")

        find = partial(find_memory, caller=caller, number=number)
        row = await self._store(find)
        if row is None:
            raise not_found("memory")
        await run_command(self.door, caller, Thread.parse(row.thread).channel, f"memory forget {number}")
        if await self._store(find):
            raise NO_ACCESS
        return json_response(200, Forgotten(number))

    # ------------------------------------------------------------ schedules

    async def _schedules(self, request: web.Request) -> web.Response:
        caller = await find_caller(self.door, request, READ)
        [after] = read_cursor(request, (0,))

        def look(execute: Execute) -> OwnSchedules:
            found = [schedules.list_owned(execute, *each, after, PAGE + 1) for each in accounts_of(caller)]
            rows = sorted(itertools.chain(*found), key=lambda row: row.id)
            more = make_cursor(rows[PAGE - 1].id) if len(rows) > PAGE else None
            return OwnSchedules([schedule_answer(execute, row, caller) for row in rows[:PAGE]], more)

        return read_response(request, await self._store(look))

    async def _change_schedule(self, request: web.Request, verb: str) -> web.Response:
        caller = await find_caller(self.door, request, THREADS)
        number = path_number(request, "schedule")
        row = await self._store(partial(_own_schedule, caller=caller, number=number))
        said = await run_command(self.door, caller, row.channel, f"schedule {verb} {number}")

        def look(execute: Execute) -> ScheduleChange:
            after = schedules.find_schedule(execute, number)
            if (after.state if after else "") != SCHEDULE_ENDS[verb]:
                raise HttpProblem(409, "not_changed", said, "Read the schedule again.")
            return ScheduleChange(schedule_answer(execute, after, caller) if after else None, said)

        return json_response(200, await self._store(look))

    async def _run_schedule(self, request: web.Request) -> web.Response:
        caller = await find_caller(self.door, request, THREADS)
        number = path_number(request, "schedule")
        row = await self._store(partial(_own_schedule, caller=caller, number=number))
        return await self._begin(caller, row.channel, f"schedule run {number}")

    # ------------------------------------------------------------ tasks

    async def _tasks(self, request: web.Request) -> web.Response:
        caller = await find_caller(self.door, request, READ)
        [before] = read_cursor(request, (MOST,))

        def look(execute: Execute) -> OwnTasks:
            found = [tasks.list_of_person(execute, *each, before, PAGE + 1) for each in accounts_of(caller)]
            rows = sorted(itertools.chain(*found), key=lambda row: -row.id)
            more = make_cursor(rows[PAGE - 1].id) if len(rows) > PAGE else None
            return OwnTasks([task_answer(execute, row, caller) for row in rows[:PAGE]], more)

        return read_response(request, await self._store(look))

    async def _cancel_task(self, request: web.Request) -> web.Response:
        caller = await find_caller(self.door, request, THREADS)
        number = path_number(request, "task")
        row = await self._store(partial(_own_task, caller=caller, number=number))
        said = await run_command(self.door, caller, row.channel, f"task {number} cancel")
        if not row.is_open:
            raise HttpProblem(409, "ended", said, "Read the task again.")
        after = await self._store(lambda execute: task_answer(execute, _own_task(execute, caller, number), caller))
        return json_response(200, TaskChange(after, said))

    async def _retry_task(self, request: web.Request) -> web.Response:
        caller = await find_caller(self.door, request, THREADS)
        number = path_number(request, "task")
        row = await self._store(partial(_own_task, caller=caller, number=number))
        if row.is_open:
            raise HttpProblem(409, "busy", "The task has not ended.", "Cancel it first.")
        return await self._begin(caller, row.channel, f"task {number} retry")

    # ------------------------------------------------------------ usage

    async def _usage(self, request: web.Request) -> web.Response:
        caller = await find_caller(self.door, request, READ)
        by, days = request.query.get("by", BY[0]), read_days(request)
        if by not in BY:
            raise BAD_BY
        zone, key = self.door.current.config.zone, payer_key(WEB, caller.author.id)
        read = partial(read_usage, by=by, days=days, now=time.time(), zone=zone, scope="person", key=key)
        return read_response(request, await self._store(read))

    # ------------------------------------------------------------ commands

    async def _begin(self, caller: Caller, channel: str, words: str) -> web.Response:
        """Offer a command that has the agent work to the inbox."""
        await offer(self.door, await make_command(self.door, caller, channel, words))
        return json_response(202, Begun(words))


SCHEDULE_ENDS: dict[str, str] = {"pause": ScheduleState.PAUSED, "resume": ScheduleState.ACTIVE, "delete": ""}


def _own_schedule(execute: Execute, caller: Caller, number: int) -> ScheduleRow:
    row = schedules.find_schedule(execute, number)
    if row is None or row.state == ScheduleState.ENDED or not caller.is_person(row.channel, row.owner):
        raise not_found("schedule")
    return row


def _own_task(execute: Execute, caller: Caller, number: int) -> TaskRow:
    row = tasks.find_task(execute, number)
    if row is None or not caller.is_person(row.channel, row.person):
        raise not_found("task")
    return row
