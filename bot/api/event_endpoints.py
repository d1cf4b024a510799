"""Serve the events of a run, of a thread, and of all that the key's person may see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from aiohttp import web

from agent.messages import Thread
from bot.api.shared import read_models
from bot.api.shared.caller import Caller, find_caller
from bot.api.shared.event_hub import EventHub, Subscription
from bot.api.shared.event_json import Position, RunPosition
from bot.api.shared.event_streams import ENDED, RunEvents, ThreadEvents
from bot.api.shared.paths import path_number, path_thread
from bot.commands.feature import Door
from bot.http.event_stream import EventStream, last_event_id
from bot.http.route import HttpProblem, Route
from bot.http.spec import Query, Spec
from bot.storage.api_keys import READ

P = TypeVar("P")
AFTER = Query("after", "the id of the last event; so does the header Last-Event-ID")


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
    return Spec(f"The events of {whose}", query=(AFTER,), problems=problems, media="events")


def _position(request: web.Request, parse: Callable[[str], P | None]) -> P | None:
    """Return where the client wants to go on; None for the present. Raises HttpProblem."""
    if not (text := last_event_id(request)):
        return None
    if (position := parse(text)) is None:
        fix = "Send the `id` of an event, or nothing to begin at the present."
        raise HttpProblem(400, "bad_cursor", "This is not the id of an event.", fix)
    return position
