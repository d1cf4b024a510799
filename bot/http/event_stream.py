"""Server-sent events: one answer that goes on. https://html.spec.whatwg.org/multipage/server-sent-events.html

Once such an answer has begun, its connection has nothing else to do: it leaves the HTTP server, and a task writes to
its transport. What parsed the request, and waited for its handler, is then free, and a heartbeat is one write. A client
that does not read is cut: it costs the service one full buffer of its connection, and nobody else anything.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from aiohttp import HttpVersion11, web

from bot.database.database import StorageError
from bot.http.exchange import WRITE_SECONDS
from bot.http.route import HttpProblem, dump_json

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 15.0
HEARTBEAT = b": heartbeat\n\n"
BEATS_APART = 15  # in so many moments of this time they are sent: many at once wake the loop once
RETRY_MILLISECONDS = 1000  # after which a client asks again
UNREAD_BYTES = 1 << 16  # that a client may send behind its request, before it is cut
HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class SlowReader(Exception):
    """The client does not take what is sent to it."""


class EventSink(Protocol):
    """What takes events. Both raise SlowReader."""

    async def send(self, name: str, data: Any, id: str = "") -> None: ...

    async def wait(self) -> None: ...


class EventStream(asyncio.Protocol):
    """The events of one answer, and the protocol of its connection. `send` and `wait` raise SlowReader."""

    __slots__ = (
        "_behind_since",
        "_chunked",
        "_drained",
        "_heartbeat",
        "_heartbeat_seconds",
        "_is_behind",
        "_task",
        "_timer",
        "_transport",
        "_unread",
        "_woken",
        "_write_seconds",
        "is_lost",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        woken: asyncio.Event,
        write_seconds: float,
        heartbeat_seconds: float,
        heartbeat: bytes,
        *,
        chunked: bool,
    ) -> None:
        self._transport = transport
        self._woken = woken
        self._write_seconds = write_seconds
        self._heartbeat_seconds = heartbeat_seconds
        self._chunked = chunked
        self._heartbeat = self._frame(heartbeat)
        self._timer: asyncio.TimerHandle
        self._task: asyncio.Task[None] | None = None
        self._drained: asyncio.Future[None] | None = None  # while the buffer of the connection is full
        self._behind_since = 0.0  # time of the loop; 0 while the client takes what is sent
        self._is_behind = False
        self._unread = 0
        self.is_lost = False  # the client left

    async def send(self, name: str, data: object, id: str = "") -> None:
        """Send an event. Without an id, a client that asks again goes on after the last one that had one."""
        head = f"id: {id}\n" if id else ""
        await self.write(f"{head}event: {name}\ndata: ".encode() + dump_json(data) + b"\n\n")

    async def wait(self) -> None:
        """Wait until it is woken; show meanwhile that the connection lives."""
        self._beat_later()
        try:
            await self._woken.wait()
            self._woken.clear()
        finally:
            self._timer.cancel()
        if self._is_behind:
            raise SlowReader

    def _beat_later(self) -> None:
        loop, apart = asyncio.get_running_loop(), self._heartbeat_seconds / BEATS_APART
        due = math.floor((loop.time() + self._heartbeat_seconds) / apart) * apart
        self._timer = loop.call_at(due, self._beat)

    def _beat(self) -> None:
        """Send a heartbeat from the timer itself: a thousand idle streams wake no task.

        Who has not taken the one before gets no other, and is cut where that lasts.
        """
        self._beat_later()
        if self._transport.get_write_buffer_size() == 0:
            self._behind_since = 0.0
            self._transport.write(self._heartbeat)
            return
        now = asyncio.get_running_loop().time()
        self._behind_since = self._behind_since or now
        if now - self._behind_since >= self._write_seconds:
            self._is_behind = True
            self._woken.set()

    async def write(self, chunk: bytes) -> None:
        """Send bytes as they are. Where the client takes none, it waits for a while, and raises SlowReader."""
        if self._drained:
            try:
                async with asyncio.timeout(self._write_seconds):
                    await self._drained
            except TimeoutError:
                raise SlowReader from None
        self._transport.write(self._frame(chunk))

    def _frame(self, chunk: bytes) -> bytes:
        """Return bytes as HTTP/1.1 has them in an answer of unknown length (RFC 9112, 7.1)."""
        return b"%x\r\n%b\r\n" % (len(chunk), chunk) if self._chunked else chunk

    def end(self) -> None:
        """Say that nothing follows, and close the connection."""
        if self._chunked:
            self._transport.write(b"0\r\n\r\n")
        self._transport.close()

    # ------------------------------------------------------------ what the connection calls

    def follow(self, task: asyncio.Task[None]) -> None:
        """Have the task end with the client."""
        self._task = task

    def pause_writing(self) -> None:
        self._drained = self._drained or asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        drained, self._drained = self._drained, None
        if drained and not drained.done():
            drained.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Drop what a client sends that has asked already."""
        self._unread += len(data)
        if self._unread > UNREAD_BYTES:
            self._transport.abort()

    def connection_lost(self, _error: Exception | None) -> None:
        self.is_lost = True
        if self._task:
            self._task.cancel()


