"""A server that runs inside a sandbox, shown to people: signed links that lead through the service to one port.

A link is `/p/TOKEN/…`, or `TOKEN.` in front of a host name where `public_url` has a `*` there, which keeps the pages of
different links apart in a browser as different origins. The token names the link and its end and is signed with a
secret of this life of the service; what it stands for is known here only, and ends with the sandbox. Each connection
carries one request: its head and that of the answer are rewritten, everything else passes through as it comes, a
WebSocket too. Whoever has the link may look: it is as public as the place where it was posted.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import secrets
import time
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol, Self, runtime_checkable
from urllib.parse import urlsplit

from sandbox.base import SandboxError, SandboxUnavailable
from sandbox.network.proxy import FAULTS, HEAD, HEAD_SECONDS, Bad, Ends, Head, refuse, splice

log = logging.getLogger(__name__)

CONNECTIONS = 256  # at once
OF_ONE = 32  # … that one link takes into its sandbox; more wait
LINKS = 500  # the oldest goes for one more
SILENCE = 300.0  # seconds without a byte
TOKEN = re.compile(r"([0-9a-f]{16})-([0-9a-f]{1,12})-([0-9a-f]{32})")  # fits into one label of a host name
INVALID = "This link is not valid, or its time is over."


@dataclass(frozen=True, slots=True)
class PreviewSettings:
    """`sandbox.network.preview` in config.yaml."""

    enabled: bool = field(
        default=False, metadata={"help": "the agent may show a server that it runs in its sandbox, by a link"}
    )
    listen: str = field(default="127.0.0.1:8088", metadata={"help": "address and port where those links are served"})
    public_url: str = field(
        default="",
        metadata={
            "help": "what people reach that address by, such as `https://*.preview.example.com`, where each link is an"
            " origin of its own, or `https://preview.example.com`; empty: `listen`"
        },
    )
    minutes: float = field(default=60.0, metadata={"help": "how long a link works", "least": 1})


@runtime_checkable
class Shows(Protocol):
    """A sandbox whose ports can be connected to."""

    @property
    def gone(self) -> bool:
        """It ended, and its servers with it."""

    def dial(self, port: int) -> AbstractAsyncContextManager[Ends]:
        """A connection to the port. Raises SandboxError."""


@dataclass(frozen=True, slots=True)
class _Link:
    """One port of one sandbox. `site` is the host of its URL."""

    machine: Shows
    port: int
    ends: int
    site: str
    slots: asyncio.Semaphore


@dataclass(frozen=True, slots=True)
class _Visit:
    """A request for a link: `line` is its first one as the server inside gets it, `prefix` what of the path was the
    link's."""

    link: _Link
    head: Head
    line: str
    prefix: str

    @property
    def upgrades(self) -> bool:
        """It is to become a WebSocket."""
        return self.head.value("upgrade").lower() == "websocket"

    def asked(self) -> Head:
        """As the server inside is used to be asked: by its own name, from its own pages. Pages of other sites stay
        what they are."""
        here = f"localhost:{self.link.port}"
        fields = [("Host", here), *self.head.passed("origin"), *_connection(self.upgrades)]
        if origin := self.head.value("origin"):
            own = origin.partition("://")[2] in (self.link.site, self.head.value("host"))
            fields.append(("Origin", f"http://{here}" if own else origin))
        return Head(self.line, fields)

    def answered(self, head: Head) -> Head:
        """Without what would let a page reach beyond its own path."""
        fields = head.passed("location", "set-cookie", "service-worker-allowed", "referrer-policy")
        for name, value in head.fields:
            if name.lower() == "set-cookie":
                fields.append((name, _cookie(value, self.prefix)))
            elif name.lower() == "location":
                where = re.sub(rf"^https?://(localhost|127\.0\.0\.1)(:{self.link.port})?(?=/|$)", "", value) or "/"
                fields.append((name, self.prefix + where if where.startswith("/") else where))
        fields.append(("Referrer-Policy", "same-origin"))  # the link is in the address: other sites must not see it
        return Head(head.line, [*fields, *_connection(head.status == "101")])


