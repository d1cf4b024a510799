"""The seam of the HTTP door: what a part of the service gives to be served.

A feature names `routes` in its `FEATURE` (`bot/commands/feature.py`): a function that gets the `Door`, returns
`Route`s, and is called once, when the listener opens and only if `http.listen` is set. Import what needs aiohttp inside
of it, so that a service without a listener loads nothing:

    def routes(door: Door) -> Sequence[Route]:
        from bot.hooks.endpoint import HookEndpoint

        return HookEndpoint(door).routes()

    class HookEndpoint:
        def routes(self) -> Sequence[Route]:
            return [Route("POST", "/hooks/{name}", self._take, body_bytes=1 << 20)]

        async def _take(self, request: web.Request) -> web.StreamResponse:
            body = await read_body(request)  # raw, within the bounds of the route; or `await read_json(request)`
            if not self._is_signed(body):
                raise HttpProblem(401, "bad_signature", "The signature does not fit.", "Compare the hook's secret.")
            [receipt] = await self._door.receive([message])  # committed when it returns
            return json_response(202, {"stored": True})

Before the handler runs, the listener has checked: the peer may connect, `Host` is an own name, no foreign page asks
(`Origin`, `Sec-Fetch-Site`), and the head is small and came in time. Who calls, and whether they may, is the handler's
question: it asks that first, and reads the body then. The names in `request.match_info` are decoded, foreign text.
It raises `HttpProblem` for whatever is wrong, with what to do. A `StorageError` or `NotStored` becomes a 503, and any
other exception a 500 that the log explains. Each answer has `X-Request-Id`, which the log lines of the request repeat
as `request=`, and a whole answer must be taken within WRITE_SECONDS. Each answer says `no-store` and `nosniff` unless
the handler sets those headers. A handler is cancelled when its client leaves: `Inbox.receive` is shielded, and other
work that must end needs a shield of its own. Who writes in pieces (`web.StreamResponse`) bounds a slow reader itself.

The listener opens before the agent is built: `door.running()` raises a 503 until turns can run.

Say of a route what it takes and answers, for the document that describes the API (`bot/api/openapi.py`).
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import orjson

from agent.blocks import HINT_MARK

if TYPE_CHECKING:
    from aiohttp import web


@dataclass(frozen=True, slots=True)
class Query:
    """A parameter of the address; none is required. `kind` is its type, `bounds` are keywords of its JSON Schema."""

    name: str
    help: str
    kind: type = str
    choices: tuple[str, ...] = ()
    bounds: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Spec:
    """What a route takes and answers.

    `answer` is a dataclass, whose JSON is the answer, or None for one without a body. `body` is that of the JSON which
    it takes. `problems` are the states of its refusals beside those that each route has. `media` is what it sends
    instead of JSON: events, or a file.
    """

    summary: str
    answer: Any = None
    status: int = 200
    query: tuple[Query, ...] = ()
    body: Any = None
    problems: tuple[int, ...] = ()
    media: Literal["", "events", "file"] = ""
    idempotent: bool = False  # it takes an Idempotency-Key
    form: bool = False  # it also takes a form with files


BODY_BYTES = 64 * 1024
BODY_SECONDS = 20.0
JSON_TYPE = "application/json"
TAG_BYTES = 12
_MARK = HINT_MARK.encode()
_OPENED = re.compile(_MARK + rb"(?=[A-Za-z0-9])")  # each command begins so, and no word follows one
_CLOSED = re.compile(_MARK)

Handler = Callable[["web.Request"], Awaitable["web.StreamResponse"]]


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path, such as `/v1/threads/{thread}`, with its bounds. GET also answers HEAD.

    `body_bytes` and `body_seconds` bound what `read_body` and `read_json` return; a handler that reads
    `request.content` bounds itself. `quiet`: good answers are not in the log. `spec` describes it for programs.
    `plain`: it shows no secret and takes none, so that `http.peers` may ask it over a network without TLS.
    """

    method: str
    path: str
    handle: Handler
    body_bytes: int = BODY_BYTES
    body_seconds: float = BODY_SECONDS
    quiet: bool = False
    spec: Spec | None = None
    plain: bool = False


route_var: ContextVar[Route] = ContextVar("route")
"""The route of the current request; each request has a task of its own."""


