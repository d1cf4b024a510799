"""HTTP/1.1 on h11: messages, one exchange through a proxy, and relayed bytes.

A connection carries one request. h11 finds the end of each message, so bytes behind the request never reach the
server, and bytes behind the response never reach the client. Both peers may be hostile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Self

import h11

from catalogue import _
from sandbox.base import StreamPair

MAX_HEAD_BYTES = 16 << 10  # of a request or a response
HEAD_SECONDS = 30.0
LINGER_SECONDS = 10.0  # for unsent data when the connection ends
CHUNK_BYTES = 1 << 16
CLOSE = (b"Connection", b"close")
UPGRADE = ((b"Connection", b"Upgrade"), (b"Upgrade", b"websocket"))
# These belong to a connection, not to the message (RFC 9110 §7.6.1). `HttpPeer` itself answers `Expect`.
HOP_BY_HOP_HEADERS = frozenset((
    b"connection", b"expect", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
    b"trailer", b"upgrade",
))  # fmt: skip
FRAMING_HEADERS = frozenset({b"content-length", b"transfer-encoding"})

Headers = list[tuple[bytes, bytes]]
"""Headers."""

Head = h11.Request | h11.Response | h11.InformationalResponse
"""A message with headers; h11 gives their names in lower case."""

ByteCounter = Callable[[int], None]
"""To be called with the number of bytes that went one way."""


class BadRequest(Exception):
    """A request is malformed; the text says how."""


class ExchangeFinished(Exception):
    """One direction has ended the connection for both."""


PEER_ERRORS = (
    OSError,
    h11.ProtocolError,
    asyncio.IncompleteReadError,
    asyncio.LimitOverrunError,
    BadRequest,
    ExchangeFinished,
)


class HttpPeer:
    """One side of an exchange, closed at the end of `async with`. `role` is h11.SERVER towards a client."""

    def __init__(self, role: type[h11.CLIENT | h11.SERVER], ends: StreamPair) -> None:
        self.reader, self.writer = ends
        self._h11 = h11.Connection(role, MAX_HEAD_BYTES)
        self.detached = False  # then another owner closes the connection

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the connection. Data that the peer does not read in time is dropped."""
        if self.detached:
            return
        self.writer.close()
        closed = False
        try:
            if kind is None:
                async with asyncio.timeout(LINGER_SECONDS):
                    await self.writer.wait_closed()
                closed = True
        except OSError:
            pass  # it is closed, or too slow
        finally:
            if not closed:  # Python 3.11 cannot abort a transport that has sent its last data
                self.writer.transport.abort()

    async def receive(self) -> h11.Event | type[h11.NEED_DATA | h11.PAUSED]:
        """Return the next event. Raises PEER_ERRORS."""
        while (event := self._h11.next_event()) is h11.NEED_DATA:
            if self._h11.they_are_waiting_for_100_continue:
                await self.send_event(h11.InformationalResponse(status_code=100, headers=[]))
            self._h11.receive_data(await self.reader.read(CHUNK_BYTES))
        await asyncio.sleep(0)  # many tiny events in one read must not block the loop
        return event

    async def read_request(self) -> h11.Request:
        """Read the head of a request. Raises PEER_ERRORS; BadRequest if the client can get an answer."""
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                event = await self.receive()
        except h11.RemoteProtocolError as error:
            raise BadRequest(str(error)) from error
        if not isinstance(event, h11.Request):
            raise ExchangeFinished
        return event

    async def send_event(self, event: h11.Event) -> None:
        """Send an event. Raises PEER_ERRORS."""
        if data := self._h11.send(event):
            self.writer.write(data)
            await self.writer.drain()

    async def wait_closed(self) -> None:
        """Wait until the client closes. Raises ExchangeFinished; BadRequest if it sends another request."""
        while data := await self.reader.read(CHUNK_BYTES):
            self._h11.receive_data(data)
            if len(self.unread) > MAX_HEAD_BYTES:
                raise BadRequest("more than one request")
        raise ExchangeFinished

    @property
    def unread(self) -> bytes:
        """The bytes received behind the last event."""
        return self._h11.trailing_data[0]

    async def refuse(self, status: int, sentence: str, why: str, *fields: tuple[str, str], **values: object) -> None:
        """Respond with a sentence in the current language, unless a response has begun. `why` is a word for programs,
        and the status line is English."""
        if self._h11.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        english = sentence.format(**values) if values else sentence
        reason, body = (" ".join(text.split()) for text in (english, _(sentence, **values)))
        data = f"{body}\n".encode("utf-8", "replace")
        plain = ("Content-Type", "text/plain; charset=utf-8")
        own = [("X-Fawn-Refused", why), plain, ("Content-Length", str(len(data)))]
        headers = [*own, *fields, ("Connection", "close")]
        with contextlib.suppress(OSError, h11.LocalProtocolError):  # it is closed, or the request was HEAD
            await self.send_event(
                h11.Response(status_code=status, reason=reason.encode("ascii", "replace"), headers=headers)
            )
            await self.send_event(h11.Data(data=data))


