"""Server-sent events: one answer that goes on. https://html.spec.whatwg.org/multipage/server-sent-events.html

A client that does not read is cut: it costs the service one full buffer of its connection, and nobody else anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from aiohttp import web

from bot.database.database import StorageError
from bot.http.exchange import WRITE_SECONDS
from bot.http.route import HttpProblem, dump_json

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 15.0
HEARTBEAT = b": heartbeat\n\n"
RETRY_MILLISECONDS = 1000  # after which a client asks again
HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class SlowReader(Exception):
    """The client does not take what is sent to it."""


class EventSink(Protocol):
    """What takes events. Both raise SlowReader."""

    async def send(self, name: str, data: Any, id: str = "") -> None: ...

    async def wait(self) -> None: ...


class EventStream:
    """The events of one answer. `send`, `wait` and `write` raise SlowReader, and ConnectionError if the client left."""

    def __init__(
        self,
        request: web.Request,
        response: web.StreamResponse,
        woken: asyncio.Event,
        *,
        write_seconds: float,
        heartbeat_seconds: float,
        heartbeat: bytes,
    ) -> None:
        self._request, self._response = request, response
        self._woken = woken
        self._write_seconds = write_seconds
        self._heartbeat_seconds = heartbeat_seconds
        self._heartbeat = heartbeat

    @property
    def is_lost(self) -> bool:
        """Whether the client left."""
        return self._request.transport is None

    async def send(self, name: str, data: object, id: str = "") -> None:
        """Send an event. Without an id, a client that asks again goes on after the last one that had one."""
        head = f"id: {id}\n" if id else ""
        await self.write(f"{head}event: {name}\ndata: ".encode() + dump_json(data) + b"\n\n")

    async def wait(self) -> None:
        """Wait until it is woken; show meanwhile that the connection lives."""
        while True:
            try:
                async with asyncio.timeout(self._heartbeat_seconds):
                    await self._woken.wait()
            except TimeoutError:
                await self.write(self._heartbeat)
            else:
                self._woken.clear()
                return

    async def write(self, chunk: bytes) -> None:
        """Send bytes as they are. Where the client takes none, it waits for a while, and raises SlowReader."""
        try:
            async with asyncio.timeout(self._write_seconds):
                await self._response.write(chunk)
        except TimeoutError:
            raise SlowReader from None


Tell = Callable[[EventStream], Awaitable[None]]


async def stream_events(
    request: web.Request,
    woken: asyncio.Event,
    tell: Tell,
    *,
    write_seconds: float = WRITE_SECONDS,
    heartbeat_seconds: float = HEARTBEAT_SECONDS,
    heartbeat: bytes = HEARTBEAT,
    headers: Mapping[str, str] = {},
) -> web.StreamResponse:
    """Answer with events, which `tell` sends.

    Where the answer cannot go on, its connection is cut, and the client asks again. `tell` is cancelled when the client
    leaves. What `woken` announces is what `stream.wait()` waits for.
    """
    response = web.StreamResponse(headers={**HEADERS, **headers})
    response.force_close()  # nothing follows on this connection
    await response.prepare(request)
    if request.method == "HEAD":
        return response
    stream = EventStream(
        request,
        response,
        woken,
        write_seconds=write_seconds,
        heartbeat_seconds=heartbeat_seconds,
        heartbeat=heartbeat,
    )
    try:
        if heartbeat == HEARTBEAT:
            await stream.write(f"retry: {RETRY_MILLISECONDS}\n\n".encode())
        await tell(stream)
        return response
    except ConnectionError:
        raise  # the client left
    except SlowReader:
        log.info("http.slow_reader")
    except StorageError as error:
        log.warning("http.stream_cut reason=%s", error)
    except HttpProblem as problem:  # it was found behind the status: the client asks again, and is told
        log.info("http.stream_refused code=%s", problem.code)
    except Exception:  # the boundary of one answer, whose status is sent already
        log.exception("http.fault")
    if request.transport:
        request.transport.abort()
    return response


def last_event_id(request: web.Request) -> str:
    """Return after which event the client wants to go on: by the header of a browser, or by `?after=`."""
    return request.headers.get("Last-Event-ID") or request.query.get("after", "")
