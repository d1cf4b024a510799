"""Serve what the clients of LangGraph ask for: assistants, threads, runs and their streams.

https://langchain-ai.github.io/langgraph/cloud/reference/api/api_ref.html
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

import orjson
from aiohttp import web

from agent.messages import Thread
from bot.api.langgraph import shapes
from bot.api.langgraph.runs import MODES, LangGraphStream, begin_run, begin_stateless_run
from bot.api.langgraph.shapes import GRAPH, assistant, parse_run_id, run_id
from bot.api.shared.caller import Caller, find_caller
from bot.api.shared.event_hub import EventHub, Subscription
from bot.api.shared.event_json import Json, RunPosition
from bot.api.shared.event_streams import RunEvents
from bot.api.shared.posting import make_stop
from bot.api.shared.read_models import not_found, own_conversation
from bot.api.shared.requests import THREAD_ID, path_thread
from bot.commands.feature import Door
from bot.config.team import Right
from bot.database.database import Execute
from bot.http.event_stream import EventStream, last_event_id
from bot.http.route import HttpProblem, Route, dump_json, json_response, read_json
from bot.storage import conversations, inbox, runs
from bot.storage.api_access import READ, THREADS
from bot.storage.inbox import InboxRow
from bot.storage.web import delete_thread, list_notes, read_note, write_note

BODY_BYTES = 1 << 20
INPUT_BYTES = 16 << 20  # of an input, whose files are in it
NOTE_BYTES = 16 << 10
PAGE, MOST = 10, 100
THREAD, RUN = "/threads/{thread}", "/threads/{thread}/runs/{run}"
FROM_BEGIN = "-1"  # as Last-Event-ID
BAD_BODY = HttpProblem(422, "bad_body", "The body is not an object of this kind.", "Use a client of LangGraph.")
EXISTS = HttpProblem(409, "exists", "There is such a thread.", "Send if_exists: do_nothing to take it.")
BAD_ID = HttpProblem(422, "bad_thread", "This cannot be the id of a thread.", "Send a UUID.")


@dataclass(frozen=True, slots=True)
class LangGraphEndpoints:
    """The routes."""

    door: Door
    hub: EventHub

    def routes(self) -> Sequence[Route]:
        """Return the routes."""
        found = [
            ("GET", "/ok", self._ok),
            ("GET", "/info", self._info),
            ("POST", "/assistants/search", self._assistants),
            ("GET", "/assistants/{assistant}", self._assistant),
            ("GET", "/assistants/{assistant}/schemas", self._schemas),
            ("POST", "/threads", self._create),
            ("POST", "/threads/search", self._search),
            ("GET", THREAD, self._thread),
            ("PATCH", THREAD, self._patch),
            ("DELETE", THREAD, self._delete),
            ("GET", f"{THREAD}/state", self._state),
            ("POST", f"{THREAD}/state/checkpoint", self._checkpoint),
            ("POST", f"{THREAD}/history", self._history),
            ("POST", f"{THREAD}/runs", self._begin),
            ("GET", f"{THREAD}/runs", self._runs),
            ("POST", f"{THREAD}/runs/stream", self._stream),
            ("POST", f"{THREAD}/runs/wait", self._wait),
            ("POST", "/runs", self._begin),
            ("POST", "/runs/stream", self._stream),
            ("POST", "/runs/wait", self._wait),
            ("GET", RUN, self._run),
            ("GET", f"{RUN}/stream", self._join_stream),
            ("GET", f"{RUN}/join", self._join),
            ("POST", f"{RUN}/cancel", self._cancel),
            ("GET", f"{THREAD}/stream", self._thread_stream),
        ]
        begin = (self._begin, self._stream, self._wait)
        return [
            Route(method, path, handle, body_bytes=INPUT_BYTES if method == "POST" and handle in begin else BODY_BYTES)
            for method, path, handle in found
        ]

    # ------------------------------------------------------------ what there is

    async def _ok(self, _request: web.Request) -> web.Response:
        return json_response(200, {"ok": True})

    async def _info(self, request: web.Request) -> web.Response:
        await caller_of(self.door, request)
        flags = {"assistants": True, "crons": False, "langsmith": False}
        return json_response(200, {"version": "0.1", "flags": flags})

    async def _assistants(self, request: web.Request) -> web.Response:
        await caller_of(self.door, request)
        return json_response(200, [assistant()])

    async def _assistant(self, request: web.Request) -> web.Response:
        await caller_of(self.door, request)
        if request.match_info["assistant"] != GRAPH:
            raise not_found("assistant")
        return json_response(200, assistant())

    async def _schemas(self, request: web.Request) -> web.Response:
        await caller_of(self.door, request)
        kinds = ("input_schema", "output_schema", "state_schema", "config_schema", "context_schema")
        return json_response(200, {"graph_id": GRAPH, **dict.fromkeys(kinds)})

    # ------------------------------------------------------------ threads

    async def _create(self, request: web.Request) -> web.Response:
        caller = await caller_of(self.door, request, THREADS, Right.TALK)
        body = await read_object(request)
        id = body.get("thread_id") or f"{uuid4()}"
        if not isinstance(id, str) or not THREAD_ID.fullmatch(id):
            raise BAD_ID
        thread, note = caller.thread(id), _note(body.get("metadata"))
        keep = body.get("if_exists") == "do_nothing"

        def create(execute: Execute) -> Json | None:
            if conversations.find_current(execute, thread) and not keep:
                raise EXISTS
            if not conversations.find_current(execute, thread):
                conversations.begin_conversation(execute, thread, time.time())
                write_note(execute, thread, note, time.time())
            return shapes.thread_json(execute, thread)

        return json_response(200, await self.door.store.run(create))

    async def _search(self, request: web.Request) -> web.Response:
        caller = await caller_of(self.door, request)
        body = await read_object(request)
        wanted, status = body.get("metadata") or {}, body.get("status")
        limit, offset = count_of(body, "limit", PAGE), count_of(body, "offset", 0)
        if not isinstance(wanted, dict):
            raise BAD_BODY

        def search(execute: Execute) -> tuple[list[Json], bool]:
            found = []
            for note in list_notes(execute, caller.author.id, MOST * PAGE):
                if wanted.items() <= note.metadata.items():
                    shown = shapes.thread_json(execute, Thread.parse(note.thread))
                    if shown and status in (None, shown["status"]):
                        found.append(shown)
                if len(found) > offset + limit:
                    break
            return found[offset : offset + limit], len(found) > offset + limit

        found, more = await self.door.store.run(search, durable=False)
        return json_response(200, found, {"X-Pagination-Next": f"{offset + limit}"} if more else {})

    async def _thread(self, request: web.Request) -> web.Response:
        return await self._read(request, shapes.thread_json)

    async def _state(self, request: web.Request) -> web.Response:
        return await self._read(request, shapes.state_json)

    async def _checkpoint(self, request: web.Request) -> web.Response:
        """Send the state at a checkpoint, of which only the latest is kept."""
        caller = await caller_of(self.door, request)
        thread, named = caller.thread(path_thread(request)), (await read_object(request)).get("checkpoint")
        state = await self.door.store.run(partial(shapes.state_json, thread=thread), durable=False)
        wanted = named.get("checkpoint_id") if isinstance(named, dict) else None
        if state is None or wanted not in (None, state["checkpoint"]["checkpoint_id"]):
            raise not_found("thread" if state is None else "checkpoint")
        return json_response(200, state)

    async def _history(self, request: web.Request) -> web.Response:
        caller = await caller_of(self.door, request)
        thread = caller.thread(path_thread(request))
        state = await self.door.store.run(partial(shapes.state_json, thread=thread), durable=False)
        return json_response(200, [state] if state and state["values"]["messages"] else [])

    async def _read(self, request: web.Request, read: Callable[..., Json | None]) -> web.Response:
        caller = await caller_of(self.door, request)
        thread = caller.thread(path_thread(request))
        if (found := await self.door.store.run(partial(read, thread=thread), durable=False)) is None:
            raise not_found("thread")
        return json_response(200, found)

    async def _patch(self, request: web.Request) -> web.Response:
        caller = await caller_of(self.door, request, THREADS)
        thread, note = caller.thread(path_thread(request)), _note((await read_object(request)).get("metadata"))

        def patch(execute: Execute) -> Json | None:
            if conversations.find_current(execute, thread):
                merged = _note({**read_note(execute, thread), **note})
                write_note(execute, thread, merged, time.time())
            return shapes.thread_json(execute, thread)

        if (found := await self.door.store.run(patch)) is None:
            raise not_found("thread")
        return json_response(200, found)

    async def _delete(self, request: web.Request) -> web.Response:
        caller = await caller_of(self.door, request, THREADS)
        thread = caller.thread(path_thread(request))

        def delete(execute: Execute) -> list[int]:
            if not conversations.find_current(execute, thread):
                raise not_found("thread")
            return delete_thread(execute, thread, caller.author.id)

        service = self.door.running()
        for run in await self.door.store.run(delete):
            service.stop_run(run, caller.author.id)
        return web.Response(status=204)

    # ------------------------------------------------------------ runs

    async def _begin(self, request: web.Request) -> web.Response:
        _caller, thread, row, _rest = await self._post(request)
        run = await self.door.store.run(partial(_find_run, row=row), durable=False)
        return json_response(200, shapes.run_json(thread, row, run), _head(thread, row.id, "stream"))

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        caller, thread, row, body = await self._post(request)
        modes = _modes(body.get("stream_mode") or ["values"])
        return await self._follow(request, caller, thread, row, modes, cancels=body.get("on_disconnect") == "cancel")

    async def _wait(self, request: web.Request) -> web.StreamResponse:
        caller, thread, row, _rest = await self._post(request)
        return await self._joined(request, caller, thread, row)

    async def _join(self, request: web.Request) -> web.StreamResponse:
        return await self._joined(request, *await self._known_run(request))

    async def _join_stream(self, request: web.Request) -> web.StreamResponse:
        caller, thread, row = await self._known_run(request)
        named = [each for text in request.query.getall("stream_mode", []) for each in text.split(",") if each]
        modes = _modes(named or [*MODES])
        return await self._follow(request, caller, thread, row, modes)

    async def _thread_stream(self, request: web.Request) -> web.StreamResponse:
        """Follow what runs now."""
        caller = await caller_of(self.door, request)
        thread = caller.thread(path_thread(request))
        row = await self.door.store.run(partial(_latest_message, thread=thread), durable=False)
        if row is None:
            raise not_found("run")
        return await self._follow(request, caller, thread, row, _modes([*MODES]))

    async def _run(self, request: web.Request) -> web.Response:
        _caller, thread, row = await self._known_run(request)
        run = await self.door.store.run(partial(_find_run, row=row), durable=False)
        return json_response(200, shapes.run_json(thread, row, run))

    async def _runs(self, request: web.Request) -> web.Response:
        caller = await caller_of(self.door, request)
        thread = caller.thread(path_thread(request))
        limit = request.query.get("limit", f"{PAGE}")
        most = min(int(limit), MOST) if limit.isdecimal() and len(limit) < 10 else PAGE

        def read(execute: Execute) -> list[Json]:
            key = conversations.find_current(execute, thread)
            found = []
            for run in runs.latest_runs(execute, key, most):
                if row := inbox.find_row(execute, run.id):
                    found.append(shapes.run_json(thread, row, run))
            return found

        return json_response(200, await self.door.store.run(read, durable=False))

    async def _cancel(self, request: web.Request) -> web.StreamResponse:
        caller, thread, row = await self._known_run(request, THREADS)
        await self._stop(caller, thread, row)
        if request.query.get("wait") in ("1", "true"):
            return await self._joined(request, caller, thread, row)
        return json_response(202, {})

    async def _stop(self, caller: Caller, thread: Thread, row: InboxRow) -> None:
        """Stop the run of a message as the command `stop` does."""
        known = await self.door.store.run(partial(inbox.find_row, row=row.id), durable=False)
        target = f"r{known.run}" if known and known.run else ""
        await self.door.receive([make_stop(caller, thread, target)])

    async def _post(self, request: web.Request) -> tuple[Caller, Thread, InboxRow, Json]:
        """Take the input of a run as a message, or its command as an answer. Raises HttpProblem."""
        caller = await caller_of(self.door, request, THREADS, Right.TALK)
        body = await read_object(request)
        if "thread" not in request.match_info:
            thread = caller.thread(f"{uuid4()}")
            return caller, thread, await begin_stateless_run(self.door, caller, thread, body), body
        thread = caller.thread(path_thread(request))
        return caller, thread, await begin_run(self.door, caller, thread, body), body

    async def _known_run(self, request: web.Request, scope: str = READ) -> tuple[Caller, Thread, InboxRow]:
        caller = await caller_of(self.door, request, scope)
        thread, number = caller.thread(path_thread(request)), parse_run_id(request.match_info["run"])
        find = partial(_find_message, caller=caller, thread=thread, number=number or 0)
        return caller, thread, await self.door.store.run(find, durable=False)

    async def _follow(
        self,
        request: web.Request,
        caller: Caller,
        thread: Thread,
        row: InboxRow,
        modes: Sequence[str],
        *,
        cancels: bool = False,
    ) -> web.StreamResponse:
        """Send the events of a run. `cancels`: the run is stopped when the client leaves before its end."""
        after = last_event_id(request) if request.method == "GET" else ""
        position, resumed = RunPosition.parse(after), after not in ("", FROM_BEGIN)

        async def tell(stream: EventStream, subscription: Subscription) -> None:
            try:
                sink = LangGraphStream(stream, self.door, thread, row.id, modes, resumed=resumed)
                await sink.begin()
                await RunEvents(self.door, caller, sink, subscription, row.run, row.id, position).send()
            except asyncio.CancelledError:
                if cancels and stream.is_lost:  # the end of the service is no leave of the client
                    await asyncio.shield(self._stop(caller, thread, row))
                raise

        return await self.hub.stream(request, caller, thread, tell, headers=_head(thread, row.id, "stream"))

    async def _joined(self, request: web.Request, caller: Caller, thread: Thread, row: InboxRow) -> web.StreamResponse:
        """Answer with the state once the run has ended; blanks keep the connection open until then."""
        head = {"Content-Type": "application/json", **_head(thread, row.id, "join")}

        async def tell(stream: EventStream, subscription: Subscription) -> None:
            sink = _End(stream)
            await RunEvents(self.door, caller, sink, subscription, row.run, row.id, None).send()
            found = await self.door.store.run(partial(shapes.values, thread=thread), durable=False)
            if sink.run.get("state") == "failed":
                found["__error__"] = {"error": "RunFailed", "message": sink.run["failure"] or "The run failed."}
            await stream.write(dump_json(found))

        return await self.hub.stream(request, caller, thread, tell, headers=head, heartbeat=b"\n")


async def caller_of(door: Door, request: web.Request, scope: str = READ, right: Right | None = None) -> Caller:
    """Return who calls; LangGraph's clients send their key as `x-api-key`."""
    keys = request.headers.getall("X-Api-Key", ())
    if len(keys) == 1 and "Authorization" not in request.headers:
        request = request.clone(headers={**request.headers, "Authorization": f"Bearer {keys[0]}"})
    return await find_caller(door, request, scope, right)