class HttpProblem(Exception):
    """A request that is refused: a status, a code for programs, what is wrong, and what to do (RFC 9457)."""

    def __init__(
        self, status: int, code: str, what: str, fix: str = "", *, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(f"{status} {code}: {what}")
        self.status, self.code, self.what, self.fix = status, code, what, fix
        self.headers = dict(headers or {})


def still_starting() -> HttpProblem:
    """Return the refusal of what needs turns, before they can run."""
    fix = "Send it again in a few seconds."
    return HttpProblem(503, "starting", "Fawn is starting.", fix, headers={"Retry-After": "2"})


def read_headers(request: web.Request) -> dict[str, str]:
    """Return the headers by small letters, as text that can be stored: bytes that are no UTF-8 are replaced."""
    return {name.lower(): value.encode("utf-8", "replace").decode() for name, value in request.headers.items()}


async def read_body(request: web.Request, note_chunk: Callable[[int], None] | None = None) -> bytes:
    """Return the body as it came. Raises HttpProblem where it is larger or slower than its route allows, or broken.

    `note_chunk` gets the size of each chunk.
    """
    from aiohttp import http_exceptions, web

    route = route_var.get()
    too_large = HttpProblem(
        413, "too_large", f"The body has more than {route.body_bytes} bytes.", "Send less, or in several requests."
    )
    if (request.content_length or 0) > route.body_bytes:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(route.body_seconds):
            async for chunk in request.content.iter_any():
                body += chunk
                if note_chunk:
                    note_chunk(len(chunk))
                if len(body) > route.body_bytes:
                    raise too_large
    except TimeoutError:
        what = f"The body did not come within {route.body_seconds:g} seconds."
        raise HttpProblem(408, "too_slow", what, "Send it again.") from None
    except (web.RequestPayloadError, http_exceptions.HttpProcessingError) as error:
        raise HttpProblem(400, "broken_body", "The body is broken.", "Check its length and its encoding.") from error
    return bytes(body)


MAX_UNSIGNED_BYTES, MAX_UNSIGNED = 8 << 20, 128  # of bodies of unknown senders that are read at once, and how many
STALLED_SECONDS, LEAST_BYTES_A_SECOND = 5.0, 20_000  # what such a body must bring, after a first wait
FRESH_BYTES = 1 << 16  # which a body counts as having brought: one that has just begun is not the slowest


@dataclass(eq=False, slots=True)
class _Reading:
    began: float
    limit: asyncio.Timeout
    size: int = 0
    gave_way: bool = False

    def rate(self, now: float) -> float:
        return (self.size + FRESH_BYTES) / (now - self.began + 1)


@dataclass(slots=True)
class UnsignedBodies:
    """Reads bodies whose senders are proved by them, within bounds for all of them together.

    Beyond the bounds, the slowest one gives way: slow strangers cost little and keep no sender waiting.
    """

    _readings: set[_Reading] = field(default_factory=set)

    async def read(self, request: web.Request) -> bytes:
        """Return the body as `read_body` does. Raises HttpProblem."""
        now = asyncio.get_running_loop().time()
        limit = asyncio.timeout_at(now + STALLED_SECONDS)
        reading = _Reading(now, limit)

        def note_chunk(size: int) -> None:
            reading.size += size
            if not reading.gave_way:
                limit.reschedule(reading.began + STALLED_SECONDS + reading.size / LEAST_BYTES_A_SECOND)
                self._make_room()

        try:
            async with limit:
                self._readings.add(reading)
                self._make_room()
                return await read_body(request, note_chunk)
        except TimeoutError:
            if reading.gave_way:
                what, again = "Too many bodies are being read at once.", {"Retry-After": "5"}
                raise HttpProblem(503, "busy", what, "Send it again later.", headers=again) from None
            raise HttpProblem(408, "too_slow", "The body comes too slowly.", "Send it again.") from None
        finally:
            self._readings.discard(reading)

    def _make_room(self) -> None:
        held, now = sum(each.size for each in self._readings), asyncio.get_running_loop().time()
        while held > MAX_UNSIGNED_BYTES or len(self._readings) > MAX_UNSIGNED:
            slowest = min(self._readings, key=lambda each: each.rate(now))
            self._readings.discard(slowest)
            slowest.gave_way = True
            slowest.limit.reschedule(now)
            held -= slowest.size


async def read_json(request: web.Request) -> Any:
    """Return the JSON value of the body. Raises HttpProblem; the parser bounds the depth."""
    kind = request.content_type
    if kind != JSON_TYPE and not kind.endswith("+json"):
        raise HttpProblem(
            415, "not_json", "The body is not JSON.", f"Send JSON with the header Content-Type: {JSON_TYPE}."
        )
    body = await read_body(request)
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        what = f"The body is no JSON: {error.msg} at character {error.pos}."
        raise HttpProblem(400, "bad_json", what, "Send one JSON value in UTF-8.") from None


def dump_json(content: object) -> bytes:
    """Return a value as JSON, with the commands of its texts as a person writes them over HTTP, such as /status.

    Each part of a text that streams is a text of its own here, so that a placeholder may be cut in two.
    """
    body = orjson.dumps(content)
    return _CLOSED.sub(b"", _OPENED.sub(b"/", body)) if _MARK in body else body


def json_response(status: int, content: object, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return an answer in JSON."""
    from aiohttp import web

    return web.Response(
        status=status, body=dump_json(content) + b"\n", content_type=JSON_TYPE, charset="utf-8", headers=headers
    )


def read_response(request: web.Request, content: object) -> web.Response:
    """Return an answer in JSON with an ETag; 304 without a body where the client has the same one."""
    from aiohttp import web

    body = dump_json(content) + b"\n"
    tag = hashlib.blake2b(body, digest_size=TAG_BYTES).hexdigest()
    headers = {"ETag": f'"{tag}"', "Cache-Control": "private, no-cache"}
    if any(each.value in (tag, "*") for each in request.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    return web.Response(body=body, content_type=JSON_TYPE, charset="utf-8", headers=headers)
