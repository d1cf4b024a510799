"""Serve operators under `/v1/operate` what `fawn status`, `fawn top` and the commands of the chats show and do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from agent.messages import Author, Kind, Message, Origin, Thread
from bot.api.operate import answers, reading
from bot.api.operate.answers import (
    AnswerBody,
    AnsweredItem,
    AuditList,
    ChannelList,
    DeadChange,
    DeadList,
    FeedbackList,
    QueueList,
    ScheduleList,
    StatusAnswer,
    StopAnswer,
    TaskList,
    TurnList,
    UsageList,
    Verification,
    WaitingAnswer,
    WaitingList,
)
from bot.api.shared.caller import Caller, find_caller
from bot.api.shared.read_models import not_found
from bot.api.shared.requests import CURSOR, MOST, PAGE, make_cursor, path_number, read_cursor, text_field
from bot.commands.feature import Door
from bot.commands.waits import PREFIX, Waiting
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.audit_check import ChainReport, verify_chain
from bot.database.database import Execute
from bot.database.states import RunState
from bot.database.web_people import WEB
from bot.http.route import HttpProblem, Query, Route, Spec, json_response, read_json, read_response
from bot.rights import deeds
from bot.rights.audit_reading import KINDS
from bot.rights.deeds import Deed
from bot.service import dead_letters
from bot.service.audit_upkeep import pruning_rules
from bot.service.store import read_store
from bot.status.live_view import describe_turn
from bot.storage import conversations, runs
from bot.storage.api_access import OPERATE
from catalogue import _, use_language
from channels.base import Receipt
from channels.shared.texts import language_of

if TYPE_CHECKING:
    from aiohttp import web

T = TypeVar("T")
VIA = {"via": "http"}  # in the audit
BY = ("person", "chat", "model", "day")
MOST_DAYS = 366
DAYS = Query(
    "days", "how many days, with today; 30 where it is not said", int, bounds={"minimum": 1, "maximum": MOST_DAYS}
)
NO_DEAD = HttpProblem(404, "not_found", "There is no such dead letter.", "Read the list again.")
CLOSED = HttpProblem(409, "answered", "This does not wait any more.", "Read the list again.")
BAD_BY = HttpProblem(400, "bad_query", "`by` is none of its words.", f"Send one of {', '.join(BY)}.")
BAD_DAYS = HttpProblem(400, "bad_query", "`days` is no such number.", f"Send a number from 1 to {MOST_DAYS}.")
BAD_KIND = HttpProblem(
    400, "bad_query", "`kind` is no kind of event.", "Send one such as tool.call, or its part before the dot."
)


@dataclass(frozen=True, slots=True)
class OperateEndpoints:
    """The routes."""

    door: Door
    _verifying: asyncio.Lock = field(default_factory=asyncio.Lock)

    def routes(self) -> Sequence[Route]:
        """Return the routes."""
        read, act = partial(Route, "GET", quiet=True), partial(Route, "POST")
        usage = Spec("What was spent", UsageList, query=(Query("by", "by what", choices=BY), DAYS), problems=(400,))
        kinds = (
            CURSOR,
            Query("kind", "a kind of event, or its part before the dot", choices=tuple(sorted(KINDS))),
            Query("person", "`CHANNEL:ID` of who did it or is concerned"),
        )
        return [
            read("/v1/operate/status", self._status, spec=Spec("What `fawn status` shows", StatusAnswer)),
            read("/v1/operate/turns", self._turns, spec=Spec("The turns in progress", TurnList)),
            act("/v1/operate/runs/{run}/stop", self._stop, spec=Spec("Stop a run", StopAnswer, 202, problems=(404,))),
            read("/v1/operate/queue", self._queue, spec=_paged("Who waits for a turn", QueueList)),
            read("/v1/operate/channels", self._channels, spec=Spec("The channels and their state", ChannelList)),
            read("/v1/operate/dead", self._dead, spec=_paged("What could not be delivered or read", DeadList)),
            act(
                "/v1/operate/dead/{letter}/requeue",
                self._requeue,
                spec=Spec("Send a dead letter again", DeadChange, problems=(404,)),
            ),
            Route(
                *("DELETE", "/v1/operate/dead/{letter}", self._drop),
                spec=Spec("Drop a dead letter", DeadChange, problems=(404,)),
            ),
            read("/v1/operate/audit", self._audit, spec=Spec("The audit", AuditList, query=kinds, problems=(400,))),
            read("/v1/operate/audit/verify", self._verify, spec=Spec("Verify the audit", Verification)),
            read("/v1/operate/feedback", self._feedback, spec=_paged("The thumbs of people", FeedbackList)),
            read("/v1/operate/usage", self._usage, spec=usage),
            read("/v1/operate/schedules", self._schedules, spec=_paged("The schedules of everybody", ScheduleList)),
            read("/v1/operate/tasks", self._tasks, spec=_paged("The background tasks of everybody", TaskList)),
            read("/v1/operate/waiting", self._waiting, spec=_paged("What waits for the caller", WaitingList)),
            act(
                "/v1/operate/waiting/{number}/answer",
                self._answer,
                spec=Spec("Answer it", AnsweredItem, 202, body=AnswerBody, problems=(404, 409, 422)),
            ),
        ]

    async def _see(self, request: web.Request, deed: Deed = deeds.SEE_SERVICE) -> Caller:
        return await find_caller(self.door, request, OPERATE, deed=deed)

    async def _read(self, request: web.Request, read: Callable[[Execute], object]) -> web.Response:
        return read_response(request, await self.door.store.run(read, durable=False))

    # ------------------------------------------------------------ now

    async def _status(self, request: web.Request) -> web.Response:
        return read_response(request, await read_status(self.door, await self._see(request)))

    async def _channels(self, request: web.Request) -> web.Response:
        caller = await self._see(request)
        with use_language(language_of(caller.chat, caller.author)):
            return read_response(request, ChannelList(_channels(self.door.status.channel_states())))

    async def _turns(self, request: web.Request) -> web.Response:
        caller = await self._see(request)
        live = [(turn, describe_turn(turn)) for turn in self.door.runs.running_turns]
        return await self._read(request, partial(reading.read_turns, caller=caller, store=self.door.store, live=live))

    async def _queue(self, request: web.Request) -> web.Response:
        caller = await self._see(request)
        after, places = read_cursor(request, (float("-inf"), "")), self.door.current.limits.live_turns

        def read(execute: Execute) -> QueueList:
            store = self.door.store
            others = conversations.count_others(execute, store.me) if store.is_shared else 0
            busy = len(self.door.runs.running_turns) + others
            queue, more = reading.read_queue(execute, caller, after, time.time(), full=busy >= places)
            return QueueList(queue, places, busy, more)

        return await self._read(request, read)

    async def _stop(self, request: web.Request) -> web.Response:
        """Stop a run as the command `/stop` does, wherever it is."""
        caller = await self._see(request, deeds.END_ANYWHERE)
        run = path_number(request, "run")
        stopped = await self.door.store.run(partial(_request_stop, run=run, caller=caller))
        if stopped:
            self.door.running().stop_run(run, caller.author.id)
        return json_response(202, StopAnswer(run, stopped))

    # ------------------------------------------------------------ dead letters

    async def _dead(self, request: web.Request) -> web.Response:
        await self._see(request)
        [after] = read_cursor(request, ("",))
        return await self._read(request, partial(reading.read_dead, after=after))

    async def _requeue(self, request: web.Request) -> web.Response:
        return await self._change(request, dead_letters.requeue, "requeued")

    async def _drop(self, request: web.Request) -> web.Response:
        return await self._change(request, dead_letters.drop, "dropped")

    async def _change(self, request: web.Request, change: Callable[..., bool], state: str) -> web.Response:
        caller = await self._see(request, deeds.END_ANYWHERE)
        id = request.match_info["letter"]
        if not await self.door.store.run(partial(change, id=id, what=VIA, place=caller.chat, who=caller.author.id)):
            raise NO_DEAD
        return json_response(200, DeadChange(id, state))

    # ------------------------------------------------------------ the past

    async def _audit(self, request: web.Request) -> web.Response:
        caller = await self._see(request, deeds.READ_AUDIT)
        kind, wanted = request.query.get("kind", ""), request.query.get("person", "")
        if kind and kind not in KINDS:
            raise BAD_KIND
        [before] = read_cursor(request, (MOST,))
        read = partial(reading.read_audit, door=self.door, caller=caller, kind=kind, wanted=wanted, before=before)
        return await self._read(request, read)

    async def _verify(self, request: web.Request) -> web.Response:
        """Verify the chain as `fawn audit verify` does without an anchor, in a thread; one after the other."""
        await self._see(request, deeds.READ_AUDIT)
        async with self._verifying:
            report = await asyncio.to_thread(self._verify_chain)
        head = f"{report.seq}:{report.hash.hex()}"
        return read_response(request, Verification(not report.fault, report.rows, head, report.fault or ""))

    def _verify_chain(self) -> ChainReport:
        config = self.door.current.config
        with read_store(config, snapshot=True) as execute:
            return verify_chain(execute, {}, pruning_rules(config.audit))

    async def _feedback(self, request: web.Request) -> web.Response:
        caller = await self._see(request)
        before = read_cursor(request, (float("inf"), MOST, ""))
        return await self._read(request, partial(reading.read_feedback, caller=caller, before=before, now=time.time()))

    async def _usage(self, request: web.Request) -> web.Response:
        await self._see(request, deeds.SEE_TEAM_USAGE)
        by, days = request.query.get("by", BY[0]), read_days(request)
        if by not in BY:
            raise BAD_BY
        zone = self.door.current.config.zone
        read = partial(reading.read_usage, by=by, days=days, now=time.time(), zone=zone)
        return await self._read(request, read)

    # ------------------------------------------------------------ work and decisions

    async def _schedules(self, request: web.Request) -> web.Response:
        caller = await self._see(request)
        [after] = read_cursor(request, (0,))
        return await self._read(request, partial(reading.read_schedules, caller=caller, after=after))

    async def _tasks(self, request: web.Request) -> web.Response:
        caller = await self._see(request)
        [before] = read_cursor(request, (MOST,))
        return await self._read(request, partial(reading.read_tasks, caller=caller, before=before))

    async def _waiting(self, request: web.Request) -> web.Response:
        caller = await self._see(request)
        after = read_cursor(request, (float("-inf"), 0))
        with use_language(language_of(caller.chat, caller.author)):
            found = list_waiting_answers(await list_waiting(self.door, caller))
        items = sorted((item for item in found if (item.since, item.number) > after), key=_place_of)
        more = make_cursor(*_place_of(items[PAGE - 1])) if len(items) > PAGE else None
        return read_response(request, WaitingList(items[:PAGE], more))

    async def _answer(self, request: web.Request) -> web.Response:
        """Answer what waits, as a press in the list of `/waiting` does."""
        caller = await self._see(request)
        number = path_number(request, "number")
        given = text_field(await read_json(request), "answer")
        found = {listed: (viewer, item) for viewer, listed, item in await list_waiting(self.door, caller)}
        if number not in found:
            raise not_found("question")
        viewer, item = found[number]
        if (answer := item.accept(given)) is None:
            fix = f"Send one of the options: {', '.join(item.options)}"
            raise HttpProblem(422, "no_option", "This is no answer to the question.", fix)
        [receipt] = await self.door.receive([_say(viewer.thread, viewer.author, answer, f"{PREFIX}{number}")])
        if receipt is not Receipt.ACCEPTED:
            raise CLOSED
        return json_response(202, AnsweredItem(number, answer))


async def read_status(door: Door, caller: Caller) -> StatusAnswer:
    """Return what `fawn status` shows, in the caller's language."""
    with use_language(language_of(caller.chat, caller.author)):
        report = await door.status.report()
    now = time.time()
    error = report["model_error"]
    return StatusAnswer(
        version=report["version"],
        healthy=report["healthy"],
        ready=report["ready"],
        started=float(round(now - report["uptime"])),
        troubles=[answers.TroubleAnswer(**each) for each in report["troubles"]],
        channels=_channels(report["channels"]),
        model=report["model"],
        model_error=answers.ModelError(error["model"], error["text"], now - error["age"]) if error else None,
        sandbox=report["sandbox"],
        turns=report["live"],
        queued=report["queued"],
        oldest=int(report["oldest"]),
        undelivered=report["undelivered"],
        dead=report["dead"],
        unpaired=report["unpaired"],
        jobs=answers.JobsAnswer(**report["jobs"]),
        feedback=answers.Thumbs(**report["feedback"]),
    )


