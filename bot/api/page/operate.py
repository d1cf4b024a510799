"""Serve the operator's screen: all that changes in one answer, and the rest when it is looked at.

What a month has cost is summed over a connection of its own, beside the one of turns, and kept for a while.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from zoneinfo import ZoneInfo

from agent.skills.changes import describe_change
from agent.skills.skill import SkillError
from bot.api.operate import reading
from bot.api.operate.answers import UsageAnswer
from bot.api.operate.endpoints import list_waiting, list_waiting_answers, read_status
from bot.api.page.sign_ins import sign_in_json
from bot.api.shared.caller import Caller, find_caller
from bot.api.shared.read_models import not_found
from bot.api.shared.requests import MOST, PAGE, path_number
from bot.api.shared.sessions import for_page
from bot.commands.feature import Door
from bot.database.database import Execute
from bot.database.rows import parse_row_id
from bot.http.route import HttpProblem, Route, json_response, read_response
from bot.rights import deeds
from bot.rights.budgets import describe_budget
from bot.rights.deeds import Deed
from bot.service.store import read_store
from bot.status.live_view import describe_turn, recent_log
from bot.storage import budgets, people, questions
from bot.storage.api_access import OPERATE
from bot.storage.questions import OpenQuestion
from catalogue import localized, use_language
from channels.shared.texts import language_of
from sandbox.disk.file_threads import run_file_work

if TYPE_CHECKING:
    from aiohttp import web

T = TypeVar("T")
Json = dict[str, Any]
KEPT_TIMES, MOST_KEPT_SECONDS = 20, 120.0  # sums are kept for so many times as long as they took
NOTHING_SPENT = UsageAnswer("", "", 0, 0, 0, 0)
MONTH_DAYS = 31
MAX_DIFF_CHARS = 200_000
DEEDS: Mapping[str, Deed] = {
    "operate": deeds.SEE_SERVICE,
    "end": deeds.END_ANYWHERE,
    "usage": deeds.SEE_TEAM_USAGE,
    "audit": deeds.READ_AUDIT,
    "skills": deeds.CHANGE_SKILLS,
    "access": deeds.GIVE_ROLE_HERE,
    "sign_in": deeds.SIGN_IN_CHANNEL,
}


def allowed_deeds(execute: Execute, door: Door, caller: Caller) -> dict[str, bool]:
    """Return which of the operator's deeds a person may do: these decide what the page offers."""
    may = partial(door.current.access.may_do, execute, caller.chat, caller.author.id)
    return {name: may(deed) for name, deed in DEEDS.items()}


