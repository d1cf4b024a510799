"""One thread's HTTP proxy: CONNECT tunnels and plain HTTP requests, each asked of the rules first.

A name is resolved once, here, and the connection goes to the very address that was checked, so that an answer which
changes meanwhile leads nowhere else. A refusal is 403 with the reason in the status line (pip and git show that), in
the body (curl, npm) and as a word in X-Fawn-Refused. The other side is the tenant: sizes, times and counts are bounded.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import logging
import re
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from sandbox.network.rules import Denied, Guard, literal, normal, shown, split

log = logging.getLogger(__name__)

HEAD = 16 << 10  # bytes of a request's head
HEAD_SECONDS = 30.0
CONNECT_SECONDS = 15.0
IDLE_SECONDS = 600.0  # a connection over which nothing moves
CONNECTIONS = 64  # at once, of one sandbox
LOOKUPS = 3  # names that are resolved at once, of one sandbox
LINES = 120  # in the log, per minute and sandbox
CHUNK = 1 << 16
FIELD = re.compile(r"[!#$%&'*+.^`|~\w-]+:[^\x00-\x08\n-\x1f\x7f]*", re.ASCII)  # RFC 9112 §5, without folded lines
# Of one connection, not of the message (RFC 9110 §7.6.1), or said anew.
HOP = frozenset(("connection", "keep-alive", "te", "upgrade", "host")) | {
    "proxy-authenticate", "proxy-authorization", "proxy-connection"
}  # fmt: skip

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]
"""A connection."""

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""The addresses of a host, as text, best first. Raises OSError."""


# Not the loop's own threads: who asks for names that nobody answers would hold up the whole service.
_resolvers = ThreadPoolExecutor(16, "resolve")


async def resolve(host: str, port: int) -> list[str]:
    """As this machine does it."""
    ask = functools.partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_resolvers, ask)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Bad(Exception):
    """What came cannot be read; the text says why."""


FAULTS = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, Bad)  # a TimeoutError is an OSError


