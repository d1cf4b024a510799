"""Serve the newer protocol of LangGraph's clients: a stream of a whole thread, and commands.

https://github.com/langchain-ai/agent-protocol/tree/main/streaming
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from agent.messages import Thread
from bot.api.langgraph import shapes
from bot.api.langgraph.endpoints import INPUT_BYTES, caller_of, read_object
from bot.api.langgraph.frames import number_at
from bot.api.langgraph.runs import begin_run
from bot.api.langgraph.shapes import NODE, run_id
from bot.api.langgraph.thread_stream import Filter, ThreadStream, ToldEnds
from bot.api.shared.caller import Caller
from bot.api.shared.event_hub import EventHub, Subscription
from bot.api.shared.event_json import Json
from bot.api.shared.requests import path_thread
from bot.api.shared.run_reader import RecentRuns
from bot.commands.feature import Door
from bot.config.team import Right
from bot.http.event_stream import EventStream
from bot.http.route import HttpProblem, Route, json_response
from bot.storage import questions
from bot.storage.api_access import READ, THREADS

if TYPE_CHECKING:
    from aiohttp import web

CHANNELS = ("values", "updates", "messages", "tools", "lifecycle", "input", "checkpoints", "tasks", "custom")
CUSTOM = re.compile(r"custom:.{1,100}")
MAX_CHANNELS, MAX_NAMESPACES = 64, 1000
MAX_NUMBER = 2**53
ERRORS = {403: "permission_denied", 404: "no_such_interrupt"}  # of what a command may be refused with
BAD_FILTER = HttpProblem(
    *(422, "bad_body", "This cannot be what a stream is asked for."),
    f"Send channels ({', '.join(CHANNELS)}, custom:NAME), and namespaces, depth, since where you need them.",
)


@dataclass(frozen=True, slots=True)
class ProtocolEndpoints:
    """The routes."""

    door: Door
    hub: EventHub
    recent: RecentRuns
    told: ToldEnds = field(default_factory=ToldEnds)

    def routes(self) -> Sequence[Route]:
        """Return the routes."""
        return [
            Route("POST", "/threads/{thread}/stream/events", self._stream),
            Route("POST", "/threads/{thread}/commands", self._command, body_bytes=INPUT_BYTES),
            Route("GET", "/assistants/{assistant}/graph", self._graph),
        ]

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        """Follow a thread, which may not exist yet: its id is the client's."""
        caller = await caller_of(self.door, request, READ)
        thread, wanted = caller.thread(path_thread(request)), read_filter(await read_object(request))

        async def tell(stream: EventStream, subscription: Subscription) -> None:
            await ThreadStream(self.door, caller, thread, stream, subscription, wanted, self.recent, self.told).run()

        return await self.hub.stream(request, caller, thread, tell)

    async def _command(self, request: web.Request) -> web.Response:
        """Run a command. What is wrong with it is an answer as well, with the status 200."""
        caller = await caller_of(self.door, request, THREADS, Right.TALK)
        thread, body = caller.thread(path_thread(request)), await read_object(request)
        number, method = body.get("id"), body.get("method")
        if not isinstance(number, int) or isinstance(number, bool) or not isinstance(method, str):
            return _refuse(None, "invalid_argument", "A command has an id, which is a number, and a method.")
        params = body["params"] if isinstance(body.get("params"), dict) else {}
        before = number_at(time.time())
        try:
            result = await self._run(caller, thread, method, params)
        except HttpProblem as problem:
            if problem.status in (429, 503):
                raise  # the client sends it again
            return _refuse(number, ERRORS.get(problem.status, "invalid_argument"), f"{problem.what} {problem.fix}")
        if result is None:
            return _refuse(number, "unknown_command", f"There is no command {method[:100]}.")
        meta = {"thread_id": thread.topic, "applied_through_seq": before}
        return json_response(200, {"type": "success", "id": number, "result": result, "meta": meta})

    async def _run(self, caller: Caller, thread: Thread, method: str, params: Json) -> Json | None:
        """Return the result of a command; None for one that there is not. Raises HttpProblem."""
        match method:
            case "run.start":
                body = await self._input(thread, params)
            case "input.respond":
                body = await self._answers(thread, params)
            case "state.get":
                found = await self._read(partial(shapes.values, thread=thread))
                return {"values": {"messages": found["messages"]}}
            case "agent.getTree":
                return {"tree": {"namespace": [], "status": "completed", "graph_name": NODE}}
            case _:
                return None
        row = await begin_run(self.door, caller, thread, {**body, "if_not_exists": "create"}, streamed=True)
        return {"run_id": run_id(row.id)}

    async def _input(self, thread: Thread, params: Json) -> Json:
        """Return an input as the older protocol has it. Where a question waits, what is no message answers it."""
        said, strategy = params.get("input"), params.get("multitaskStrategy") or params.get("multitask_strategy")
        waits = await self._read(partial(questions.open_questions_at, thread=thread))
        if waits and said is not None and not (isinstance(said, dict) and "messages" in said):
            return {"command": {"resume": said}}
        return {"input": said, "multitask_strategy": strategy}

    async def _answers(self, thread: Thread, params: Json) -> Json:
        """Return the answers of a command. Raises HttpProblem where one is for no open question."""
        given: Any = params.get("responses", [params])
        found: dict[str, Any] = {}
        for each in given if isinstance(given, list) else []:
            id = each.get("interrupt_id") if isinstance(each, dict) else None
            if not isinstance(id, str):
                raise HttpProblem(422, "bad_body", "An answer names its question as interrupt_id.")
            found[id] = each.get("response")
        if not found:
            raise HttpProblem(422, "bad_body", "There is no answer in it.")
        asked: list[questions.QuestionRow] = await self._read(partial(questions.open_questions_at, thread=thread))
        if not {*found} <= {row.id for row in asked}:
            raise HttpProblem(404, "not_found", "This question is not open any more.", "Read the state of the thread.")
        return {"command": {"resume": found}}

    async def _graph(self, request: web.Request) -> web.Response:
        await caller_of(self.door, request)
        return json_response(200, {"nodes": [{"id": NODE, "type": "runnable", "data": {"name": NODE}}], "edges": []})

    async def _read(self, work: Any) -> Any:
        return await self.door.store.run(work, durable=False)


def read_filter(body: Json) -> Filter:
    """Return which frames a client wants. Raises HttpProblem."""
    channels, since, depth = body.get("channels"), body.get("since"), body.get("depth")
    if not isinstance(channels, list) or not 0 < len(channels) <= MAX_CHANNELS:
        raise BAD_FILTER
    if not all(isinstance(each, str) and (each in CHANNELS or CUSTOM.fullmatch(each)) for each in channels):
        raise BAD_FILTER
    for number in (since, depth):
        if number is not None and (
            not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < MAX_NUMBER
        ):
            raise BAD_FILTER
    spaces = body.get("namespaces") or []
    if (
        not isinstance(spaces, list)
        or len(spaces) > MAX_NAMESPACES
        or not all(isinstance(each, list) for each in spaces)
    ):
        raise BAD_FILTER
    return Filter(frozenset(channels), not spaces or [] in spaces, since)


def _refuse(number: int | None, error: str, message: str) -> web.Response:
    return json_response(200, {"type": "error", "id": number, "error": error, "message": message})
