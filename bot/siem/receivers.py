"""Hand lines to a receiver of a SIEM, in order, and return when it has them: syslog over TLS, or HTTPS."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import ssl
import struct
import termios
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import aiohttp

from bot.config.audit import SYSLOG_PORT, AuditPushConfig

SEND_SECONDS = 30.0
ACKNOWLEDGED_SECONDS = 0.02  # between two looks whether the peer has acknowledged everything
PRIORITY = 13 * 8 + 6  # facility "log audit", severity "informational": RFC 5424, section 6.2.1


class NotTaken(Exception):
    """The receiver did not take the lines; they are sent again."""


class Receiver(Protocol):
    """Takes lines: (ISO time, JSON). Returns when the peer has them; after NotTaken or OSError all are sent again.

    `greet` finds out whether there is a receiver, and sends nothing. Raises OSError.
    """

    async def greet(self) -> None: ...

    async def send(self, lines: Sequence[tuple[str, bytes]]) -> None: ...


@asynccontextmanager
async def connected(config: AuditPushConfig, send_seconds: float = SEND_SECONDS) -> AsyncIterator[Receiver]:
    """Connect to the receiver. Raises OSError."""
    context = await asyncio.to_thread(ssl.create_default_context, cafile=config.ca_file or None)
    if not config.syslog:
        headers = {name: value.reveal() for name, value in config.headers.items()}
        timeout = aiohttp.ClientTimeout(total=send_seconds)
        connector = aiohttp.TCPConnector(ssl=context)
        async with aiohttp.ClientSession(
            headers=headers, timeout=timeout, connector=connector, trust_env=True
        ) as session:
            yield _Https(session, config.url)
        return
    host, port = split_address(config.syslog)
    async with asyncio.timeout(SEND_SECONDS):
        reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=host)
    try:
        yield _Syslog(reader, writer, send_seconds)
    finally:
        writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                await writer.wait_closed()


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of HOST, HOST:PORT or [IPv6]:PORT."""
    host, colon, port = address.rpartition(":")
    if address.startswith("[") and not port.isdecimal():
        return address.strip("[]"), SYSLOG_PORT
    return (host.strip("[]"), int(port)) if colon else (address, SYSLOG_PORT)


class _Https:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session, self._url = session, url

    async def greet(self) -> None:
        try:
            async with self._session.head(self._url, allow_redirects=False):
                pass  # whatever it answers: a POST would be a row
        except aiohttp.ClientError as error:
            cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None)
            raise cause or OSError(type(error).__name__) from None

    async def send(self, lines: Sequence[tuple[str, bytes]]) -> None:
        body = b"".join(line + b"\n" for _time, line in lines)
        headers = {"Content-Type": "application/x-ndjson"}
        try:
            async with self._session.post(self._url, data=body, headers=headers, allow_redirects=False) as answer:
                if not 200 <= answer.status < 300:
                    raise NotTaken(f"HTTP status {answer.status}")
        except aiohttp.ClientError as error:
            raise NotTaken(type(error).__name__) from None


class _Syslog:
    """Frames by their length (RFC 5425). The protocol has no acknowledgement: what TCP's peer has counts as taken."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, send_seconds: float) -> None:
        self._reader, self._writer, self._send_seconds = reader, writer, send_seconds
        self._host = socket.gethostname() or "-"

    async def greet(self) -> None:
        """Say nothing: TLS has greeted."""

    async def send(self, lines: Sequence[tuple[str, bytes]]) -> None:
        for time, line in lines:
            head = f"<{PRIORITY}>1 {time} {self._host} fawn - audit - ".encode()
            self._writer.write(b"%d %b%b" % (len(head) + len(line), head, line))
        async with asyncio.timeout(self._send_seconds):
            await self._writer.drain()
            while self._unacknowledged():  # noqa: ASYNC110 — the kernel tells nobody
                await asyncio.sleep(ACKNOWLEDGED_SECONDS)
        if self._reader.at_eof() or self._writer.is_closing():
            raise NotTaken("the receiver closed the connection")

    def _unacknowledged(self) -> int:
        """Return the bytes that the peer has not acknowledged: of the transport and the kernel (tcp(7), SIOCOUTQ)."""
        transport = self._writer.transport
        if transport.is_closing() or self._reader.at_eof():
            raise NotTaken("the receiver closed the connection")
        waiting = transport.get_write_buffer_size()
        descriptor = transport.get_extra_info("socket").fileno()
        return waiting + int(struct.unpack("i", fcntl.ioctl(descriptor, termios.TIOCOUTQ, b"\0" * 4))[0])
