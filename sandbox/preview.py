"""A server that runs inside a sandbox, shown to people: signed links that lead through the service to one port.

A link is `/p/TOKEN/…`, or `TOKEN.` in front of a host name where `public_url` has a `*` there, which keeps the pages of
different links apart in a browser as different sites. The token names the link and its end and is signed with a secret
of this life of the service; what it stands for is known here only, and ends with the sandbox. HTTP and WebSocket pass
through as streams. Whoever has the link may look: it is as public as the place where it was posted.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import secrets
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

import aiohttp
from aiohttp import web
from yarl import URL

from sandbox.base import SandboxError, SandboxUnavailable
from sandbox.egress_proxy import Ends, splice
from sandbox.preview_settings import PreviewSettings
from sandbox.scratch import scratch

log = logging.getLogger(__name__)

CONNECTIONS = 32  # at once, of one link
LINKS = 500  # the oldest goes for one more
SILENCE = 300.0  # seconds without a byte
TOKEN = re.compile(r"([0-9a-f]{16})-([0-9a-f]{1,12})-([0-9a-f]{32})")  # fits into one label of a host name
INVALID = "This link is not valid, or its time is over.\n"
# Of one connection, not of the message (RFC 9110 §7.6.1), and what would let a page reach beyond its own path.
HOP = frozenset(
    ("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding")
) | {"upgrade", "host"}
WITHHELD = HOP | {"set-cookie", "location", "service-worker-allowed"}
AUTOMATIC = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")  # what aiohttp would add by itself


@runtime_checkable
class Shows(Protocol):
    """A sandbox whose ports can be connected to."""

    @property
    def gone(self) -> bool:
        """It ended, and its servers with it."""

    def dial(self, port: int) -> AbstractAsyncContextManager[Ends]:
        """A connection to the port. Raises SandboxError."""


@dataclass(slots=True)
class _Link:
    """One port of one sandbox. `server` is a socket of ours: whoever connects to it talks to that port. `site` is the
    host of the link's URL."""

    machine: Shows
    port: int
    ends: int
    site: str
    server: asyncio.Server
    session: aiohttp.ClientSession
    tasks: set[asyncio.Task[None]]

    async def close(self) -> None:
        self.server.close()
        for task in self.tasks:
            task.cancel()
        await self.session.close()