@dataclass(frozen=True, slots=True)
class OpenStreams:
    """The streams of a listener: each is a task and the connection that it writes to."""

    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def start(self, stream: EventStream, sending: Coroutine[Any, Any, None]) -> None:
        """Have a task send events until there are no more, or the client leaves."""
        task = asyncio.create_task(sending, name="events")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        stream.follow(task)

    async def close(self, seconds: float) -> None:
        """Let streams end for a while, and cut the others: their clients ask again."""
        if self._tasks:
            await asyncio.wait({*self._tasks}, timeout=seconds)
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait({*self._tasks})


OPEN_STREAMS = web.AppKey("open_streams", OpenStreams)
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
    """Begin an answer with events, which `tell` sends behind the handler: it must not hold the request.

    Where the answer cannot go on, its connection is cut, and the client asks again. `tell` is cancelled when the client
    leaves. What `woken` announces is what `stream.wait()` waits for.
    """
    response = web.StreamResponse(headers={**HEADERS, **headers})
    response.force_close()  # nothing follows on this connection
    await response.prepare(request)
    transport = request.transport
    if request.method == "HEAD" or transport is None:
        return response
    chunked = request.version >= HttpVersion11
    stream = EventStream(transport, woken, write_seconds, heartbeat_seconds, heartbeat, chunked=chunked)
    _take_over(request, transport, stream)
    begin = f"retry: {RETRY_MILLISECONDS}\n\n".encode() if heartbeat == HEARTBEAT else b""
    request.app[OPEN_STREAMS].start(stream, _run(stream, transport, begin, tell))
    return response


def _take_over(request: web.Request, transport: asyncio.Transport, stream: EventStream) -> None:
    """Take a connection from the server, which forgets it as if the client had left."""
    server = request.protocol
    if server.writing_paused:
        stream.pause_writing()
    transport.set_protocol(stream)
    transport.resume_reading()
    server.transport = None  # it closes its own only
    server.connection_lost(None)


async def _run(stream: EventStream, transport: asyncio.Transport, begin: bytes, tell: Tell) -> None:
    try:
        if begin:
            await stream.write(begin)
        await tell(stream)
        stream.end()
    except asyncio.CancelledError:
        transport.close()  # the client left, or the service stops
        raise
    except SlowReader:
        log.info("http.slow_reader")
        transport.abort()
    except StorageError as error:
        log.warning("http.stream_cut reason=%s", error)
        transport.abort()
    except HttpProblem as problem:  # it was found behind the status: the client asks again, and is told
        log.info("http.stream_refused code=%s", problem.code)
        transport.abort()
    except Exception:  # the boundary of one answer, whose status is sent already
        log.exception("http.fault")
        transport.abort()


def last_event_id(request: web.Request) -> str:
    """Return after which event the client wants to go on: by the header of a browser, or by `?after=`."""
    return request.headers.get("Last-Event-ID") or request.query.get("after", "")
