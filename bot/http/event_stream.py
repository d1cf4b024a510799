"""Server-sent events: one answer that goes on. https://html.spec.whatwg.org/multipage/server-sent-events.html

A client that does not read is cut: it costs the service one full buffer of its connection, and nobody else anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

import orjson
from aiohttp import web

from bot.http.exchange import WRITE_SECONDS
from bot.storage.database import StorageError

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
    """The events of one answer. `send` and `wait` raise SlowReader; the connection is then closed."""

    def __init__(
        self,
        response: web.StreamResponse,
        woken: asyncio.Event,
        write_seconds: float,
        heartbeat_seconds: float,
        heartbeat: bytes = HEARTBEAT,
        transport: asyncio.WriteTransport | None = None,
    ) -> None:
        self.response = response
        self._woken = woken
        self._write_seconds = write_seconds
        self._heartbeat_seconds = heartbeat_seconds
        self._heartbeat = heartbeat
        self._transport = transport
        self._timer: asyncio.TimerHandle
        self._behind_since = 0.0  # time of the loop; 0 while the client takes what is sent
        self._is_behind = False

    async def send(self, name: str, data: object, id: str = "") -> None:
        """Send an event. Without an id, a client that asks again goes on after the last one that had one."""
        head = f"id: {id}\n" if id else ""
        await self.write(f"{head}event: {name}\ndata: ".encode() + orjson.dumps(data) + b"\n\n")

    async def wait(self) -> None:
        """Wait until it is woken; show meanwhile that the connection lives."""
        self._timer = asyncio.get_running_loop().call_later(self._heartbeat_seconds, self._beat)
        try:
            await self._woken.wait()
            self._woken.clear()
        finally:
            self._timer.cancel()
        if self._is_behind:
            raise SlowReader

    def _beat(self) -> None:
        """Send a heartbeat from the timer itself: a thousand idle streams wake no task.

        Who has not taken the one before gets no other, and is cut where that lasts.
        """
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._heartbeat_seconds, self._beat)
        transport = self._transport
        if transport is None or transport.is_closing():
            return  # the handler ends with its client
        if transport.get_write_buffer_size() == 0:
            self._behind_since = 0.0
            self._write_now(self._heartbeat)
            return
        self._behind_since = self._behind_since or loop.time()
        if loop.time() - self._behind_since >= self._write_seconds:
            self._is_behind = True
            self._woken.set()

    def _write_now(self, chunk: bytes) -> None:
        """Write what fits into the empty buffer of the connection, so that there is nothing to wait for."""
        writing = self.response.write(chunk).__await__()
        try:
            next(writing)
        except (StopIteration, ConnectionError):  # it is written, or the client has just left
            return
        writing.close()

    async def write(self, chunk: bytes) -> None:
        """Send bytes as they are."""
        try:
            async with asyncio.timeout(self._write_seconds):
                await self.response.write(chunk)
        except TimeoutError:
            raise SlowReader from None


@asynccontextmanager
async def streaming(
    request: web.Request,
    woken: asyncio.Event,
    *,
    write_seconds: float = WRITE_SECONDS,
    heartbeat_seconds: float = HEARTBEAT_SECONDS,
    heartbeat: bytes = HEARTBEAT,
    headers: Mapping[str, str] = {},
) -> AsyncIterator[EventStream]:
    """Begin and end an answer with events. Where it cannot go on, its connection is cut, and the client asks again."""
    response = web.StreamResponse(headers={**HEADERS, **headers})
    await response.prepare(request)
    stream = EventStream(response, woken, write_seconds, heartbeat_seconds, heartbeat, request.transport)
    try:
        if heartbeat == HEARTBEAT:
            await stream.write(f"retry: {RETRY_MILLISECONDS}\n\n".encode())
        yield stream
        async with asyncio.timeout(write_seconds):
            await response.write_eof()
    except ConnectionError:
        raise  # the client left
    except (SlowReader, TimeoutError):
        log.info("http.slow_reader")
        _cut(request)
    except StorageError as error:
        log.warning("http.stream_cut reason=%s", error)
        _cut(request)
    except Exception:  # the boundary of one answer, whose status is sent already
        log.exception("http.fault")
        _cut(request)


def _cut(request: web.Request) -> None:
    if request.transport:
        request.transport.abort()


def last_event_id(request: web.Request) -> str:
    """Return after which event the client wants to go on: by the header of a browser, or by `?after=`."""
    return request.headers.get("Last-Event-ID") or request.query.get("after", "")