@dataclass(slots=True)
class OperatePage:
    """The routes."""

    door: Door
    _spent: dict[int, tuple[float, Json]] = field(default_factory=dict)  # days → until when they are kept, and the sums
    _summing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def routes(self) -> Sequence[Route]:
        """Return the routes."""
        routes = (
            Route("GET", "/operate", self._screen, quiet=True),
            Route("GET", "/operate/usage", self._usage, quiet=True),
            Route("GET", "/operate/team", self._team, quiet=True),
            Route("GET", "/operate/skills/{hash}", self._diff),
            Route("GET", "/operate/runs/{run}/log", self._log, quiet=True),
        )
        return [*map(for_page, routes)]

    async def _see(self, request: web.Request, deed: Deed = deeds.SEE_SERVICE) -> Caller:
        return await find_caller(self.door, request, OPERATE, deed=deed)

    async def _screen(self, request: web.Request) -> web.Response:
        """Return the first page of all that changes by itself."""
        caller = await self._see(request)
        status = await read_status(self.door, caller)
        with use_language(language_of(caller.chat, caller.author)):
            started = self.door.service is not None  # until then, nobody can be asked anything
            waiting = list_waiting_answers(await list_waiting(self.door, caller)) if started else []
            live = [(turn, describe_turn(turn)) for turn in self.door.runs.running_turns]
            rest = await self.door.store.run(partial(self._read, caller=caller, live=live), durable=False)
        use, places = self.door.status.sandbox_use, self.door.current.limits.live_turns
        sign_ins = {name: sign_in_json(self.door.channel(name)) for name in self.door.status.channel_states()}
        status_now = {"status": status, "sign_ins": {name: each for name, each in sign_ins.items() if each}}
        read_at = library.read_at if (library := self.door.current.skills) else 0
        servers = self.door.status.model_servers()
        more = {**status_now, "servers": servers, "waiting": waiting, "skills_read": read_at}
        return read_response(request, {**more, "sandboxes": len(use.since), "places": places, **rest})

    def _read(self, execute: Execute, caller: Caller, live: Sequence[Any]) -> Json:
        turns = reading.read_turns(execute, caller, self.door.store, live).turns
        now, full = time.time(), len(turns) >= self.door.current.limits.live_turns
        queue, more = reading.read_queue(execute, caller, (float("-inf"), ""), now, full=full)
        return {
            "turns": turns,
            "queue": queue,
            "queue_more": bool(more),
            "asked": [_asked(execute, caller, each) for each in questions.list_open(execute, PAGE)],
            "dead": reading.read_dead(execute, ""),
            "schedules": reading.read_schedules(execute, caller, 0),
            "tasks": reading.read_tasks(execute, caller, MOST),
            "may": allowed_deeds(execute, self.door, caller),
        }

    # ------------------------------------------------------------ what was spent

    async def _usage(self, request: web.Request) -> web.Response:
        """Return what today and the month have cost, by person, chat and model, and by day."""
        await self._see(request, deeds.SEE_TEAM_USAGE)
        today, month = await self._sum(1), await self._sum(MONTH_DAYS)
        return read_response(request, {"today": today, "month": month})

    async def _sum(self, days: int) -> Json:
        """Return the sums of the latest days; those of a while ago if they are known."""
        async with self._summing:
            until, sums = self._spent.get(days, (0.0, {}))
            if time.monotonic() >= until:
                read = partial(_sums, days=days, now=time.time(), zone=self.door.current.config.zone)
                sums, seconds = await asyncio.to_thread(self._beside, read)
                self._spent[days] = (time.monotonic() + min(seconds * KEPT_TIMES, MOST_KEPT_SECONDS), sums)
            return sums

    def _beside(self, read: Callable[[Execute], T]) -> tuple[T, float]:
        """Return what a reader finds over a connection of its own, and the seconds of a processor that it took."""
        began = time.thread_time()
        with read_store(self.door.current.config, snapshot=True) as execute:
            return read(execute), time.thread_time() - began

    # ------------------------------------------------------------ who may what, skills, logs

    async def _team(self, request: web.Request) -> web.Response:
        """Return roles, budgets and skills, to be read."""
        caller = await self._see(request)
        current, library = self.door.current, self.door.current.skills
        with use_language(language_of(caller.chat, caller.author)):
            found = await self.door.store.run(partial(_read_team, door=self.door), durable=False)
            staged = await run_file_work(library.records) if library else None
            found["skills"] = _skills(current.skills.current.skills.values()) if current.skills else []
            faults = current.skills.current.faults if current.skills else {}
            found["faults"] = [{"name": name, "why": localized(why)} for name, why in faults.items()]
        found["staged"] = [
            {"name": each.name, "hash": hash, "is_new": not each.base}
            for hash, each in (staged.staged.items() if staged else ())
        ]
        return read_response(request, found)

    async def _diff(self, request: web.Request) -> web.Response:
        """Return the difference of a skill that waits for a decision."""
        await self._see(request, deeds.CHANGE_SKILLS)
        library = self.door.current.skills
        try:
            change = await run_file_work(describe_change, library, request.match_info["hash"]) if library else None
        except SkillError:
            change = None
        if change is None:
            raise not_found("change of a skill")
        return json_response(200, {"name": change.name, "is_new": change.is_new, "diff": change.diff[:MAX_DIFF_CHARS]})

    async def _log(self, request: web.Request) -> web.Response:
        """Return the lines of the log of one turn, those behind `after`."""
        await self._see(request)
        after = parse_row_id(request.query.get("after", "0"))
        if after is None:
            raise HttpProblem(400, "bad_cursor", "`after` is no number.", "Send the `after` of the answer before.")
        return json_response(200, await recent_log(self.door.store, str(path_number(request, "run")), after))


def _asked(execute: Execute, caller: Caller, row: OpenQuestion) -> Json:
    channel = row.thread.partition("/")[0]
    person, name = reading.name_person(execute, channel, row.requester)
    title = reading.words_for(execute, caller, row.conversation, row.thread, row.requester, row.title)
    more = {"title": title, "who": name or person}
    return {**asdict(row), **more, "approvers": row.approvers.split("\n") if row.approvers else []}


def _sums(execute: Execute, days: int, now: float, zone: ZoneInfo | None) -> Json:
    found = reading.read_all_usage(execute, days, now, zone)
    return {**found, "total": next(iter(found.pop("")), NOTHING_SPENT)}


def _read_team(execute: Execute, door: Door) -> Json:
    access = door.current.access
    given = [
        {
            "channel": row.channel,
            "who": row.name or row.subject,
            "role": row.role,
            "by": row.giver_name,
            "at": row.given,
        }
        for row in people.list_roles(execute)[: PAGE * 4]
    ]
    set_up = [
        {"channel": channel, "who": who, "role": role, "by": "", "at": 0.0}
        for channel, who, role in access.configured_roles()
    ]
    counters = [asdict(each) for each in budgets.list_counters(execute, time.time(), PAGE)]
    return {
        "roles": [{"name": role.name, "rights": sorted(role.rights)} for role in access.roles.values()],
        "people": [*set_up, *given],
        "budgets": [describe_budget(each) for each in door.current.config.budgets],
        "counters": counters,
    }


def _skills(installed: Any) -> list[Json]:
    return [
        {
            "name": each.skill.name,
            "text": each.skill.description,
            "state": str(each.state),
            "warnings": [localized(warning) for warning in each.skill.warnings],
        }
        for each in installed
    ]