@dataclass(frozen=True, slots=True)
class Head:
    """Of a request or an answer: its first line, and its fields as (name, value)."""

    line: str
    fields: Sequence[tuple[str, str]] = ()

    @classmethod
    async def read(cls, reader: asyncio.StreamReader) -> Head:
        """The next one. Raises FAULTS."""
        data = await reader.readuntil(b"\r\n\r\n")
        line, *fields = data[:-4].decode("latin-1").split("\r\n")
        if re.search(r"[\x00-\x1f\x7f]", line):
            raise Bad("its first line is broken")
        if wrong := next((field for field in fields if not FIELD.fullmatch(field)), None):
            raise Bad(f"not a header: {wrong[:100]!r}")
        pairs = (field.split(":", 1) for field in fields)
        return cls(line, [(name, value.strip()) for name, value in pairs])

    @property
    def status(self) -> str:
        """Of an answer."""
        return self.line.partition(" ")[2][:3]

    def value(self, name: str) -> str:
        """Of the first field of this name (in lower case); "" without."""
        return next((value for field, value in self.fields if field.lower() == name), "")

    def passed(self, *withheld: str) -> list[tuple[str, str]]:
        """The fields that a proxy passes on, but for these (in lower case)."""
        own = {name.strip().lower() for name in self.value("connection").split(",")}
        return [(name, value) for name, value in self.fields if name.lower() not in HOP | own | set(withheld)]

    def __bytes__(self) -> bytes:
        lines = [self.line, *(f"{name}: {value}" for name, value in self.fields), "", ""]
        return "\r\n".join(lines).encode("latin-1")


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asks for. `head` is what the server is sent of it first; b"" makes it a tunnel."""

    host: str
    port: int
    head: bytes = b""


def parse(head: Head) -> Request:
    """Raises Bad."""
    try:
        method, target, version = head.line.split(" ")
        if method == "CONNECT":
            host, port = split(target)
            return Request(normal(host), port or 443)
        url = urlsplit(target)
        if url.scheme != "http":
            raise ValueError(f"{url.scheme or 'a path'} instead of http://")
        host, port = split(url.netloc.rpartition("@")[2])
        host, port = normal(host), port or 80
    except ValueError as error:
        raise Bad(f"not a request for a proxy: {error}") from error
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    # The host that was allowed is asked by its own name, whatever the client's own Host says.
    fields = [("Host", shown(host, port)), *head.passed(), ("Connection", "close")]
    return Request(host, port, bytes(Head(f"{method} {path} {version}", fields)))


class Proxy:
    """Serves one sandbox, `name` in the log. `upstream` is the operator's own proxy, "" for none: then that one
    resolves the names which this machine cannot."""

    def __init__(self, name: str, guard: Guard, upstream: str, resolve: Resolve) -> None:
        self._name, self._guard, self._upstream, self._resolve = name, guard, upstream, resolve
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._lookups = asyncio.Semaphore(LOOKUPS)
        self._expected: dict[str, asyncio.Future[Ends]] = {}
        self._minute, self._lines = 0, 0

    async def start(self, listener: socket.socket) -> None:
        """Serve what comes to `listener`, a unix socket."""
        self._server = await asyncio.start_unix_server(self._accept, sock=listener, limit=HEAD)

    async def aclose(self) -> None:
        """End the server and every connection."""
        if self._server:
            self._server.close()
        for task in self._clients:
            task.cancel()
        if self._clients:
            await asyncio.wait(self._clients)

    def expect(self, ticket: str) -> asyncio.Future[Ends]:
        """Somebody inside will come with this ticket: that connection is handed over."""
        return self._expected.setdefault(ticket, asyncio.get_running_loop().create_future())

    def forget(self, ticket: str) -> None:
        """Nobody waits for this ticket any more."""
        if (waiting := self._expected.pop(ticket, None)) and not waiting.done():
            waiting.cancel()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._client(reader, writer), name=f"egress:{self._name}")
        self._clients.add(task)
        task.add_done_callback(self._clients.discard)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kept = False
        try:
            if len(self._clients) > 2 * CONNECTIONS:
                return
            async with asyncio.timeout(HEAD_SECONDS):
                head = await Head.read(reader)
            if waiting := self._expected.pop(head.line.removeprefix("DIAL "), None):
                waiting.set_result((reader, writer))
                kept = True
                return
            if len(self._clients) > CONNECTIONS:  # now: an answer to what was not read would not arrive
                await refuse(writer, 503, f"more than {CONNECTIONS} connections at once", "busy")
                return
            await self._serve(parse(head), reader, writer)
        except Bad as error:
            await refuse(writer, 400, str(error), "bad")
        except FAULTS as error:
            log.debug("egress.broken sandbox=%s reason=%r", self._name, error)
        finally:
            if not kept:
                writer.close()

    async def _serve(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = request.host, request.port
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                up = await self._connect(host, port)
        except Denied as denied:
            self._say("egress.refused", f"host={host} port={port} why={denied.why}", logging.WARNING)
            await refuse(writer, 403, str(denied), denied.why)
            return
        except FAULTS as error:
            late = isinstance(error, TimeoutError)
            why = "it took too long" if late else getattr(error, "strerror", "") or "no answer"
            self._say("egress.failed", f"host={host} port={port} why={why!r}")
            await refuse(writer, 502, f"{shown(host, port)} cannot be reached: {why}", "unreachable")
            return
        begun = time.monotonic()
        if request.head:
            up[1].write(request.head)
        else:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            sent, received = await splice((reader, writer), up)
        finally:
            up[1].close()
        took = time.monotonic() - begun
        self._say("egress.done", f"host={host} port={port} sent={sent} received={received} seconds={took:.1f}")

    async def _connect(self, host: str, port: int) -> Ends:
        """A connection to an address that was checked. Raises Denied, OSError."""
        self._guard.ask(host, port)
        try:
            addresses = [host] if literal(host) else await self._look_up(host, port)
        except OSError:
            if not self._upstream:
                raise
            return await self._through(host, port)  # only the operator's proxy knows this name
        failed: Exception = OSError(0, "the name has no address")
        for address in addresses:
            try:
                self._guard.reach(host, port, address)
                return await (self._through(host, port) if self._upstream else asyncio.open_connection(address, port))
            except (Denied, OSError) as error:
                failed = error
        raise failed

    async def _look_up(self, host: str, port: int) -> list[str]:
        async with self._lookups:
            return await self._resolve(host, port)

    async def _through(self, host: str, port: int) -> Ends:
        """A tunnel through the operator's proxy, which is given the name."""
        url = urlsplit(self._upstream)
        reader, writer = await asyncio.open_connection(
            url.hostname, url.port or 80, ssl=True if url.scheme == "https" else None
        )
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}"]
        if url.username:
            pair = f"{unquote(url.username)}:{unquote(url.password or '')}".encode()
            lines.append(f"Proxy-Authorization: Basic {base64.b64encode(pair).decode()}")
        try:
            writer.write("\r\n".join([*lines, "", ""]).encode())
            status = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n", 1)[0].split(b" ")
            if len(status) < 2 or status[1] != b"200":
                raise OSError(0, "the operator's own proxy refuses it")
        except BaseException:  # its time may be over
            writer.close()
            raise
        return reader, writer

    def _say(self, event: str, text: str, level: int = logging.INFO) -> None:
        """A line of the log; one who asks in a loop does not fill it."""
        minute = int(time.monotonic() / 60)
        if minute != self._minute:
            self._minute, self._lines = minute, 0
        self._lines += 1
        if self._lines <= LINES:
            log.log(level, "%s sandbox=%s %s", event, self._name, text)
        elif self._lines == LINES + 1:
            log.warning("egress.quiet sandbox=%s — more than %d lines a minute", self._name, LINES)


