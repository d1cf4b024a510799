"""Serve threads, messages, runs and questions of the key's person under `/v1`.

Serve the events of a run, of a thread, and of all that the key's person may see.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from uuid import uuid4

import orjson
from aiohttp import web

from agent.blocks import Ask
from agent.messages import Kind, Thread
from bot.api.answers import (
    Answered,
    CommandAnswer,
    CommandBody,
    MessageAnswer,
    MessageBody,
    RunAnswer,
    ThreadList,
    ThreadPage,
)
from bot.api.operate.answers import AnswerBody
from bot.api.shared import read_models
from bot.api.shared.caller import NO_ACCESS, Caller, find_caller, read_for_caller
from bot.api.shared.event_hub import EventHub, Subscription
from bot.api.shared.event_json import Position, RunPosition
from bot.api.shared.event_streams import ENDED, RunEvents, ThreadEvents
from bot.api.shared.posting import event_key, make_message, make_stop, take, take_with_files
from bot.api.shared.read_models import Json, message_json, not_found
from bot.api.shared.requests import checked_text, path_number, path_thread, text_field
from bot.api.shared.uploads import FORM, read_form
from bot.base.stored_files import WebFiles
from bot.commands.feature import Door
from bot.config.team import Right
from bot.database.database import Execute
from bot.database.rows import parse_row_id
from bot.database.states import RunState
from bot.http.event_stream import EventStream, last_event_id
from bot.http.route import HttpProblem, Query, Route, Spec, json_response, read_json, read_response
from bot.rights.approvals import may_answer
from bot.storage import questions, transcripts
from bot.storage.api_access import READ, THREADS
from channels.base import Receipt, parse_command_text

MESSAGE_BYTES = 1 << 20
MAX_KEY_CHARS = 255
BEFORE = Query("before", "the `next` of the page before")
AFTER = Query("after", "the `next` of the page before", int, bounds={"minimum": 0, "maximum": 10**18 - 1})
THREAD = Spec("A thread with a page of its entries", ThreadPage, query=(AFTER,), problems=(404,))
POST = Spec(
    *("Write a message", MessageAnswer, 202),
    body=MessageBody,
    problems=(409, 429, 507),
    idempotent=True,
    form=True,
)
COMMAND = Spec("Send a command of the chats", CommandAnswer, 202, body=CommandBody, idempotent=True)
MESSAGE = Spec("The run that took a message", MessageAnswer, problems=(404,))
RUN = Spec("A run", RunAnswer, problems=(404,))
STOP = Spec("Stop a run, or close its questions", RunAnswer, 202, problems=(404,))
ANSWER = Spec("Answer a question", Answered, 202, body=AnswerBody, problems=(404, 409))
OVER = HttpProblem(409, "answered", "The question is not open any more.", "Read the run.")
_CURSOR = re.compile(r"[0-9.e+-]{1,30}~[\x21-\x7e]{1,500}")


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The routes."""

    door: Door
    files: WebFiles

    def routes(self) -> Sequence[Route]:
        """Return the routes."""
        return [
            Route("GET", "/v1/threads", self._threads, spec=Spec("One's threads", ThreadList, query=(BEFORE,))),
            Route("GET", "/v1/threads/{thread}", self._thread, spec=THREAD),
            Route("POST", "/v1/threads/{thread}/messages", self._post, body_bytes=MESSAGE_BYTES, spec=POST),
            Route("POST", "/v1/threads/{thread}/commands", self._command, spec=COMMAND),
            Route("GET", "/v1/messages/{message}", self._message, spec=MESSAGE),
            Route("GET", "/v1/runs/{run}", self._run, spec=RUN),
            Route("POST", "/v1/runs/{run}/stop", self._stop, spec=STOP),
            Route("POST", "/v1/questions/{question}/answer", self._answer, spec=ANSWER),
        ]

    async def _threads(self, request: web.Request) -> web.Response:
        def read(execute: Execute, caller: Caller) -> Json:
            before = request.query.get("before", "")
            if before and not _CURSOR.fullmatch(before):
                raise HttpProblem(400, "bad_cursor", "`before` is no cursor.", "Send the `next` of the page before.")
            return read_models.list_threads(execute, caller, before)

        return read_response(request, await read_for_caller(self.door, request, READ, read))

    async def _thread(self, request: web.Request) -> web.Response:
        def read(execute: Execute, caller: Caller) -> Json:
            after = parse_row_id(request.query.get("after", "0"))
            if after is None:
                raise HttpProblem(400, "bad_cursor", "`after` is no number.", "Send the `next` of the page before.")
            return read_models.read_thread(execute, caller, path_thread(request), after)

        return read_response(request, await read_for_caller(self.door, request, READ, read))

    async def _message(self, request: web.Request) -> web.Response:
        def read(execute: Execute, caller: Caller) -> Json:
            return read_models.read_message(execute, caller, path_number(request, "message"))

        return read_response(request, await read_for_caller(self.door, request, READ, read))

    async def _post(self, request: web.Request) -> web.Response:
        caller = await find_caller(self.door, request, THREADS, Right.TALK)
        thread = caller.thread(path_thread(request))
        key = _idempotency_key(request)
        if request.content_type != FORM:
            text = text_field(await read_json(request), "text")
            message = make_message(caller, thread, text, event_key(thread, key))
            return json_response(202, message_json(thread, await take(self.door, message)))
        limit = self.door.current.config.uploads.max_mb << 20
        async with read_form(request, self.files, MESSAGE_BYTES, limit) as upload:
            text = checked_text(upload.text, "text") if upload.text or not upload.files else ""
            message = make_message(caller, thread, text, event_key(thread, key))
            return json_response(202, message_json(thread, await take_with_files(self.door, message, upload)))

    async def _command(self, request: web.Request) -> web.Response:
        """Take a command of the chats, such as "/status"; its answer is a notice in the thread."""
        caller = await find_caller(self.door, request, THREADS)
        thread = caller.thread(path_thread(request))
        key = _idempotency_key(request)
        text = text_field(await read_json(request), "command")
        command = parse_command_text(text)
        if not command:
            fix = "Send one as a chat takes it; the command help lists them."
            raise HttpProblem(422, "no_command", "This is no command.", fix)
        message = make_message(caller, thread, command, event_key(thread, key), Kind.COMMAND)
        await self.door.receive([message])
        return json_response(202, {"thread": thread.topic, "command": command})

    async def _run(self, request: web.Request) -> web.Response:
        caller = await find_caller(self.door, request, READ)
        return read_response(request, await self._read_run(caller, path_number(request, "run")))

    async def _read_run(self, caller: Caller, number: int) -> Json:
        found, row, thread = await self.door.store.run(
            partial(read_models.read_run, caller=caller, number=number), durable=False
        )
        if row.state == RunState.RUNNING:
            await self.door.runs.look(thread)
        live = self.door.runs.find(number)
        return found | ({"text": live.feed.view.text} if live else {})

    async def _stop(self, request: web.Request) -> web.Response:
        """Send the command `/stop`, for the run, or for the questions with which it waits."""
        caller = await find_caller(self.door, request, THREADS)
        number = path_number(request, "run")
        _found, row, thread = await self.door.store.run(
            partial(read_models.read_run, caller=caller, number=number), durable=False
        )
        if row.state in (RunState.QUEUED, RunState.RUNNING, RunState.WAITING):
            target = "" if row.state == RunState.WAITING else f"r{number}"
            await self.door.receive([make_stop(caller, thread, target)])
        return json_response(202, await self._read_run(caller, number))

    async def _answer(self, request: web.Request) -> web.Response:
        caller = await find_caller(self.door, request, THREADS)
        id = request.match_info["question"]
        given = text_field(await read_json(request), "answer")
        asked, thread, run = await self.door.store.run(
            partial(_find_question, door=self.door, caller=caller, id=id), durable=False
        )
        if (answer := given if asked.free_text or not asked.options else asked.match_option(given)) is None:
            fix = f"Send one of the options: {', '.join(asked.options)}"
            raise HttpProblem(422, "no_option", "This is no answer to the question.", fix)
        key = f"web:answer:{uuid4().hex}"
        click = make_message(caller, thread, answer, key, Kind.CLICK, id)
        receipt, stored = await self.door.receive_one(click)
        if receipt is not Receipt.ACCEPTED:
            raise OVER
        found = {"question": id, "answer": answer, "thread": thread.topic, "run": run}
        return json_response(202, {**found, "message": stored.id if stored else None})