async def list_waiting(door: Door, caller: Caller) -> list[tuple[Message, int, Waiting]]:
    """Return what waits for the caller: in their chats, as `/waiting` lists it there, and in their own threads."""
    waits = door.running().waits

    def look(execute: Execute) -> list[tuple[Message, int, Waiting]]:
        home, id = caller.home(execute)
        author = Author(id, caller.author.name, language=caller.author.language)
        viewers = [_say(caller.chat, caller.author)] + ([_say(home, author)] if home.chat else [])
        found = [(each, *item) for each in viewers for item in waits(execute, each, time.time())]
        return sorted(found, key=lambda each: each[2].since)

    return await door.store.run(look, durable=False)  # it gives numbers, which a later look may give anew


def list_waiting_answers(found: Sequence[tuple[Message, int, Waiting]]) -> list[WaitingAnswer]:
    """Return what waits as JSON has it."""
    return [_waiting(number, item) for _viewer, number, item in found]


def read_days(request: web.Request) -> int:
    """Return the number of days that the address names. Raises HttpProblem."""
    text = request.query.get(DAYS.name, "30")
    if not (text.isascii() and text.isdecimal() and len(text) <= 3 and 1 <= int(text) <= MOST_DAYS):
        raise BAD_DAYS
    return int(text)


