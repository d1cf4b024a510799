"""Slack through a proxy, with a private certificate, without the environment; and the manifest."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from agent.blocks import Final, Text
from agent.setting import Secret
from channels import slack
from channels.base import Health, OutgoingFile, Refused
from channels.slack.manifest import BOT_EVENTS, SCOPES, app_manifest
from tests.fakes.slack import APP_TOKEN, BOT, BOT_TOKEN, OPS, FakeSlack
from tests.fakes.slack_scopes import METHOD_SCOPES, needed_scopes
from tests.support.proxies import BehindTls, Proxy, front, relay, signed
from tests.support.recording_inbox import Box, Memory, Service
from tests.support.rigs.registry import until


class SecureSlack(BehindTls, FakeSlack):
    """A Slack behind TLS."""


async def test_all_connections_use_the_proxy_and_trust_the_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # the SDK would use it; Fawn uses only its own setting
    pem, proxy, box = signed(tmp_path), Proxy(), Box()
    async with SecureSlack() as server, front(server.port, pem) as https, relay(proxy) as port:
        server.https = https
        settings = slack.SlackSettings(
            Secret(BOT_TOKEN),
            Secret(APP_TOKEN),
            base_url=server.api_url,
            proxy=f"http://user:secret@127.0.0.1:{port}",
            ca_file=str(pem),
        )
        assert await slack.probe(settings) == "connected as @fawn in Acme (T1)"
        with pytest.raises(Refused, match="certificate: self-signed certificate"):
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
            await made.channel.send_files(message.thread, [OutgoingFile(path, "b.txt", 2)], Memory("f"))
            reply = made.channel.reply(message.thread, Memory(), to=message.id, asker=message.author.id)
            reply.show(Text("It"))
            await server.wait("It", thread=message.id)
            await reply.finish(Final("It works."))
            assert [shown.file or shown.text for shown in server.visible(OPS, message.id)] == [b"up", "It works."]
        finally:
            await made.end()
    assert before >= 2
    assert set(proxy.asked) == {f"localhost:{https}"}


async def test_without_a_proxy_setting_the_environment_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with FakeSlack() as server:
        settings = slack.SlackSettings(Secret(BOT_TOKEN), Secret(APP_TOKEN), base_url=server.api_url)
        made = Service(lambda: slack.connect(settings), Box())
        await made.begin()
        try:
            await until(lambda: made.channel.readiness().health is Health.READY)
        finally:
            await made.end()


def test_the_manifest_has_everything_the_channel_needs() -> None:
    made = json.loads(app_manifest())
    assert made["settings"]["socket_mode_enabled"]
    assert made["settings"]["interactivity"]["is_enabled"]
    assert made["settings"]["event_subscriptions"]["bot_events"] == list(BOT_EVENTS)
    assert made["oauth_config"]["scopes"]["bot"] == sorted(SCOPES)
    assert made["features"]["slash_commands"][0]["command"] == "/fawn"
    assert made["features"]["shortcuts"][0]["name"] == "Ask Fawn about this"
    assert "assistant:write" in SCOPES  # what an app needs to be an agent, as whose feature it is declared
    assert made["features"]["agent_view"]["agent_description"]
    assert len(made["display_information"]["description"]) <= 140
    sources = "".join(path.read_text() for path in (Path(__file__).parents[3] / "channels" / "slack").glob("*.py"))
    called = set(re.findall(r'"((?:agents|assistant|chat|conversations|files|reactions|users)\.[\w.]+)"', sources))
    assert called >= {method for method in METHOD_SCOPES if not method.startswith("apps.")}
    for method in called:
        needed = needed_scopes(method, "channel", "")
        assert needed, method
        assert SCOPES.keys() >= {*needed}, method