def _find_question(execute: Execute, door: Door, caller: Caller, id: str) -> tuple[Ask, Thread, int | None]:
    """Return what the caller may answer, where it was asked, and its run: an open question, or a notice with buttons.

    Raises HttpProblem.
    """
    conversation = questions.conversation_of_open(execute, id, str(caller.chat))
    thread = read_models.own_conversation(execute, caller, conversation)
    asked = questions.unresolved_questions(execute, conversation) if thread else []
    row = next((each for each in asked if each.id == id), None)
    if row is None or thread is None:
        return _find_press(execute, caller, id)
    if not may_answer(execute, door.current.access, row, thread, caller.author.id, at=time.time()):
        raise NO_ACCESS
    return Ask(row.id, row.text, row.options, bool(row.free_text)), thread, row.run


def _find_press(execute: Execute, caller: Caller, id: str) -> tuple[Ask, Thread, None]:
    for notice in reversed(transcripts.notices_of_chat(execute, caller.chat)):
        for ask in orjson.loads(notice.asks):
            if ask["id"] == id:
                return Ask(id, ask["question"], tuple(ask["options"]), False), Thread.parse(notice.thread), None
    if questions.is_over(execute, id, str(caller.chat)):
        raise OVER
    raise not_found("open question")


def _idempotency_key(request: web.Request) -> str:
    found = request.headers.get("Idempotency-Key")
    if found is None:
        return uuid4().hex
    if not (0 < len(found) <= MAX_KEY_CHARS and found.isascii() and found.isprintable()):
        fix = f"Send up to {MAX_KEY_CHARS} printable ASCII characters, such as a UUID."
        raise HttpProblem(400, "bad_idempotency_key", "The Idempotency-Key cannot be used.", fix)
    return found