def header_value(head: Head, name: bytes) -> str:
    """Return the first header of this lower-case name, or ""."""
    return next((text.decode("latin-1") for field, text in head.headers if field == name), "")


def forwarded_headers(head: Head, *withheld: bytes) -> Headers:
    """Return the headers to forward. Transfer-Encoding replaces Content-Length (RFC 9112 §6.3)."""
    listed = b",".join(text for name, text in head.headers if name == b"connection").lower().split(b",")
    hop = HOP_BY_HOP_HEADERS.union(withheld, {name.strip() for name in listed} - FRAMING_HEADERS)
    if header_value(head, b"transfer-encoding"):
        hop |= {b"content-length"}
    spelled = zip(head.headers, head.headers.raw_items(), strict=True)
    return [(raw, text) for (name, text), (raw, _) in spelled if name not in hop]


async def carry_exchange(
    client: HttpPeer, server: HttpPeer, request: h11.Request, answered: Callable[[Head], Headers], idle: float
) -> tuple[int, int]:
    """Forward `request`, its body and the response with the headers of `answered`; relay bytes after a switch to
    WebSocket. Returns the bytes of each direction."""
    counts = [0, 0]
    switched = False

    async def ask(moved: ByteCounter) -> None:
        await server.send_event(request)
        while isinstance(event := await client.receive(), h11.Data):
            await server.send_event(h11.Data(data=event.data))
            moved(len(event.data))
        await server.send_event(h11.EndOfMessage())  # without trailers
        await client.wait_closed()

    async def answer(moved: ByteCounter) -> None:
        nonlocal switched
        while isinstance(event := await server.receive(), h11.InformationalResponse):
            if event.status_code == 101:
                await client.send_event(
                    h11.InformationalResponse(status_code=101, headers=[*answered(event), *UPGRADE])
                )
                switched = True
                raise ExchangeFinished
        if isinstance(event, h11.Response):
            headers = [*answered(event), CLOSE]
            await client.send_event(h11.Response(status_code=event.status_code, reason=event.reason, headers=headers))
            while isinstance(event := await server.receive(), h11.Data):
                await client.send_event(h11.Data(data=event.data))
                moved(len(event.data))
            await client.send_event(h11.EndOfMessage())
        raise ExchangeFinished

    async def to_server(moved: ByteCounter) -> None:
        await carry_bytes(client.reader, server.writer, moved, client.unread)
        raise ExchangeFinished  # a WebSocket closes both directions

    async def to_client(moved: ByteCounter) -> None:
        await carry_bytes(server.reader, client.writer, moved, server.unread)

    await run_both_ways(counts, idle, ask, answer)
    if switched:
        await run_both_ways(counts, idle, to_server, to_client)
    return counts[0], counts[1]


async def run_both_ways(counts: list[int], idle: float, *ways: Callable[[ByteCounter], Awaitable[None]]) -> None:
    """Run both directions until both end, one fails, or nothing moves for `idle` seconds. Adds up `counts`."""
    loop = asyncio.get_running_loop()

    async def run(index: int, way: Callable[[ByteCounter], Awaitable[None]]) -> None:
        def moved(size: int) -> None:
            counts[index] += size
            if not patience.expired():
                patience.reschedule(loop.time() + idle)

        await way(moved)

    try:
        async with asyncio.timeout(idle) as patience, asyncio.TaskGroup() as group:
            for index, way in enumerate(ways):
                group.create_task(run(index, way), name="carry")
    except* PEER_ERRORS:
        pass  # one side closed the connection


async def carry_bytes(
    source: asyncio.StreamReader, sink: asyncio.StreamWriter, moved: ByteCounter, first: bytes = b""
) -> None:
    """Relay `first` and the bytes after it, in one direction. Raises OSError."""
    data = first or await source.read(CHUNK_BYTES)
    while data:
        moved(len(data))
        sink.write(data)
        await sink.drain()
        data = await source.read(CHUNK_BYTES)
    if sink.can_write_eof():
        sink.write_eof()
