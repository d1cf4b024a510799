"""The HTTP proxy of one conversation: CONNECT tunnels and plain requests.

The rules decide about each request. A name is resolved once, here, and the connection goes to the address that was
checked, so a DNS answer that changes later has no effect. A refusal is a 403 with the reason in the status line (for
pip and git), in the body (for curl and npm) and as a word in X-Fawn-Refused. The client is hostile: sizes, times and
counts are bounded.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import socket
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Literal
from urllib.parse import unquote, urlsplit

import h11

from sandbox.base import StreamPair
from sandbox.inside.relay import DIAL_ACCEPTED
from sandbox.network.http import (
    CLOSE,
    PEER_ERRORS,
    BadRequest,
    ByteCounter,
    ExchangeFinished,
    HttpPeer,
    carry_bytes,
    carry_exchange,
    forwarded_headers,
    run_both_ways,
)
from sandbox.network.tls import HANDSHAKE_TYPE, UNRECOGNIZED_NAME, NoServerName, parse_server_name, read_first_record
from sandbox.rules import (
    EgressDenied,
    EgressPolicy,
    EgressRequest,
    ReportEgress,
    join_host_port,
    normalize_host,
    parse_address,
    report_nothing,
    shown_host,
    split_host_port,
)

log = logging.getLogger(__name__)

CONNECT_SECONDS = 15.0
IDLE_SECONDS = 600.0  # of a connection
MAX_CONNECTIONS = 64  # of one sandbox
MAX_REFUSING_CONNECTIONS = 16  # without a network each is answered at once
MAX_LOOKUPS = 3  # of one sandbox
MAX_LOG_LINES = 120  # per minute and sandbox; what exceeds it is counted
LOG_SECONDS = 60.0  # the minute of the log lines
OTHER_HOSTS = "others"  # beyond them
MAX_COUNTED = 60  # destinations that are counted by name in a minute

Resolve = Callable[[str, int], list[str]]
"""The addresses of a host, as text, best first; runs in a thread. Raises OSError."""


OUTCOMES: Mapping[str, Literal["done", "refused", "failed"]] = {
    "egress.done": "done",
    "egress.refused": "refused",
    "egress.failed": "failed",
}


def resolve_name(host: str, port: int) -> list[str]:
    """Resolve a name as this machine does."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def parse_destination(request: h11.Request) -> tuple[str, int, str]:
    """Return host, port and path of a proxy request; a tunnel has no path. Raises BadRequest."""
    target = request.target.decode()
    try:
        if request.method == b"CONNECT":
            host, port = split_host_port(target)
            return normalize_host(host), port or 443, ""
        url = urlsplit(target)
        if url.scheme != "http":
            raise ValueError(f"{url.scheme or 'a path'} instead of http://")
        host, port = split_host_port(url.netloc.rpartition("@")[2])
        return normalize_host(host), port or 80, (url.path or "/") + (f"?{url.query}" if url.query else "")
    except ValueError as error:
        raise BadRequest(f"not a request for a proxy: {error}") from error


