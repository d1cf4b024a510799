"""Begin, name, search and delete threads, and repeat a run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from agent.messages import Kind, Thread
from bot.api.own.answers import FoundEntry, FoundList, NewThread, Retried, ThreadAnswer, ThreadTitle
from bot.api.shared.caller import Caller, find_caller
from bot.api.shared.posting import make_message, offer
from bot.api.shared.read_models import find_thread, read_run
from bot.api.shared.requests import (
    BAD_THREAD,
    CURSOR,
    MOST,
    PAGE,
    THREAD_ID,
    checked_text,
    make_cursor,
    path_number,
    path_thread,
    read_cursor,
    text_field,
)
from bot.commands.feature import Door
from bot.config.team import Right
from bot.database.database import Execute
from bot.database.states import RunState
from bot.http.route import HttpProblem, Query, Route, Spec, json_response, read_json, read_response
from bot.storage import conversations, runs, transcripts
from bot.storage.api_access import READ, THREADS
from bot.storage.runs import RunRow
from bot.storage.web import delete_thread

if TYPE_CHECKING:
    from aiohttp import web

MAX_TITLE_CHARS = 200
WORDS = Query("q", "words: entries that have all of them are found")
NO_WORDS = HttpProblem(400, "bad_query", "`q` has no words.", "Send ?q=WORDS.")
EXISTS = HttpProblem(409, "exists", "There is such a thread.", "Choose another id, or post to it.")
BAD_BODY = HttpProblem(
    422, "bad_body", "The body is not an object with `id` and `title`.", 'Send {}, or {"id": "…", "title": "…"}.'
)
BUSY = HttpProblem(409, "busy", "A run of this thread is in progress.", "Wait for its end, or stop it.")
NOT_LATEST = HttpProblem(409, "not_latest", "Later requests came in this thread.", "Send the message again.")


@dataclass(frozen=True, slots=True)
class ThreadChanges:
    """The routes."""

    door: Door

    def routes(self) -> Sequence[Route]:
        """Return the routes."""
        thread = "/v1/threads/{thread}"
        return [
            Route(
                *("POST", "/v1/threads", self._create),
                spec=Spec("Begin a thread", ThreadAnswer, 201, body=NewThread, problems=(400, 409, 422)),
            ),
            Route(
                *("PATCH", thread, self._rename),
                spec=Spec("Name a thread", ThreadAnswer, body=ThreadTitle, problems=(400, 404, 422)),
            ),
            Route(
                *("DELETE", thread, self._delete),
                spec=Spec("Delete a thread with all that it holds", status=204, problems=(400, 404)),
            ),
            Route(
                *("GET", "/v1/search", self._search),
                spec=Spec("Find what was said", FoundList, query=(WORDS, CURSOR), problems=(400,)),
            ),
            Route(
                *("POST", "/v1/runs/{run}/retry", self._retry),
                spec=Spec("Repeat the latest run of a thread", Retried, 202, problems=(404, 409, 429)),
            ),
        ]

    async def _create(self, request: web.Request) -> web.Response:
        caller = await find_caller(self.door, request, THREADS, Right.TALK)
        id, title = _read_new(await read_json(request))
        thread = caller.thread(id)

        def create(execute: Execute) -> ThreadAnswer:
            if conversations.find_current(execute, thread):
                raise EXISTS
            conversations.begin_conversation(execute, thread, time.time())
            if title:
                conversations.replace_title(execute, thread, title)
            return _thread(execute, thread)

        created = await self.door.store.run(create)
        return json_response(201, created, {"Location": f"/v1/threads/{id}"})

    async def _rename(self, request: web.Request) -> web.Response:
        """Offer the name to the inbox, as a platform does with that of a thread."""
        caller = await find_caller(self.door, request, THREADS)
        thread = caller.thread(path_thread(request))
        title = _title(text_field(await read_json(request), "title"))
        await self.door.store.run(partial(_thread, thread=thread), durable=False)
        await self.door.receive([make_message(caller, thread, title, f"web:title:{uuid4().hex}", Kind.TITLE)])
        return json_response(200, await self.door.store.run(partial(_thread, thread=thread), durable=False))

    async def _delete(self, request: web.Request) -> web.Response:
        from aiohttp import web

        caller = await find_caller(self.door, request, THREADS)
        thread = caller.thread(path_thread(request))

        def delete(execute: Execute) -> list[int]:
            _thread(execute, thread)
            return delete_thread(execute, thread, caller.author.id)

        service = self.door.running()
        for run in await self.door.store.run(delete):
            service.stop_run(run, caller.author.id)
        return web.Response(status=204)

    async def _search(self, request: web.Request) -> web.Response:
        caller = await find_caller(self.door, request, READ)
        words = request.query.get(WORDS.name, "").replace("\0", " ").split()
        if not words:
            raise NO_WORDS
        [before] = read_cursor(request, (MOST,))
        where = partial(transcripts.search_chat, thread=caller.thread("x"), words=words, topics=True, before=before)
        found = await self.door.store.run(partial(_search, search=partial(where, limit=PAGE + 1)), durable=False)
        more = make_cursor(found[PAGE - 1].id) if len(found) > PAGE else None
        return read_response(request, FoundList(found[:PAGE], more))

    async def _retry(self, request: web.Request) -> web.Response:
        """Send the command `/retry`, as the button below an answer does."""
        caller = await find_caller(self.door, request, THREADS, Right.TALK)
        number = path_number(request, "run")
        row, thread = await self.door.store.run(partial(_repeatable, caller=caller, number=number), durable=False)
        retry = make_message(caller, thread, "retry", f"web:retry:{uuid4().hex}", Kind.COMMAND)
        retry = replace(retry, target=f"r{row.id}")
        await offer(self.door, retry)
        return json_response(202, Retried(number, thread.topic))


def _read_new(body: Any) -> tuple[str, str]:
    """Return id and title of a new thread. Raises HttpProblem."""
    if not isinstance(body, dict) or not {*body} <= {"id", "title"}:
        raise BAD_BODY
    id, title = body.get("id", f"{uuid4()}"), body.get("title", "")
    if not isinstance(id, str) or not isinstance(title, str):
        raise BAD_BODY
    if not THREAD_ID.fullmatch(id):
        raise BAD_THREAD
    return id, _title(title) if title else ""


def _title(text: str) -> str:
    """Return a title as one line. Raises HttpProblem."""
    line = " ".join(checked_text(text, "title").split())
    if len(line) > MAX_TITLE_CHARS:
        raise HttpProblem(422, "too_long", "The title is too long.", f"Send up to {MAX_TITLE_CHARS} characters.")
    return line


def _thread(execute: Execute, thread: Thread) -> ThreadAnswer:
    row = find_thread(execute, thread)
    return ThreadAnswer(thread.topic, row.title, row.created, row.used)


def _search(execute: Execute, search: Any) -> list[FoundEntry]:
    found = []
    for entry in search(execute):
        row = conversations.find_conversation(execute, entry.conversation)
        topic = Thread.parse(row.thread).topic if row else ""
        by = "person" if entry.author else "agent"
        found.append(FoundEntry(entry.id, topic, entry.run or None, by, entry.kind, entry.text, entry.at))
    return found


def _repeatable(execute: Execute, caller: Caller, number: int) -> tuple[RunRow, Thread]:
    """Return a run that can be repeated, and its thread. Raises HttpProblem."""
    _found, row, thread = read_run(execute, caller, number)
    latest = runs.latest_run(execute, row.conversation)
    if latest is None or latest.id != row.id:
        raise NOT_LATEST
    if row.state in (RunState.QUEUED, RunState.RUNNING, RunState.WAITING):
        raise BUSY
    return row, thread