P = TypeVar("P")
AFTER_EVENT = Query("after", "the id of the last event; so does the header Last-Event-ID")


class EventEndpoints:
    """The routes."""

    def __init__(self, door: Door, hub: EventHub) -> None:
        self._door = door
        self._hub = hub

    def routes(self) -> Sequence[Route]:
        """Return the routes."""
        return [
            Route("GET", "/v1/events", self._all, spec=_events("all threads")),
            Route("GET", "/v1/threads/{thread}/events", self._thread, spec=_events("a thread")),
            Route(
                "GET", "/v1/messages/{message}/events", self._message, spec=_events("the run that takes a message", 404)
            ),
            Route("GET", "/v1/runs/{run}/events", self._run, spec=_events("a run", 404)),
        ]

    async def _all(self, request: web.Request) -> web.StreamResponse:
        caller = await find_caller(self._door, request, READ)
        return await self._tell_threads(request, caller, caller.chat)

    async def _thread(self, request: web.Request) -> web.StreamResponse:
        caller = await find_caller(self._door, request, READ)
        return await self._tell_threads(request, caller, caller.thread(path_thread(request)))

    async def _tell_threads(self, request: web.Request, caller: Caller, place: Thread) -> web.StreamResponse:
        position = _position(request, Position.parse)

        async def tell(stream: EventStream, subscription: Subscription) -> None:
            await ThreadEvents(self._door, caller, place, stream, subscription, position).run()

        return await self._hub.stream(request, caller, place, tell)

    async def _message(self, request: web.Request) -> web.StreamResponse:
        caller = await find_caller(self._door, request, READ)
        number = path_number(request, "message")
        found = await self._door.store.run(
            partial(read_models.read_message, caller=caller, number=number), durable=False
        )
        return await self._tell_run(request, caller, caller.thread(found["thread"]), found["run"], number)

    async def _run(self, request: web.Request) -> web.StreamResponse:
        caller = await find_caller(self._door, request, READ)
        number = path_number(request, "run")
        _found, _row, thread = await self._door.store.run(
            partial(read_models.read_run, caller=caller, number=number), durable=False
        )
        return await self._tell_run(request, caller, thread, number, None)

    async def _tell_run(
        self, request: web.Request, caller: Caller, thread: Thread, run: int | None, message: int | None
    ) -> web.StreamResponse:
        if last_event_id(request) == ENDED:
            return web.Response(status=204)  # a browser then asks no more
        position = _position(request, RunPosition.parse)

        async def tell(stream: EventStream, subscription: Subscription) -> None:
            await RunEvents(self._door, caller, stream, subscription, run, message, position).send()

        return await self._hub.stream(request, caller, thread, tell)


def _events(whose: str, *problems: int) -> Spec:
    return Spec(f"The events of {whose}", query=(AFTER_EVENT,), problems=problems, media="events")


def _position(request: web.Request, parse: Callable[[str], P | None]) -> P | None:
    """Return where the client wants to go on; None for the present. Raises HttpProblem."""
    if not (text := last_event_id(request)):
        return None
    if (position := parse(text)) is None:
        fix = "Send the `id` of an event, or nothing to begin at the present."
        raise HttpProblem(400, "bad_cursor", "This is not the id of an event.", fix)
    return position