class Preview:
    """The links of this life of the service, and the server that answers them: `async with`."""

    def __init__(self, settings: PreviewSettings) -> None:
        self._settings = settings
        self._secret = secrets.token_bytes(32)
        self._links: dict[str, _Link] = {}
        self._url = settings.public_url.rstrip("/")

    async def __aenter__(self) -> Self:
        host, _, port = self._settings.listen.rpartition(":")
        app = web.Application(client_max_size=0)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(
            app, access_log=None, auto_decompress=False, shutdown_timeout=1, handler_cancellation=True
        )
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host.strip("[]"), int(port)).start()
        except (OSError, ValueError) as error:
            await self._runner.cleanup()
            raise SandboxUnavailable(
                f"sandbox.preview.listen: {self._settings.listen!r} cannot be used: {error}"
            ) from error
        self._url = self._url or f"http://{host}:{self._runner.addresses[0][1]}"
        self._folder = scratch()
        self._sweeper = asyncio.create_task(self._sweep(), name="preview")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._sweeper.cancel()
        await self._runner.cleanup()
        for name in list(self._links):
            await self._forget(name)
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def show(self, machine: object, port: int) -> str:
        """A link to what listens on `port` inside. Raises SandboxError when nothing does."""
        if not isinstance(machine, Shows):
            raise SandboxUnavailable("This kind of sandbox cannot show its ports.")
        async with machine.dial(port):
            pass  # it answers
        while len(self._links) >= LINKS:
            await self._forget(next(iter(self._links)))
        name, ends = secrets.token_hex(8), int(time.time() + self._settings.minutes * 60)
        token = f"{name}-{ends:x}-{self._sign(name, ends)}"
        url = f"{self._url.replace('*', token)}/" if "*" in self._url else f"{self._url}/p/{token}/"
        self._links[name] = await self._open(name, machine, port, ends, URL(url).authority)
        log.info("preview.shown port=%d link=%s until=%d", port, name, ends)
        return url

    async def _open(self, name: str, machine: Shows, port: int, ends: int, site: str) -> _Link:
        tasks: set[asyncio.Task[None]] = set()
        path = self._folder / name

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(_carry(machine, port, (reader, writer)), name=f"preview:{name}")
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        server = await asyncio.start_unix_server(accept, path)
        session = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(str(path), limit=CONNECTIONS),
            timeout=aiohttp.ClientTimeout(total=None, sock_read=SILENCE),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        return _Link(machine, port, ends, site, server, session, tasks)

    async def _sweep(self) -> None:
        """End the links whose time is over, with what is open: a page that stays would keep its sandbox for ever."""
        while True:
            await asyncio.sleep(1)
            for name in [name for name, link in self._links.items() if link.ends < time.time()]:
                await self._forget(name)

    async def _forget(self, name: str) -> None:
        if link := self._links.pop(name, None):
            await link.close()

    def _sign(self, name: str, ends: int) -> str:
        return hmac.new(self._secret, f"{name}-{ends}".encode(), hashlib.sha256).hexdigest()[:32]

    # ------------------------------------------------------------ answers

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        token, prefix, rest = request.host.partition(".")[0], "", request.raw_path
        if not TOKEN.fullmatch(token):
            found = re.match(r"/p/([0-9a-f-]+)(?=[/?]|$)", rest)
            if not found:
                return _astray(request)
            token, prefix, rest = found[1], found[0], rest[found.end() :]
        link = self._find(token)
        if link is None:
            return web.Response(status=403, text=INVALID)
        if link.machine.gone:
            return web.Response(status=410, text="The sandbox of this link has stopped.\n")
        if not rest.startswith("/"):
            raise web.HTTPPermanentRedirect(f"{prefix}/{rest}")
        try:
            if request.headers.get("Upgrade", "").lower() == "websocket":
                return await _socket(request, link, rest)
            return await _pass(request, link, rest, prefix)
        except aiohttp.WSServerHandshakeError as error:
            return web.Response(status=max(error.status, 400), text="The server in the sandbox wants no WebSocket.\n")
        except aiohttp.ClientError as error:
            log.info("preview.failed port=%d reason=%r", link.port, error)
            return web.Response(status=502, text=f"Nothing answers on port {link.port} of the sandbox.\n")

    def _find(self, token: str) -> _Link | None:
        parts = TOKEN.fullmatch(token)
        if not parts:
            return None
        name, ends = parts[1], int(parts[2], 16)
        if ends < time.time() or not hmac.compare_digest(self._sign(name, ends), parts[3]):
            return None
        return self._links.get(name)


async def _carry(machine: Shows, port: int, client: Ends) -> None:
    """One connection of ours, to the port."""
    try:
        async with machine.dial(port) as inside:
            await splice(client, inside, half=False)  # our own client, which never ends only its half
    except SandboxError as error:
        log.info("preview.unreached port=%d reason=%r", port, error)
    finally:
        client[1].close()


def _astray(request: web.Request) -> web.StreamResponse:
    """A page that means to be at the root asks for "/app.js": it comes from a link, which the browser names."""
    came = re.match(r"https?://[^/]+(/p/[0-9a-f-]+)/", request.headers.get("Referer", ""))
    if came and request.headers.get("Sec-Fetch-Site", "same-origin") == "same-origin":
        return web.Response(status=307, headers={"Location": came[1] + request.raw_path})
    return web.Response(status=403, text=INVALID)


def _headers(request: web.Request, link: _Link) -> list[tuple[str, str]]:
    """As the server inside is used to be asked: by its own name, from its own pages. Other sites' pages stay what they
    are."""
    here = f"localhost:{link.port}"
    dropped = HOP.union(name.strip().lower() for name in request.headers.get("Connection", "").split(","))
    passed = [(name, value) for name, value in request.headers.items() if name.lower() not in dropped | {"origin"}]
    if origin := request.headers.get("Origin"):
        own = origin.partition("://")[2] in (link.site, request.host)
        passed.append(("Origin", f"http://{here}" if own else origin))
    return [*passed, ("Host", here)]


