"""Proxies for channel tests: one with a password, and TLS with a private certificate."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.fakes.server import LocalServer

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
PASSWORD = "Proxy-Authorization: Basic"


def signed(folder: Path) -> Path:
    """Create a self-signed certificate for localhost and 127.0.0.1, with its key in the same file."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is missing: it makes the certificate")
    pem = folder / "cert.pem"
    files = ["-keyout", str(folder / "key.pem"), "-out", str(pem)]
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(["openssl", "req", *kind, *files, *name], check=True, capture_output=True)
    return pem


@asynccontextmanager
async def front(port: int, certificate: Path) -> AsyncIterator[int]:
    """Serve TLS in front of the plain server at `port`; return the TLS port."""
    trust = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trust.load_cert_chain(certificate, certificate.with_name("key.pem"))

    async def behind(_: Streams) -> Streams:
        return await asyncio.open_connection("127.0.0.1", port)

    async with relay(behind, trust) as made:
        yield made


class BehindTls(LocalServer):
    """A mixin for a fake that is reachable only over TLS, at the port `https` (of a `front`)."""

    https = 0

    @property
    def base_url(self) -> str:
        return f"https://localhost:{self.https}"


class Proxy:
    """An HTTP proxy that requires a password for CONNECT; `asked` lists the requested targets."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, streams: Streams) -> Streams:
        reader, writer = streams
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, where, _ = head.split(None, 2)
        assert (method, PASSWORD in head) == ("CONNECT", True)
        self.asked.append(where)
        host, _, port = where.rpartition(":")
        opened = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        return opened


@asynccontextmanager
async def relay(
    target: Callable[[Streams], Awaitable[Streams]], trust: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Run a server that forwards each connection to what `target` opens; return its port."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        try:
            opened = await target((reader, writer))
            await asyncio.gather(_pump(reader, opened[1]), _pump(opened[0], writer))
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", ssl=trust)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with suppress(ConnectionError, ssl.SSLError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
    finally:
        writer.transport.abort()