class Preview:
    """The links of this life of the service, and the server that answers them: `async with`."""

    def __init__(self, settings: PreviewSettings) -> None:
        self._settings = settings
        self._secret = secrets.token_bytes(32)
        self._links: dict[str, _Link] = {}
        self._visitors: set[asyncio.Task[None]] = set()
        self._url = settings.public_url.rstrip("/")

    async def __aenter__(self) -> Self:
        host, _, port = self._settings.listen.rpartition(":")
        try:
            self._server = await asyncio.start_server(self._accept, host.strip("[]"), int(port), limit=HEAD)
        except (OSError, ValueError) as error:
            raise SandboxUnavailable(
                f"sandbox.preview.listen: {self._settings.listen!r} cannot be used: {error}"
            ) from error
        self._url = self._url or f"http://{host}:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._visitors:
            task.cancel()
        if self._visitors:
            await asyncio.wait(self._visitors)

    async def show(self, machine: object, port: int) -> str:
        """A link to what listens on `port` inside. Raises SandboxError when nothing does."""
        if not isinstance(machine, Shows):
            raise SandboxUnavailable("This kind of sandbox cannot show its ports.")
        async with machine.dial(port):
            pass  # it answers
        self._links = {name: link for name, link in self._links.items() if link.ends > time.time()}
        if len(self._links) >= LINKS:
            del self._links[next(iter(self._links))]
        name, ends = secrets.token_hex(8), int(time.time() + self._settings.minutes * 60)
        token = f"{name}-{ends:x}-{self._sign(name, ends)}"
        url = f"{self._url.replace('*', token)}/" if "*" in self._url else f"{self._url}/p/{token}/"
        self._links[name] = _Link(machine, port, ends, urlsplit(url).netloc, asyncio.Semaphore(OF_ONE))
        log.info("preview.shown port=%d link=%s until=%d", port, name, ends)
        return url

    def _sign(self, name: str, ends: int) -> str:
        return hmac.new(self._secret, f"{name}-{ends}".encode(), hashlib.sha256).hexdigest()[:32]

    # ------------------------------------------------------------ answers

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._visitors) >= CONNECTIONS:
            writer.close()
            return
        task = asyncio.create_task(self._client((reader, writer)), name="preview")
        self._visitors.add(task)
        task.add_done_callback(self._visitors.discard)

    async def _client(self, client: Ends) -> None:
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                head = await Head.read(client[0])
            await self._answer(head, client)
        except Bad as error:
            await refuse(client[1], 400, str(error), "bad")
        except FAULTS as error:
            log.debug("preview.broken reason=%r", error)
        finally:
            client[1].close()

    async def _answer(self, head: Head, client: Ends) -> None:
        method, _, rest = head.line.partition(" ")
        target, _, version = rest.rpartition(" ")
        if not version.startswith("HTTP/1."):
            raise Bad("not a request")
        token, prefix = head.value("host").partition(".")[0], ""
        if not TOKEN.fullmatch(token):
            found = re.match(r"/p/([0-9a-f-]+)(?=[/?]|$)", target)
            if not found:
                await _astray(head, target, client[1])
                return
            token, prefix, target = found[1], found[0], target[found.end() :]
        link = self._find(token)
        if link is None:
            await refuse(client[1], 403, INVALID, "link")
        elif link.machine.gone:
            await refuse(client[1], 410, "The sandbox of this link has stopped.", "gone")
        elif not target.startswith("/"):
            await refuse(client[1], 308, "It is a folder.", "folder", ("Location", f"{prefix}/{target}"))
        else:
            # What is open ends with the link: a page that stays would keep its sandbox for ever.
            async with asyncio.timeout(link.ends - time.time()):
                await _pass(_Visit(link, head, f"{method} {target} {version}", prefix), client)

    def _find(self, token: str) -> _Link | None:
        parts = TOKEN.fullmatch(token)
        if not parts:
            return None
        name, ends = parts[1], int(parts[2], 16)
        if ends < time.time() or not hmac.compare_digest(self._sign(name, ends), parts[3]):
            return None
        return self._links.get(name)


async def _pass(visit: _Visit, client: Ends) -> None:
    """A request and its answer, piece by piece."""
    link, answered = visit.link, False

    async def begin() -> None:
        nonlocal answered
        while True:
            head = await Head.read(inside[0])
            final = head.status == "101" or not head.status.startswith("1")
            client[1].write(bytes(visit.answered(head) if final else head))
            if final:
                answered = True
                return

    try:
        async with link.slots, link.machine.dial(link.port) as inside:
            inside[1].write(bytes(visit.asked()))
            await splice(client, inside, SILENCE, half=False, begin=begin)
    except SandboxError as error:
        log.info("preview.unreached port=%d reason=%r", link.port, error)
    if not answered:
        await refuse(client[1], 502, f"Nothing answers on port {link.port} of the sandbox.", "unreachable")


async def _astray(head: Head, target: str, writer: asyncio.StreamWriter) -> None:
    """A page that means to be at the root asks for "/app.js": it comes from a link, which the browser names."""
    came = re.match(r"https?://[^/]+(/p/[0-9a-f-]+)/", head.value("referer"))
    if came and head.value("sec-fetch-site") in ("", "same-origin"):
        await refuse(writer, 307, "It is below the link.", "astray", ("Location", came[1] + target))
    else:
        await refuse(writer, 403, INVALID, "link")


def _connection(upgrades: bool) -> list[tuple[str, str]]:
    return [("Connection", "Upgrade"), ("Upgrade", "websocket")] if upgrades else [("Connection", "close")]


def _cookie(value: str, prefix: str) -> str:
    """A cookie that only this link gets back."""
    parts = [part.strip() for part in value.split(";")]
    kept = [part for part in parts[1:] if part.partition("=")[0].lower() not in ("domain", "path")]
    path = next((part[5:] for part in parts[1:] if part.lower().startswith("path=/")), "/")
    return "; ".join([parts[0], *kept, f"Path={prefix}{path}"])


__all__ = ["Preview", "PreviewSettings"]
