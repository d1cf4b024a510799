"""HTTP clients whose answers are bounded while they come: 1 MB of an authorization server, a message of a server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx2
import orjson

from agent.foreign_text import printable_line
from agent.mcp.bounds import (
    BYTES_PER_LINE,
    COMPRESSED,
    MAX_MESSAGE_BYTES,
    MAX_VALUES,
    SESSION_UNKNOWN,
    SLICE_BYTES,
    TOO_LARGE,
    TOO_MANY_VALUES,
    Pace,
    ValueCount,
)
from agent.settings.network import choose_proxy, make_trust
from catalogue import LazyText

MAX_BYTES = 1 << 20
LINES_PER_EVENT = 4  # what a line of an event costs here, in lines of a stdio server
EVENT_STREAM = "text/event-stream"
SESSION_ID = "Mcp-Session-Id"
MAX_TOLD_CHARS = 300
_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")  # after others, a count goes on: it is never too low
_LINE_ENDS = b"\r\n"

Note = Callable[[LazyText], None]
Hook = Callable[[httpx2.Response], Awaitable[None]]


class TooLarge(httpx2.HTTPError):
    """The answer is larger than what this client reads."""

    def __init__(self, url: httpx2.URL) -> None:
        super().__init__(f"{url.host} answers with more than {MAX_BYTES >> 20} MB, or compressed")


class _BoundedStream(httpx2.AsyncByteStream):
    """The body of a response, up to the limit."""

    def __init__(self, stream: httpx2.AsyncByteStream, url: httpx2.URL) -> None:
        self._stream = stream
        self._url = url

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MAX_BYTES:
                raise TooLarge(self._url)
            yield chunk

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()


class _MessageStream(httpx2.AsyncByteStream):
    """The body of a server's response in small pieces: one message, or a stream of events with one each.

    The SDK's transport takes both errors that are raised here as the end of this request.
    """

    def __init__(self, stream: httpx2.AsyncByteStream, note: Note, *, events: bool, refused: bool) -> None:
        self._stream, self._note = stream, note
        self._events, self._refused = events, refused
        self._pace = Pace()
        self._count = ValueCount()
        self._size = 0
        self._tail = b""  # line ends of the piece before: an end of an event may be cut

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._refused:
            raise self._refusal(COMPRESSED)
        async for chunk in self._stream:
            for start in range(0, len(chunk), SLICE_BYTES):
                piece = chunk[start : start + SLICE_BYTES]
                self._check(piece)
                lines = LINES_PER_EVENT * piece.count(b"\n") if self._events else 0
                await self._pace.take(len(piece) / BYTES_PER_LINE + lines)
                yield piece

    def _check(self, piece: bytes) -> None:
        """Count the piece. Raises the error if a message is too large."""
        whole = self._tail + piece
        self._tail = whole[len(whole.rstrip(_LINE_ENDS)) :][-3:] if self._events else b""
        for number, part in enumerate(_EVENT_END.split(whole) if self._events else [whole]):
            if number:
                self._count, self._size = ValueCount(), 0
            self._count.add(part)
            self._size += len(part)
            if self._size > MAX_MESSAGE_BYTES:
                raise self._refusal(TOO_LARGE)
            if self._count.values > MAX_VALUES:
                raise self._refusal(TOO_MANY_VALUES)

    def _refusal(self, fault: LazyText) -> Exception:
        self._note(fault)
        return (httpx2.SSEError if self._events else httpx2.StreamError)(str(fault))

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()


def bound_responses() -> Hook:
    """Return a hook that bounds each response."""

    async def bound(response: httpx2.Response) -> None:
        url = response.request.url
        if _is_compressed(response):
            raise TooLarge(url)  # nobody asked for it, and it may be a bomb
        if isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _BoundedStream(response.stream, url)

    return bound


def bound_messages(note: Note) -> Hook:
    """Return a hook that bounds each message of a server, and every other response as `bound_responses` does. `note`
    gets what is wrong with a message."""
    bound_others = bound_responses()

    async def bound(response: httpx2.Response) -> None:
        if await _is_lost_session(response):
            _answer_unknown(response)
        elif EVENT_STREAM not in response.request.headers.get("Accept", ""):  # as the SDK asks for messages only
            await bound_others(response)
        elif isinstance(response.stream, httpx2.AsyncByteStream):
            events = response.headers.get("Content-Type", "").lower().startswith(EVENT_STREAM)
            refused = _is_compressed(response)
            if refused:
                response.headers["Content-Encoding"] = "identity"  # so that nothing unpacks it
            response.stream = _MessageStream(response.stream, note, events=events, refused=refused)

    return bound


async def _is_lost_session(response: httpx2.Response) -> bool:
    """Return whether the server does not know the session of the request any more: 404, or a 400 that says so, or that
    names no call in its error. Such a call has not run."""
    if SESSION_ID not in response.request.headers or response.status_code not in (400, 404):
        return False
    if response.status_code == 404:
        return True
    if not isinstance(response.stream, httpx2.AsyncByteStream) or _is_compressed(response):
        return False
    response.stream = _BoundedStream(response.stream, response.request.url)
    body = await response.aread()
    answer = _json_rpc(body)
    names_call = isinstance(answer.get("id"), int)  # as the SDK numbers its calls
    return b"session" in body.lower() or ("error" in answer and not names_call)


def _json_rpc(message: bytes) -> dict[str, Any]:
    """Return a message of JSON-RPC; empty if it is none."""
    try:
        found = orjson.loads(message)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) and "jsonrpc" in found else {}


def _answer_unknown(response: httpx2.Response) -> None:
    """Make it the 404 of a session that ended, with the words of a 400: the SDK would keep neither of any other."""
    words = response.content if response.status_code == 400 else b""
    error = _json_rpc(words).get("error")
    text = error.get("message") if isinstance(error, dict) else words.decode("utf-8", "replace")
    response.status_code, response.headers, body = 404, httpx2.Headers(), b""
    if words:
        response.headers["Content-Type"] = "application/json"
        told = printable_line(f"unknown session: {text}")[:MAX_TOLD_CHARS]
        body = orjson.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": SESSION_UNKNOWN, "message": told}})
    response._content = body  # noqa: SLF001  a response has no other way to change its body


class ChosenWay(httpx2.AsyncBaseTransport):
    """Sends each request through the proxy of its address, with the certificates of the process."""

    def __init__(self) -> None:
        self._ways: dict[str, httpx2.AsyncHTTPTransport] = {}  # by proxy, "" for none

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request."""
        proxy = choose_proxy(str(request.url)) or ""
        if proxy not in self._ways:
            trust = await asyncio.to_thread(make_trust)
            self._ways[proxy] = httpx2.AsyncHTTPTransport(verify=trust, proxy=proxy or None, trust_env=False)
        return await self._ways[proxy].handle_async_request(request)

    async def aclose(self) -> None:
        for way in self._ways.values():
            await way.aclose()


def bounded_client(seconds: float, *, headers: Any = None, auth: httpx2.Auth | None = None) -> httpx2.AsyncClient:
    """Return a client for an authorization server."""
    client = httpx2.AsyncClient(
        headers=headers,
        timeout=seconds,
        auth=auth,
        event_hooks={"response": [bound_responses()]},
        transport=ChosenWay(),
    )
    client.headers["Accept-Encoding"] = "identity"
    return client


def _is_compressed(response: httpx2.Response) -> bool:
    return str(response.headers.get("Content-Encoding", "identity")).strip().lower() != "identity"
