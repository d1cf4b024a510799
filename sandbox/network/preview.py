"""Signed links to a port inside a sandbox, and the server that answers them.

A link is `/p/TOKEN/…`, or `TOKEN.` in front of a host name if `public_url` has a `*` there; then a browser treats each
link as its own origin. The token has the link's name and end, signed with a secret of this process. The link ends with
its sandbox. Each connection carries one request, which may become a WebSocket; `headers` filters them. Anyone with the
link can open it, so it is as public as the place where it was posted.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import secrets
import time
from collections import Counter
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol, Self, runtime_checkable
from urllib.parse import urlsplit

import h11

from catalogue import N_, preferred_language, use_language
from sandbox.base import SandboxError, SandboxUnavailable, StreamPair
from sandbox.network.headers import LinkSite, request_headers, response_headers
from sandbox.network.http import PEER_ERRORS, BadRequest, HttpPeer, carry_exchange, header_value

log = logging.getLogger(__name__)

MAX_SILENT_CONNECTIONS = 128  # without a request yet; beyond, the busiest address loses its oldest
MAX_REQUESTS = 1024  # of all links
MAX_REQUESTS_PER_LINK = 64
LINK_SHARE = 8  # always available to a link
LINK_SLOTS = 16  # concurrent of one link; more requests wait. Half of what a tunnel carries, so that others get through
MAX_LINKS = 500  # a new link replaces the oldest
IDLE_SECONDS = 300.0
TOKEN_PATTERN = re.compile(r"([0-9a-f]{16})-([0-9a-f]{1,12})-([0-9a-f]{32})")  # fits into one label of a host name
INVALID_LINK = N_("This link is not valid or has expired.")


@dataclass(frozen=True, slots=True)
class PreviewSettings:
    """`sandbox.network.preview` in config.yaml."""

    enabled: bool = field(
        default=False, metadata={"help": "the agent may create a link to a server that runs in its sandbox"}
    )
    listen: str = field(default="127.0.0.1:8088", metadata={"help": "address and port that serve those links"})
    public_url: str = field(
        default="",
        metadata={
            "help": "public URL of that address: `https://*.preview.example.com` gives each link its own origin,"
            " `https://preview.example.com` does not; empty: `listen`"
        },
    )
    minutes: float = field(default=60.0, metadata={"help": "how long a link works", "ge": 1})


@runtime_checkable
class PreviewSource(Protocol):
    """A sandbox whose ports can be connected to."""

    @property
    def gone(self) -> bool:
        """Whether the sandbox has ended."""

    def dial(self, port: int) -> AbstractAsyncContextManager[StreamPair]:
        """Connect to the port. Raises SandboxError."""


@dataclass(slots=True)
class _PreviewLink:
    """A link to one port of one sandbox. `host` is that of its URL."""

    name: str
    sandbox: PreviewSource
    port: int
    expires: int
    host: str
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LINK_SLOTS))
    requests: int = 0


class PreviewServer:
    """The links of this process, and their HTTP server: `async with`."""

    def __init__(self, settings: PreviewSettings) -> None:
        self._settings = settings
        self._secret = secrets.token_bytes(32)
        self._links: dict[str, _PreviewLink] = {}
        self._visitors: set[asyncio.Task[None]] = set()
        self._silent: dict[asyncio.StreamWriter, str] = {}  # the client's address
        self._requests = 0
        self._url = settings.public_url.rstrip("/")

    async def __aenter__(self) -> Self:
        host, _, port = self._settings.listen.rpartition(":")
        try:
            self._server = await asyncio.start_server(self._accept, host.strip("[]"), int(port))
        except (OSError, ValueError) as error:
            text = N_("`sandbox.preview.listen`: {listen!r} cannot be used: {error}")
            raise SandboxUnavailable(text, listen=self._settings.listen, error=str(error)) from error
        self._url = self._url or f"http://{host}:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._visitors:
            task.cancel()
        if self._visitors:
            await asyncio.wait(self._visitors)

    async def make_link(self, sandbox: object, port: int) -> str:
        """Make a link to `port` inside. Raises SandboxError if nothing listens there."""
        if not isinstance(sandbox, PreviewSource):
            raise SandboxUnavailable(N_("This kind of sandbox cannot show its ports."))
        async with sandbox.dial(port):
            pass  # it answers
        self._links = {name: link for name, link in self._links.items() if link.expires > time.time()}
        if len(self._links) >= MAX_LINKS:
            del self._links[next(iter(self._links))]
        name, ends = secrets.token_hex(8), int(time.time() + self._settings.minutes * 60)
        token = f"{name}-{ends:x}-{self._sign_token(name, ends)}"
        url = f"{self._url.replace('*', token)}/" if "*" in self._url else f"{self._url}/p/{token}/"
        self._links[name] = _PreviewLink(name, sandbox, port, ends, urlsplit(url).netloc)
        log.info("preview.shown port=%d link=%s until=%d", port, name, ends)
        return url

    def _sign_token(self, name: str, ends: int) -> str:
        return hmac.new(self._secret, f"{name}-{ends}".encode(), hashlib.sha256).hexdigest()[:32]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._silent[writer] = str(writer.get_extra_info("peername")[0])
        if len(self._silent) > MAX_SILENT_CONNECTIONS:
            [(crowded, _)] = Counter(self._silent.values()).most_common(1)
            oldest = next(one for one, address in self._silent.items() if address == crowded)
            del self._silent[oldest]
            oldest.transport.abort()
        task = asyncio.create_task(self._serve_client((reader, writer)), name="preview")
        self._visitors.add(task)
        task.add_done_callback(self._visitors.discard)

    async def _serve_client(self, ends: StreamPair) -> None:
        async with HttpPeer(h11.SERVER, ends) as client:
            try:
                try:
                    request = await client.read_request()
                finally:
                    self._silent.pop(ends[1], None)
                with use_language(preferred_language(header_value(request, b"accept-language"))):
                    await self._serve_request(request, client)
            except BadRequest as error:
                await client.refuse(400, str(error), "bad")
            except PEER_ERRORS as error:
                log.debug("preview.broken reason=%r", error)

    async def _serve_request(self, request: h11.Request, client: HttpPeer) -> None:
        target, prefix = request.target.decode(), ""
        token = header_value(request, b"host").partition(".")[0]
        if not TOKEN_PATTERN.fullmatch(token):
            found = re.match(r"/p/([0-9a-f-]+)(?=[/?]|$)", target)
            if not found:
                await _redirect_stray(request, target, client)
                return
            token, prefix, target = found[1], found[0], target[found.end() :]
        link = self._find_link(token)
        if link is None:
            await client.refuse(403, INVALID_LINK, "link")
        elif link.sandbox.gone:
            await client.refuse(410, N_("The sandbox of this link has stopped."), "gone")
        elif not target.startswith("/"):
            await client.refuse(308, N_("Add a slash."), "folder", ("Location", f"{prefix}/{target}"))
        elif link.requests >= (MAX_REQUESTS_PER_LINK if self._requests < MAX_REQUESTS else LINK_SHARE):
            await client.refuse(
                503, N_("Too many requests at once. Try again in a moment."), "busy", ("Retry-After", "1")
            )
        else:
            link.requests += 1
            self._requests += 1
            try:
                # Open connections end with the link: an open page would otherwise keep its sandbox for ever.
                async with asyncio.timeout(link.expires - time.time()):
                    await _forward_request(link, request, target, prefix, client)
            finally:
                link.requests -= 1
                self._requests -= 1

    def _find_link(self, token: str) -> _PreviewLink | None:
        parts = TOKEN_PATTERN.fullmatch(token)
        if not parts:
            return None
        name, ends = parts[1], int(parts[2], 16)
        if ends < time.time() or not hmac.compare_digest(self._sign_token(name, ends), parts[3]):
            return None
        return self._links.get(name)


async def _forward_request(
    link: _PreviewLink, request: h11.Request, target: str, prefix: str, client: HttpPeer
) -> None:
    """Forward a request into the sandbox, and its response back."""
    site = LinkSite(link.name, link.port, link.host, prefix)
    inner = h11.Request(method=request.method, target=target, headers=request_headers(request, site))
    try:
        async with link.slots, link.sandbox.dial(link.port) as inside:
            server = HttpPeer(h11.CLIENT, inside)  # `dial` closes it
            await carry_exchange(client, server, inner, lambda head: response_headers(head, site), IDLE_SECONDS)
    except SandboxError as error:
        log.info("preview.unreached port=%d reason=%r", link.port, error)
    await client.refuse(502, N_("Nothing answers on port {port} of the sandbox."), "unreachable", port=link.port)


async def _redirect_stray(request: h11.Request, target: str, client: HttpPeer) -> None:
    """Redirect a request for "/app.js" below the link of the page that made it, which the Referer names."""
    came = re.match(r"https?://[^/]+(/p/[0-9a-f-]+)/", header_value(request, b"referer"))
    if came and header_value(request, b"sec-fetch-site") in ("", "same-origin") and target.startswith("/"):
        await client.refuse(307, N_("The page is below the link."), "astray", ("Location", came[1] + target))
    else:
        await client.refuse(403, INVALID_LINK, "link")
