"""Proxies in front of the fake Feishu: a counting HTTP proxy and a TLS terminator."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest


class Forwarder:
    """A listener that forwards to one port; `asked` is what its clients requested."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.asked: list[str] = []

    async def forward_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward an HTTP proxy request (CONNECT, or a whole URL) to the target, whatever host it names."""
        line = (await reader.readline()).decode()
        if not line:
            return
        method, url, version = line.split()
        self.asked.append(f"{method} {url}")
        if method == "CONNECT":
            while (await reader.readline()).strip():
                pass
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await self.relay(reader, writer)
            return
        path = "/" + url.split("/", 3)[3]
        await self.relay(reader, writer, f"{method} {path} {version}\r\nConnection: close\r\n".encode())

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first: bytes = b"") -> None:
        """Copy bytes in both directions."""
        inner_reader, inner = await asyncio.open_connection("127.0.0.1", self.target)
        inner.write(first)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pour(reader, inner), name="out")
                group.create_task(_pour(inner_reader, writer), name="back")
        finally:
            inner.close()


async def _pour(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()
        sink.close()


@asynccontextmanager
async def forwarding(
    forwarder: Forwarder, *, proxy: bool, trust: ssl.SSLContext | None = None
) -> AsyncIterator[Forwarder]:
    """Run the forwarder as a listener."""
    guests: set[asyncio.Task[None]] = set()

    def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def host() -> None:
            try:
                await (forwarder.forward_request if proxy else forwarder.relay)(reader, writer)
            finally:
                writer.close()

        task = asyncio.get_running_loop().create_task(host(), name="guest")
        guests.add(task)
        task.add_done_callback(guests.discard)

    server = await asyncio.start_server(welcome, "127.0.0.1", 0, ssl=trust)
    forwarder.port = server.sockets[0].getsockname()[1]
    try:
        yield forwarder
    finally:
        server.close()
        for task in list(guests):
            task.cancel()
        await asyncio.gather(*guests, return_exceptions=True)


def certificate(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """Create a certificate for 127.0.0.1 that no client trusts by default, and its server context."""
    pem, key = folder / "ca.pem", folder / "key.pem"
    asked = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1"
    command = ["openssl", *asked.split(), "-addext", "subjectAltName=IP:127.0.0.1"]
    try:
        subprocess.run([*command, "-keyout", str(key), "-out", str(pem)], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl makes the certificate: install it")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    return pem, context
