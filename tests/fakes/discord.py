"""A wire-faithful Discord on loopback: REST v10, gateway, files, limits and faults.

    async with FakeDiscord() as discord:               # or: with FakeDiscord().in_thread() as discord
        discord.say("hello")                           # Jane writes in her direct chat with the bot
        discord.say("hello", CHANNEL, mention=True)    # …or mentions it in a channel
        discord.fault("flood", "editMessage", seconds=2)
        await discord.wait("the answer")               # until the bot's message with this text is visible
        discord.visible()                              # [Shown(text="the answer", …)]

Point a client at `discord.api_url` and `discord.gateway_url` with the token `TOKEN`. As its own process: `python -m
tests.fakes.discord --port N`; `POST /_control/say {"text": "hello"}` then does what `discord.say(text="hello")` does.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from tests.fakes.discord_people import People
from tests.fakes.discord_rest import Files
from tests.fakes.discord_world import BOT, CHANNEL, GUILD, JANE, MAX, TOKEN, ApiError, Shown, displays
from tests.fakes.server import Json, LocalServer, main, read_form

__all__ = ["BOT", "CHANNEL", "GUILD", "JANE", "MAX", "TOKEN", "Call", "FakeDiscord", "Rates", "Shown"]

PREFIX = "/api/v10/"
PACED = frozenset(["createMessage", "editMessage", "deleteMessage", "createThread", "typing"])
# These carry their own token, and count for no global limit.
FREE = frozenset(["callback", "getOriginal", "editOriginal", "followup"])


@dataclass(slots=True)
class Call:
    """One call of the bot. Times are time.monotonic()."""

    method: str
    channel: str
    body: Any
    files: Files
    at: float
    thread: int  # the OS thread that served it
    status: int = 0  # the HTTP status answered, 0 while there is none (hanging, dropped)
    done: float = 0.0

    @property
    def text(self) -> str:
        said = self.body if isinstance(self.body, dict) else {}
        return "\n".join(filter(None, [str(said.get("content") or ""), *displays(said.get("components"))]))


@dataclass(slots=True)
class Rates:
    """Calls of one route into one channel in `window` seconds, and calls a second in all."""

    limit: int = 5
    window: float = 5.0
    overall: int = 50


@dataclass(slots=True)
class Bucket:
    left: int = 0
    until: float = 0.0
    arrived: list[float] = field(default_factory=list)


class FakeDiscord(People, LocalServer):
    """The whole of it. `rates`: limits are enforced; `latency` seconds before every answer."""

    def __init__(self, *, rates: Rates | None = None, latency: float = 0.0, seed: int = 0) -> None:
        LocalServer.__init__(self, latency=latency, seed=seed)
        self.rates = rates
        self.calls: list[Call] = []
        self.floods = 0  # calls answered with 429 because of `rates`
        self._buckets: dict[tuple[str, str], Bucket] = defaultdict(Bucket)
        self._all = Bucket()
        People.__init__(self)

    @property
    def api_url(self) -> str:
        return f"{self.base_url}/api/v10"

    def routes(self, app: web.Application) -> None:
        app.router.add_get("/", self.serve_gateway)
        app.router.add_get("/attachments/{channel}/{file}/{name}", self._serve_file)
        app.router.add_route("*", PREFIX + "{path:.*}", self._serve)

    async def start(self, port: int = 0) -> FakeDiscord:
        await LocalServer.start(self, port)
        self.base = self.base_url
        return self

    def push(self, event: str, data: Json) -> None:
        """Send to every session, from any thread."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if self._loop is None or here is self._loop:
            People.push(self, event, data)
        else:
            shape = orjson.loads(orjson.dumps(data))
            self.call_in_loop(lambda: People.push(self, event, shape))

    # ------------------------------------------------------------ calls

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        found = self.find(request.method, path)
        if found is None:
            return answer({"message": "404: Not Found", "code": 0}, 404)
        name, params = found
        body, files = await read(request)
        call = Call(name, params.get("channel", ""), body, files, time.monotonic(), threading.get_ident())
        self.calls.append(call)
        if name not in FREE and request.headers.get("Authorization") != f"Bot {self.token}":
            call.status = 401
            return answer({"message": "401: Unauthorized", "code": 0}, 401)
        response = await self._answer(request, call, params)
        call.status, call.done = response.status, time.monotonic()
        return response

    async def _answer(self, request: web.Request, call: Call, params: dict[str, str]) -> web.StreamResponse:
        if self.latency:
            await asyncio.sleep(self.latency)
        chat = int(call.channel) if call.channel.isdecimal() else None
        fault = self.take_fault(call.method, chat, call.text)
        if fault and not fault.after:
            if fault.kind == "flood":
                return flood(fault.seconds)
            if fault.kind == "error":
                return broken(fault.code, fault.body)
            if suffered := await self.suffer(fault, request):
                return suffered
        headers = self._count(call)
        if headers.get("Retry-After"):
            self.floods += 1
            return flood(float(headers.pop("Retry-After")), headers)
        try:
            result = self.run(call.method, params, call.body, call.files, dict(request.query))
            response = answer(result, headers=headers)
        except ApiError as error:
            response = answer(error.body, error.status, headers)
        if fault and fault.after:
            if fault.kind == "error":
                return broken(fault.code, fault.body)
            return await self.suffer(fault, request) or response
        return response

    def _count(self, call: Call) -> dict[str, str]:
        """Return the headers of the route's bucket, with Retry-After if the call exceeds the limit."""
        if self.rates is None or call.method in FREE:
            return {}
        now = time.monotonic()
        self._all.arrived = [at for at in self._all.arrived if at > now - 1]
        if len(self._all.arrived) >= self.rates.overall:
            return {"Retry-After": f"{self._all.arrived[0] + 1 - now:.3f}", "X-RateLimit-Global": "true"}
        self._all.arrived.append(now)
        if call.method not in PACED:
            return {}
        bucket = self._buckets[call.method, call.channel]
        if now >= bucket.until:
            bucket.left, bucket.until = self.rates.limit, now + self.rates.window
        after = bucket.until - now
        headers = {"X-RateLimit-Bucket": f"bucket-{call.method}", "X-RateLimit-Limit": str(self.rates.limit)}
        headers |= {"X-RateLimit-Reset-After": f"{after:.3f}", "X-RateLimit-Reset": f"{time.time() + after:.3f}"}
        if bucket.left <= 0:
            return headers | {"X-RateLimit-Remaining": "0", "Retry-After": f"{after:.3f}"}
        bucket.left -= 1
        return headers | {"X-RateLimit-Remaining": str(bucket.left)}

    async def _serve_file(self, request: web.Request) -> web.StreamResponse:
        data = self.files.get(request.match_info["file"])
        if data is None or request.query.get("hm") != str(self.links):
            return web.Response(status=404, text="This content is no longer available.")
        return await self.give(request, data, "application/octet-stream")

    # ------------------------------------------------------------ inspection

    def calls_of(self, *methods: str) -> list[Call]:
        return [call for call in self.calls if call.method in methods]

    async def wait(self, text: str, channel: str = "", seconds: float = 60.0) -> None:
        """Wait until a message of the bot with this text is visible. Raises TimeoutError."""
        end = time.monotonic() + seconds
        while not any(text in shown.text for shown in self.visible(channel)):
            if time.monotonic() > end:
                raise TimeoutError(f"no {text!r} in {seconds} s")
            await asyncio.sleep(0.01)