class BurstCounts:
    """Counts requests and bytes by event and destination; destinations beyond a limit count as one."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, int], tuple[int, int, int]] = {}

    def count(self, event: str, host: str, port: int, moved: tuple[int, int]) -> None:
        key = (event, host, port)
        if key not in self._counts and len(self._counts) >= MAX_COUNTED:
            key = (event, OTHER_HOSTS, 0)
        requests, sent, received = self._counts.get(key, (0, 0, 0))
        self._counts[key] = (requests + 1, sent + moved[0], received + moved[1])

    def drain(self) -> list[str]:
        """Return a line for each destination, and begin again."""
        counts, self._counts = self._counts, {}
        return [
            f"event={event} host={host} port={port} requests={requests} sent={sent} received={received}"
            for (event, host, port), (requests, sent, received) in counts.items()
        ]


class EgressProxy:
    """Serve the sandbox `name`, through the operator's proxy `upstream` unless it is ""."""

    def __init__(
        self, name: str, guard: EgressPolicy, upstream: str, resolve: Resolve, report: ReportEgress = report_nothing
    ) -> None:
        self._report = report
        self._name, self._policy, self._upstream, self._resolve = name, guard, upstream, resolve
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._connections = MAX_REFUSING_CONNECTIONS if guard.mode == "off" else MAX_CONNECTIONS
        # Own threads: lookups at a silent name server would occupy a shared pool.
        self._resolvers = ThreadPoolExecutor(MAX_LOOKUPS, "resolve")
        self._expected: dict[str, asyncio.Future[StreamPair]] = {}
        self._lines = 0
        self._burst = BurstCounts()
        self._minute_end: asyncio.TimerHandle | None = None

    async def start(self, listener: socket.socket) -> None:
        """Serve connections to `listener`, a unix socket."""
        self._server = await asyncio.start_unix_server(self._accept, sock=listener)

    async def aclose(self) -> None:
        """Stop the server and close every connection."""
        if self._server:
            self._server.close()
        for task in self._clients:
            task.cancel()
        if self._clients:
            await asyncio.wait(self._clients)
        self._resolvers.shutdown(wait=False, cancel_futures=True)
        if self._minute_end:
            self._minute_end.cancel()
            self._end_minute()

    def expect_ticket(self, ticket: str) -> asyncio.Future[StreamPair]:
        """Return a future of the connection that will arrive with this ticket."""
        return self._expected.setdefault(ticket, asyncio.get_running_loop().create_future())

    def forget_ticket(self, ticket: str) -> None:
        if (waiting := self._expected.pop(ticket, None)) and not waiting.done():
            waiting.cancel()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= 2 * self._connections:
            writer.close()
            return
        task = asyncio.create_task(self._serve_client(reader, writer), name=f"egress:{self._name}")
        self._clients.add(task)
        task.add_done_callback(self._clients.discard)

    async def _serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with HttpPeer(h11.SERVER, (reader, writer)) as client:
            try:
                request = await client.read_request()
                if request.method == b"DIAL":
                    self._hand_over(client, request.target.decode())
                # Checked after the request is read: the response to unread data might be lost.
                elif len(self._clients) > self._connections:
                    await client.refuse(503, f"more than {self._connections} connections at once", "busy")
                else:
                    await self._serve_request(client, request)
            except BadRequest as error:
                await client.refuse(400, str(error), "bad")
            except PEER_ERRORS as error:
                log.debug("egress.broken sandbox=%s reason=%r", self._name, error)

    def _hand_over(self, client: HttpPeer, ticket: str) -> None:
        if not (waiting := self._expected.pop(ticket, None)):
            raise BadRequest("unknown ticket")
        client.detached = True
        client.writer.write(DIAL_ACCEPTED)
        waiting.set_result((client.reader, client.writer))

    async def _serve_request(self, client: HttpPeer, request: h11.Request) -> None:
        host, port, path = parse_destination(request)
        try:
            self._policy.check_name(host, port, tunnel=not path)
            async with asyncio.timeout(CONNECT_SECONDS):
                ends = await self._connect(host, port)
        except EgressDenied as denied:
            self._log_request("egress.refused", host, port, f"why={denied.why}", logging.WARNING)
            await client.refuse(403, str(denied), denied.why)
            return
        except PEER_ERRORS as error:
            late = isinstance(error, TimeoutError)
            why = "it took too long" if late else getattr(error, "strerror", "") or "no answer"
            self._log_request("egress.failed", host, port, f"why={why!r}")
            await client.refuse(502, f"{shown_host(host, port)} cannot be reached: {why}", "unreachable")
            return
        begun = time.monotonic()
        async with HttpPeer(h11.CLIENT, ends) as up:
            if path:
                # The Host header is always that of the allowed host, whatever the client sent.
                headers = [(b"Host", shown_host(host, port).encode()), *forwarded_headers(request, b"host"), CLOSE]
                asked = h11.Request(method=request.method, target=path, headers=headers)
                sent, received = await carry_exchange(client, up, asked, forwarded_headers, IDLE_SECONDS)
                await client.refuse(502, f"{shown_host(host, port)} does not answer", "unreachable")
            else:
                sent, received = await self._tunnel(client, ends, host, port)
        took = time.monotonic() - begun
        text = f"sent={sent} received={received} seconds={took:.1f}"
        self._log_request("egress.done", host, port, text, moved=(sent, received))

    async def _tunnel(self, client: HttpPeer, up: StreamPair, host: str, port: int) -> tuple[int, int]:
        """Carry bytes both ways if the TLS server name matches the requested host."""

        async def ask(moved: ByteCounter) -> None:
            first = await read_first_record(client.reader, client.unread)
            if not _matches_server_name(first, host, port):
                self._log_request("egress.refused", host, port, "why=sni", logging.WARNING)
                client.writer.write(UNRECOGNIZED_NAME)
                raise ExchangeFinished
            await carry_bytes(client.reader, up[1], moved, first)

        async def answer(moved: ByteCounter) -> None:
            await carry_bytes(up[0], client.writer, moved)

        counts = [0, 0]
        await client.send_event(h11.Response(status_code=200, reason="Connection established", headers=[]))
        await run_both_ways(counts, IDLE_SECONDS, ask, answer)
        return counts[0], counts[1]

    async def _connect(self, host: str, port: int) -> StreamPair:
        """Connect to a checked address. Raises EgressDenied, OSError."""
        try:
            addresses = [host] if parse_address(host) else await self._look_up(host, port)
        except OSError:
            if not self._upstream:
                raise
            return await self._connect_upstream(host, port)  # only the operator's proxy can resolve this name
        failed: Exception = OSError(0, "the name does not have an address")
        for address in addresses:
            try:
                self._policy.check_address(host, port, address)
                return await (
                    self._connect_upstream(host, port) if self._upstream else asyncio.open_connection(address, port)
                )
            except (EgressDenied, OSError) as error:
                failed = error
        raise failed

    async def _look_up(self, host: str, port: int) -> list[str]:
        return await asyncio.get_running_loop().run_in_executor(self._resolvers, self._resolve, host, port)

    async def _connect_upstream(self, host: str, port: int) -> StreamPair:
        """Open a tunnel through the operator's proxy, by name."""
        url = urlsplit(self._upstream)
        reader, writer = await asyncio.open_connection(
            url.hostname, url.port or 80, ssl=True if url.scheme == "https" else None
        )
        place = join_host_port(host, port)
        lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}"]
        if url.username:
            pair = f"{unquote(url.username)}:{unquote(url.password or '')}".encode()
            lines.append(f"Proxy-Authorization: Basic {base64.b64encode(pair).decode()}")
        try:
            writer.write("\r\n".join([*lines, "", ""]).encode())
            status = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n", 1)[0].split(b" ")
            if len(status) < 2 or status[1] != b"200":
                raise OSError(0, "the operator's own proxy refuses it")
        except BaseException:  # a timeout, too
            writer.close()
            raise
        return reader, writer

    def _log_request(
        self,
        event: str,
        host: str,
        port: int,
        text: str,
        level: int = logging.INFO,
        moved: tuple[int, int] = (0, 0),
    ) -> None:
        """Report it, and write a log line: from a bounded number on, the rest of the minute by destination."""
        self._report(self._name, EgressRequest(OUTCOMES[event], host, port, *moved))
        if self._minute_end is None:
            self._minute_end = asyncio.get_running_loop().call_later(LOG_SECONDS, self._end_minute)
        self._lines += 1
        if self._lines <= MAX_LOG_LINES:
            log.log(level, "%s sandbox=%s host=%s port=%d %s", event, self._name, host, port, text)
            return
        if self._lines == MAX_LOG_LINES + 1:
            log.warning("egress.burst sandbox=%s most=%d — more lines a minute than that", self._name, MAX_LOG_LINES)
        self._burst.count(event, host, port, moved)

    def _end_minute(self) -> None:
        """Write what was counted."""
        self._minute_end, self._lines = None, 0
        for line in self._burst.drain():
            log.warning("egress.counted sandbox=%s counts=%s", self._name, line)


def _matches_server_name(first: bytes, host: str, port: int) -> bool:
    """Whether a tunnel's first bytes are for `host`. A request by address may name any server or none. A port that the
    rules name may carry another protocol than TLS."""
    if parse_address(host) or (port != 443 and first[:1] != HANDSHAKE_TYPE):
        return True
    try:
        return normalize_host(parse_server_name(first)) == host
    except (NoServerName, ValueError):
        return False
