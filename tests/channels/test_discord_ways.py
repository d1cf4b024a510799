"""The ways to Discord: a proxy and a certificate of one's own, for calls, events and files."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from agent.conversation import Final, Secret
from channels import discord
from channels.base import Health, OutFile, Refused
from channels.discord import Settings
from tests.channels.box import Box, Memory, listening
from tests.fakes.discord import TOKEN, FakeDiscord
from tests.fakes.server import until

pytestmark = pytest.mark.filterwarnings("ignore:'audioop' is deprecated:DeprecationWarning")  # discord.py's, for voice

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with suppress(ConnectionError, ssl.SSLError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
    finally:
        writer.transport.abort()


@asynccontextmanager
async def relay(target: Callable[[Streams], Awaitable[Streams]], trust: ssl.SSLContext | None) -> AsyncIterator[int]:
    """A server that hands every connection on to what `target` opens; gives its port."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        try:
            opened = await target((reader, writer))
            await asyncio.gather(pump(reader, opened[1]), pump(opened[0], writer))
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


class Proxy:
    """An HTTP proxy that asks for a password, for CONNECT; `asked` is where its clients wanted to go."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, streams: Streams) -> Streams:
        reader, writer = streams
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, where, _ = head.split(None, 2)
        assert (method, "Proxy-Authorization: Basic" in head) == ("CONNECT", True)
        self.asked.append(where)
        host, _, port = where.rpartition(":")
        opened = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        return opened


class Behind(FakeDiscord):
    """A Discord that is reached by https only, at another port."""

    front = 0

    @property
    def base_url(self) -> str:
        return f"https://localhost:{self.front}"


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for localhost that signs itself, its key beside it."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is missing: it makes the certificate")
    pem = tmp_path / "cert.pem"
    files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(pem)]
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(["openssl", "req", *kind, *files, *name], check=True, capture_output=True)
    return pem


async def test_everything_goes_through_the_proxy_and_trusts_the_certificate(certificate: Path, tmp_path: Path) -> None:
    trust = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trust.load_cert_chain(certificate, certificate.with_name("key.pem"))
    proxy, box = Proxy(), Box()
    async with Behind() as server:

        async def to_fake(_: Streams) -> Streams:
            return await asyncio.open_connection("127.0.0.1", server.port)

        async with relay(to_fake, trust) as front, relay(proxy, None) as port:
            server.front = front
            server.base = server.base_url
            settings = Settings(
                Secret(TOKEN),
                base_url=server.api_url,
                gateway_url=server.gateway_url,
                proxy=f"http://user:secret@127.0.0.1:{port}",
                ca_file=str(certificate),
            )
            assert "secret" not in repr(settings)
            assert await discord.probe(settings) == "connected as @fawn in Acme 01"
            with pytest.raises(Refused, match="Certificate"):
                await discord.probe(replace(settings, ca_file=""))
            before = len(proxy.asked)
            async with discord.connect(settings) as channel, listening(channel, box):
                await until(lambda: channel.readiness().health is Health.READY)
                server.say("look", files=[("a.txt", b"data")])
                message = await box.next()
                assert b"".join([chunk async for chunk in channel.fetch(message.attachments[0])]) == b"data"
                await channel.reply(message.thread, Memory()).finish(Final("Seen."))
                path = tmp_path / "copy"
                path.write_bytes(b"more")
                await channel.send_file(message.thread, OutFile(path, "b.txt", 4), Memory("f1"))
                assert [(shown.text, shown.files) for shown in server.visible()] == [("Seen.", ()), ("", ("b.txt",))]
            assert set(proxy.asked) == {f"localhost:{front}"}
            assert len(proxy.asked) - before >= 2  # the events have a connection of their own
