"""Discord through a proxy and with a private certificate: calls, events and files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.blocks import Final
from agent.setting import Secret
from channels import discord
from channels.base import Health, OutgoingFile, Refused
from channels.discord import DiscordSettings
from tests.fakes.discord import TOKEN, FakeDiscord
from tests.fakes.server import until
from tests.support.proxies import BehindTls, Proxy, front, relay, signed
from tests.support.recording_inbox import Box, Memory, listening

pytestmark = pytest.mark.filterwarnings("ignore:'audioop' is deprecated:DeprecationWarning")  # discord.py's, for voice


class SecureDiscord(BehindTls, FakeDiscord):
    """A Discord behind TLS."""


async def test_all_connections_use_the_proxy_and_trust_the_certificate(tmp_path: Path) -> None:
    pem, proxy, box = signed(tmp_path), Proxy(), Box()
    async with SecureDiscord() as server, front(server.port, pem) as https, relay(proxy) as port:
        server.https = https
        server.base = server.base_url
        settings = DiscordSettings(
            Secret(TOKEN),
            base_url=server.api_url,
            gateway_url=server.gateway_url,
            proxy=f"http://user:secret@127.0.0.1:{port}",
            ca_file=str(pem),
        )
        assert "secret" not in repr(settings)
        assert await discord.probe(settings) == "connected as @fawn in Acme 01"
        with pytest.raises(Refused, match="certificate: self-signed certificate"):
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
            await channel.send_files(message.thread, [OutgoingFile(path, "b.txt", 4)], Memory("f1"))
            assert [(shown.text, shown.files) for shown in server.visible()] == [("Seen.", ()), ("", ("b.txt",))]
        assert set(proxy.asked) == {f"localhost:{https}"}
        assert len(proxy.asked) - before >= 2  # the events have a connection of their own