async def read(request: web.Request) -> tuple[Any, Files]:
    """The JSON of a body, and the files of a multipart one."""
    if request.content_type != "multipart/form-data":
        raw = await request.read()
        return (orjson.loads(raw) if raw else {}), {}
    form = await read_form(request)
    _, body = form.files.pop("payload_json", ("", b""))  # where the part has a content type
    return orjson.loads(body or form.texts.get("payload_json") or "{}"), form.files


def answer(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Discord's content type is exactly this: discord.py takes one with a charset for text. Without Via it takes a 429
    for a ban."""
    sent = {"Via": "1.1 google", **(headers or {})}
    if body is None:
        return web.Response(status=204, headers=sent)
    return web.Response(body=orjson.dumps(body), status=status, headers={**sent, "Content-Type": "application/json"})


def flood(seconds: float, headers: dict[str, str] | None = None) -> web.Response:
    everywhere = bool(headers and headers.get("X-RateLimit-Global"))
    body = {"message": "You are being rate limited.", "retry_after": seconds, "global": everywhere}
    return answer(body, 429, {"Retry-After": str(math.ceil(seconds)), **(headers or {})})


def broken(code: int, body: str) -> web.Response:
    """Return a fault in front of Discord: an HTML page, or the given body."""
    if body:
        return web.Response(status=code, text=body, content_type="text/html")
    return answer({"message": f"{code}: broken", "code": 0}, code)


if __name__ == "__main__":
    main(FakeDiscord())