async def _pass(request: web.Request, link: _Link, rest: str, prefix: str) -> web.StreamResponse:
    """A request and its answer, piece by piece."""
    body: AsyncIterator[bytes] | None = request.content.iter_any() if request.can_read_body else None
    headers = [(name, value) for name, value in _headers(request, link) if body is None or name.lower() != "expect"]
    url = f"http://localhost:{link.port}{rest}"
    async with link.session.request(
        request.method, _raw(url), headers=headers, data=body, allow_redirects=False, skip_auto_headers=AUTOMATIC
    ) as inner:
        answer = web.StreamResponse(status=inner.status, reason=inner.reason)
        for name, value in inner.headers.items():
            if name.lower() not in WITHHELD:
                answer.headers.add(name, value)
        for value in inner.headers.getall("Set-Cookie", ()):
            answer.headers.add("Set-Cookie", _cookie(value, prefix))
        if where := inner.headers.get("Location"):
            where = re.sub(rf"^https?://(localhost|127\.0\.0\.1)(:{link.port})?(?=/|$)", "", where) or "/"
            answer.headers["Location"] = prefix + where if where.startswith("/") else where
        answer.headers["Referrer-Policy"] = "same-origin"  # the link is in the address: other sites must not see it
        await answer.prepare(request)
        try:
            async for data in inner.content.iter_any():
                await answer.write(data)
            await answer.write_eof()
        except (aiohttp.ClientError, ConnectionError):  # somebody has left
            if request.transport:  # half an answer must not look like a whole one, nor the next one like its rest
                request.transport.close()
        return answer


def _raw(url: str) -> URL:
    """The URL as it came: what the person's browser wrote is not written anew."""
    return URL(url, encoded=True)


def _cookie(value: str, prefix: str) -> str:
    """A cookie that only this link gets back."""
    parts = [part.strip() for part in value.split(";")]
    kept = [part for part in parts[1:] if part.partition("=")[0].lower() not in ("domain", "path")]
    path = next((part[5:] for part in parts[1:] if part.lower().startswith("path=/")), "/")
    return "; ".join([parts[0], *kept, f"Path={prefix}{path}"])


async def _socket(request: web.Request, link: _Link, rest: str) -> web.StreamResponse:
    """A WebSocket, both ways."""
    own = ("sec-websocket-key", "sec-websocket-version", "sec-websocket-extensions", "sec-websocket-protocol")
    headers = [(name, value) for name, value in _headers(request, link) if name.lower() not in own]
    offered = [word.strip() for word in request.headers.get("Sec-WebSocket-Protocol", "").split(",") if word.strip()]
    async with link.session.ws_connect(
        _raw(f"http://localhost:{link.port}{rest}"), headers=headers, protocols=offered, max_msg_size=16 << 20
    ) as inner:
        outer = web.WebSocketResponse(protocols=[inner.protocol] if inner.protocol else [], max_msg_size=16 << 20)
        await outer.prepare(request)

        async def forward(
            source: aiohttp.ClientWebSocketResponse | web.WebSocketResponse,
            sink: aiohttp.ClientWebSocketResponse | web.WebSocketResponse,
        ) -> None:
            async for message in source:
                if message.type == aiohttp.WSMsgType.TEXT:
                    await sink.send_str(message.data)
                elif message.type == aiohttp.WSMsgType.BINARY:
                    await sink.send_bytes(message.data)
            await sink.close(code=source.close_code or 1000)

        pair = [
            asyncio.create_task(forward(outer, inner), name="preview-in"),
            asyncio.create_task(forward(inner, outer), name="preview-out"),
        ]
        try:
            await asyncio.wait(pair, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in pair:
                task.cancel()
            await asyncio.gather(*pair, return_exceptions=True)
        return outer


__all__ = ["Preview", "PreviewSettings"]