class _End:
    """Keeps how a run ended, and sends nothing of it."""

    def __init__(self, stream: EventStream) -> None:
        self.run: Json = {}
        self._stream = stream

    async def send(self, name: str, data: Json, id: str = "") -> None:
        if name == "end":
            self.run = data

    async def wait(self) -> None:
        await self._stream.wait()


def _find_run(execute: Execute, row: InboxRow) -> Any:
    known = inbox.find_row(execute, row.id)
    return runs.find_run(execute, known.run) if known and known.run else None


def _find_message(execute: Execute, caller: Caller, thread: Thread, number: int) -> InboxRow:
    row = inbox.find_row(execute, number)
    if row is None or own_conversation(execute, caller, row.conversation) != thread:
        raise not_found("run")
    return row


def _latest_message(execute: Execute, thread: Thread) -> InboxRow | None:
    key = conversations.find_current(execute, thread)
    rows = inbox.open_rows(execute, key) if key else []
    run = runs.latest_run(execute, key) if key else None
    return rows[-1] if rows else inbox.find_row(execute, run.id) if run else None


def _head(thread: Thread, message: int, what: str) -> dict[str, str]:
    path = f"/threads/{thread.topic}/runs/{run_id(message)}"
    return {"Content-Location": path, "Location": f"{path}/{what}"}


def _modes(value: Any) -> list[str]:
    modes = [value] if isinstance(value, str) else value
    if not isinstance(modes, list) or not all(each in MODES for each in modes):
        raise HttpProblem(422, "bad_mode", "This is no stream mode.", f"Send some of {', '.join(MODES)}.")
    return modes


async def read_object(request: web.Request) -> Json:
    """Return the object that the body is; an empty one for none. Raises HttpProblem."""
    body = await read_json(request) if request.body_exists else {}
    if not isinstance(body, dict):
        raise BAD_BODY
    return body


def _note(value: Any) -> Json:
    if value is None:
        return {}
    if not isinstance(value, dict) or len(orjson.dumps(value)) > NOTE_BYTES:
        raise HttpProblem(422, "bad_metadata", "This cannot be metadata.", f"Send an object below {NOTE_BYTES} bytes.")
    return value


def count_of(body: Json, name: str, least: int) -> int:
    """Return a number of the body, `least` where it is not there. Raises HttpProblem."""
    value = body.get(name, least)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST * PAGE:
        raise HttpProblem(422, "bad_body", f"`{name}` is no number from 0.", f"Send one up to {MOST * PAGE}.")
    return min(value, MOST) if name == "limit" else value
