"""The ways to Slack: a proxy, a certificate of one's own, nothing from the environment; and the app manifest."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from agent.conversation import Final, Secret, Text
from channels import slack
from channels.base import Health, OutFile, Refused
from channels.slack.app import EVENTS, SCOPES
from tests.channels.box import Box, Memory, Service
from tests.channels.rigs import until
from tests.fakes.slack import APP_TOKEN, BOT, BOT_TOKEN, OPS, FakeSlack

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def relay(
    target: Callable[[Streams], Awaitable[Streams]], trust: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """A server that hands every connection on to what `target` opens; gives its port."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        opened = await target((reader, writer))
        await asyncio.gather(pump(reader, opened[1]), pump(opened[0], writer))

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


class Behind(FakeSlack):
    """A Slack that is reached by https only, at another port."""

    front = 0

    @property
    def base_url(self) -> str:
        return f"https://localhost:{self.front}"


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for localhost that signs itself, and its key in one file."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is missing: it makes the certificate")
    pem, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = [
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-keyout",
        str(key),
        "-out",
        str(pem),
    ]
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(["openssl", "req", "-x509", *made, *name], check=True, capture_output=True)
    return pem


async def test_everything_goes_through_the_proxy_and_trusts_the_certificate(
    certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # the SDK would take it: our own setting is the only one
    trust = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trust.load_cert_chain(certificate, certificate.with_name("key.pem"))
    proxy, box = Proxy(), Box()
    async with Behind() as server:

        async def to_fake(_: Streams) -> Streams:
            return await asyncio.open_connection("127.0.0.1", server.port)

        async with relay(to_fake, trust) as front, relay(proxy) as port:
            server.front = front
            settings = slack.Settings(
                Secret(BOT_TOKEN),
                Secret(APP_TOKEN),
                base_url=server.api_url,
                proxy=f"http://user:secret@127.0.0.1:{port}",
                ca_file=str(certificate),
            )
            assert await slack.probe(settings) == "connected as @fawn in Acme (T1)"
            with pytest.raises(Refused, match="Certificate"):
                await slack.probe(replace(settings, ca_file=""))
            assert "secret" not in repr(settings)
            made = Service(lambda: slack.connect(settings), box)
            await made.begin()
            try:
                await until(lambda: made.channel.readiness().health is Health.READY)
                before = len(proxy.asked)
                server.send(f"<@{BOT}> look", files={"a.txt": b"down"}, mime="text/plain")
                message = await box.next()
                assert b"".join([c async for c in made.channel.fetch(message.attachments[0])]) == b"down"
                path = tmp_path / "copy"
                path.write_bytes(b"up")
                await made.channel.send_file(message.thread, OutFile(path, "b.txt", 2), Memory("f"))
                reply = made.channel.reply(message.thread, Memory(), to=message.id, asker=message.author.id)
                reply.show(Text("It"))
                await server.wait("It", thread=message.id)
                await reply.finish(Final("It works."))
                assert [shown.file or shown.text for shown in server.visible(OPS, message.id)] == [b"up", "It works."]
            finally:
                await made.end()
    assert before >= 2
    assert set(proxy.asked) == {f"localhost:{front}"}


async def test_without_a_proxy_setting_the_environment_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with FakeSlack() as server:
        settings = slack.Settings(Secret(BOT_TOKEN), Secret(APP_TOKEN), base_url=server.api_url)
        made = Service(lambda: slack.connect(settings), Box())
        await made.begin()
        try:
            await until(lambda: made.channel.readiness().health is Health.READY)
        finally:
            await made.end()


def test_the_manifest_ticks_what_the_channel_needs() -> None:
    made = json.loads(slack.manifest())
    assert made["settings"]["socket_mode_enabled"]
    assert made["settings"]["interactivity"]["is_enabled"]
    assert made["settings"]["event_subscriptions"]["bot_events"] == list(EVENTS)
    assert made["oauth_config"]["scopes"]["bot"] == sorted(SCOPES)
    assert made["features"]["slash_commands"][0]["command"] == "/fawn"
    assert made["features"]["shortcuts"][0]["name"] == "Ask Fawn about this"
    assert len(made["display_information"]["description"]) <= 140
    sources = "".join(path.read_text() for path in (Path(__file__).parents[2] / "channels" / "slack").glob("*.py"))
    called = set(re.findall(r'"((?:assistant|chat|conversations|files|reactions|users)\.[\w.]+)"', sources))
    needs = {  # docs.slack.dev/reference/methods: each method's bot scope
        "assistant.threads.setStatus": "chat:write",
        "assistant.threads.setSuggestedPrompts": "assistant:write",
        "assistant.threads.setTitle": "assistant:write",
        "chat.appendStream": "chat:write",
        "chat.delete": "chat:write",
        "chat.postEphemeral": "chat:write",
        "chat.postMessage": "chat:write",
        "chat.startStream": "chat:write",
        "chat.stopStream": "chat:write",
        "chat.update": "chat:write",
        "conversations.history": "channels:history",
        "conversations.replies": "channels:history",
        "files.completeUploadExternal": "files:write",
        "files.getUploadURLExternal": "files:write",
        "files.info": "files:read",
        "reactions.add": "reactions:write",
        "users.conversations": "channels:read",
        "users.info": "users:read",
    }
    assert called == needs.keys()
    assert SCOPES.keys() >= set(needs.values())