def _paged(summary: str, answer: type) -> Spec:
    return Spec(summary, answer, query=(CURSOR,), problems=(400,))


def _channels(states: dict[str, dict[str, object]]) -> list[answers.ChannelAnswer]:
    return [
        answers.ChannelAnswer(name, str(state["health"]), float(str(state["since"])), str(state["detail"]))
        for name, state in states.items()
    ]


def _request_stop(execute: Execute, run: int, caller: Caller) -> bool:
    """Record that a run is to stop; return False for one that has ended. Raises HttpProblem."""
    row = runs.find_run(execute, run)
    home = conversations.find_conversation(execute, row.conversation) if row else None
    if row is None or home is None:
        raise not_found("run")
    if row.state not in (RunState.QUEUED, RunState.RUNNING):
        return False
    runs.request_stop(execute, run, caller.author.id)
    what: dict[str, int | str] = {**VIA, "name": "stop"}
    place = Thread.parse(home.thread)
    audit.record(
        execute, AuditEvent(AuditKind.COMMAND, place, caller.author.id, channel=WEB, run=run, what=what, result="done")
    )
    return True


def _say(thread: Thread, author: Author, text: str = "", target: str = "") -> Message:
    """Return a press of the caller in the list of what waits for them."""
    key = f"web:press:{uuid4().hex}"
    now = time.time()
    return Message(thread, key, key, author, text, now, Kind.CLICK, target=target, private=True, origin=Origin.PERSON)


def _place_of(item: WaitingAnswer) -> tuple[float, int]:
    return item.since, item.number


def _waiting(number: int, item: Waiting) -> WaitingAnswer:
    kind = "approve" if item.call else "ask" if item.conversation else item.target.partition(":")[0]
    return WaitingAnswer(
        *(number, kind, item.question, [*map(_, item.options)], item.free_text, item.call),
        *(str(item.place), item.title, item.who, item.since, item.target),
    )