async def refuse(writer: asyncio.StreamWriter, status: int, text: str, why: str, *fields: tuple[str, str]) -> None:
    """Answer a request with a line of text; `why` is a word for programs."""
    text = " ".join(text.split()).encode("ascii", "replace").decode()
    own = [("X-Fawn-Refused", why), ("Content-Type", "text/plain"), ("Content-Length", f"{len(text) + 1}")]
    writer.write(bytes(Head(f"HTTP/1.1 {status} {text}", [*own, *fields, ("Connection", "close")])))
    writer.write(f"{text}\n".encode())
    with contextlib.suppress(OSError):  # it does not wait for the answer
        await writer.drain()


async def splice(
    one: Ends,
    other: Ends,
    idle: float = IDLE_SECONDS,
    *,
    half: bool = True,
    begin: Callable[[], Awaitable[None]] | None = None,
) -> tuple[int, int]:
    """Carry bytes both ways until both sides have ended, one broke or nothing moved for `idle` seconds; how many each
    way. Without `half` the end of `one` is the end of all. `begin` comes before what goes to `one`."""
    loop = asyncio.get_running_loop()
    counts = [0, 0]

    async def carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter, index: int) -> None:
        if begin and index == 1:
            await begin()
        while data := await source.read(CHUNK):
            counts[index] += len(data)
            patience.reschedule(loop.time() + idle)
            sink.write(data)
            await sink.drain()
        if not half and index == 0:
            raise ConnectionAbortedError
        if sink.can_write_eof():
            sink.write_eof()

    try:
        async with asyncio.timeout(idle) as patience, asyncio.TaskGroup() as group:
            group.create_task(carry(one[0], other[1], 0), name="splice")
            group.create_task(carry(other[0], one[1], 1), name="splice")
    except* FAULTS:
        pass  # one side is gone: so is the connection
    return counts[0], counts[1]


__all__ = ["FAULTS", "HEAD", "HEAD_SECONDS", "Bad", "Ends", "Head", "Proxy", "Resolve", "refuse", "resolve", "splice"]
