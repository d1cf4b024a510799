"""Each kind of client goes through the proxy of `network:`, with its certificates, and looks no name up itself."""

from __future__ import annotations

import asyncio
import importlib
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import httpx2
import pytest
from aiohttp import web
from yarl import URL

from agent.mcp.bounded_http import bounded_client
from agent.mcp.token_auth import http_client
from agent.memory.embeddings import EmbeddingsFailed, embed_texts
from agent.models.http_transport import open_http_client
from agent.setting import Secret
from agent.settings.mcp import McpServerSettings
from agent.settings.models import ModelSettings
from agent.settings.network import NetworkConfig, make_trust, trust_of_file
from agent.settings.sections import EmbeddingsConfig, SearchSettings, VoiceConfig
from agent.spending import Meter
from agent.turn.transcription import NotTranscribed, transcribe
from agent.web.addresses import AddressGuard, WebError
from agent.web.fetcher import WebFetcher
from agent.web.search import HttpSearch
from bot.admin.network_checks import check_network
from bot.base.agent_loading import import_agent
from bot.base.model_discovery import offered_models
from bot.config.loader import ConfigError, apply_network, channel_modules, load_config
from bot.config.operations import TracesConfig
from bot.config.schema import Config
from bot.notifications.push import PushFailed, request_target
from bot.status.egress import list_destinations
from bot.telemetry.traces import open_session
from channels.base import ChannelError, TryLater
from channels.shared.http_client import HttpClient, mapped_network_errors
from channels.shared.lifecycle import opened
from channels.shared.relay_client import RelayClient
from tests.support.certificates import make_certificate
from tests.support.ports import free_port
from tests.support.proxies import Streams, relay
from tests.unit.agent.test_transcription import wav

HOST = "server.corp.example"
URL_THERE = f"https://{HOST}/v1"
PUBLIC = {  # where each channel of `CHANNELS` asks first
    "telegram": "api.telegram.org",
    "slack": "slack.com",
    "discord": "discord.com",
    "feishu": "open.feishu.cn",
    "dingtalk": "api.dingtalk.com",
    "wecom": "openws.work.weixin.qq.com",
    "whatsapp": "graph.facebook.com",
    "matrix": HOST,
}
CHANNELS = {
    "telegram": "token: '123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw0'",
    "slack": "bot_token: xoxb-123456-abc, app_token: xapp-1-A-1-abc",
    "discord": "token: MTIzNDU2Nzg5MDEyMzQ1Njc4.abcdef.abcdefghijklmnopqrstuvwxyz",
    "feishu": "app_id: cli_a, app_secret: abcdefghijk",
    "dingtalk": "client_id: ding1, client_secret: abcdefghijk",
    "wecom": "bot_id: aib1, secret: abcdefghijk",
    "whatsapp": "phone_number_id: '106540352242922', token: abcdefghijk, app_secret: abcdefghijk,"
    f" relay_url: 'https://{HOST}', relay_key: {'k' * 40}",
    "matrix": f"homeserver: 'https://{HOST}', token: abcdefghijk",
}
NO_PROXY_NEEDED = {"console", "web", "wechat"}  # WeChat signs in on a phone first; its client is the same


@dataclass
class Corporate:
    """A network with a proxy as the only way out, and one server with a certificate of its own authority behind it."""

    port: int
    ca_file: Path
    connected: list[str]
    asked: list[str]

    def config(self, folder: Path, text: str = "", no_proxy: str = "[]") -> Config:
        """Return a configuration that names the proxy and the authority."""
        file = folder / "config.yaml"
        network = f"{{proxy: 'http://127.0.0.1:{self.port}', no_proxy: {no_proxy}, ca_file: {self.ca_file}}}"
        file.write_text(f"config_version: 1\nnetwork: {network}\n{text}")
        return load_config(file, {})


@pytest.fixture
async def corporate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Corporate]:
    for name in (*NetworkConfig("x", ("y",), "z").variables(), "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "")  # what `apply_network` sets is taken back, too
        monkeypatch.delenv(name)
    certificate, key = make_certificate(tmp_path, [*PUBLIC.values()])
    connected: list[str] = []
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.host)
        return web.json_response({})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    server = runner.addresses[0][1]

    async def connect(streams: Streams) -> Streams:
        method, where, _ = (await streams[0].readuntil(b"\r\n\r\n")).decode().split(None, 2)
        assert method == "CONNECT"
        connected.append(where)
        opened_streams = await asyncio.open_connection("127.0.0.1", server)
        streams[1].write(b"HTTP/1.1 200 OK\r\n\r\n")
        return opened_streams

    async with relay(connect) as port:
        yield Corporate(port, certificate, connected, asked)
    await runner.cleanup()


async def ask_model() -> None:
    async with open_http_client(ModelSettings("main", base_url=URL_THERE)) as client:
        await client.get(URL_THERE)


async def list_models() -> None:
    with suppress(ValueError):
        await offered_models(ModelSettings("main", base_url=URL_THERE))


async def search() -> None:
    for entry in (SearchSettings("searxng", url=URL_THERE), SearchSettings("tavily", Secret("k"), URL_THERE)):
        with suppress(WebError):
            await HttpSearch(entry).find("otters", 3)


async def fetch_page() -> None:
    with suppress(WebError):
        await WebFetcher(obeys_robots=False).fetch(URL_THERE)


async def hear_voice() -> None:
    with suppress(NotTranscribed):
        await transcribe(VoiceConfig(URL_THERE), "voice.wav", wav(1), Meter())


async def embed() -> None:
    with suppress(EmbeddingsFailed):
        await embed_texts(EmbeddingsConfig(URL_THERE), ["otters"], 10, Meter())


async def push() -> None:
    await request_target("POST", URL_THERE, AddressGuard(), b"{}")


async def export_traces() -> None:
    async with open_session(TracesConfig(URL_THERE)) as session, session.post(URL_THERE, data=b"{}"):
        pass


async def call_mcp() -> None:
    async with await http_client(McpServerSettings("hub", url=URL_THERE), None, lambda _: None) as client:
        await client.post(URL_THERE)


async def ask_authorization_server() -> None:
    async with bounded_client(10) as client:
        await client.get(URL_THERE)


async def ask_relay() -> None:
    with suppress(ChannelError):
        async with opened(HttpClient("relay", "", "")) as http:
            await RelayClient(http, URL_THERE, "key").probe()


CLIENTS: list[Callable[[], Awaitable[None]]] = [
    *(ask_model, list_models, search, fetch_page, hear_voice, embed, push, export_traces, call_mcp),
    *(ask_authorization_server, ask_relay),
]


@pytest.mark.parametrize("client", CLIENTS)
async def test_each_client_uses_the_proxy_and_trusts_the_authority(
    corporate: Corporate, tmp_path: Path, client: Callable[[], Awaitable[None]]
) -> None:
    apply_network(corporate.config(tmp_path))
    await client()
    assert {*corporate.connected} == {f"{HOST}:443"}
    assert {*corporate.asked} == {HOST}


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_host_of_no_proxy_is_reached_directly(
    corporate: Corporate, tmp_path: Path, client: Callable[[], Awaitable[None]]
) -> None:
    apply_network(corporate.config(tmp_path, no_proxy="[corp.example]"))
    with suppress(aiohttp.ClientError, httpx2.HTTPError, OSError, WebError, PushFailed):  # nobody knows the name
        await client()
    assert not corporate.connected


@pytest.mark.parametrize("name", CHANNELS)
async def test_each_channel_uses_the_proxy_and_trusts_the_authority(
    corporate: Corporate, tmp_path: Path, name: str
) -> None:
    config = corporate.config(tmp_path, f"channels: {{{name}: {{{CHANNELS[name]}}}}}\n")
    apply_network(config)
    [entry] = config.channels
    module: Any = importlib.import_module(entry.module)
    with suppress(ChannelError):
        await module.probe(entry.settings)
    assert f"{PUBLIC[name]}:443" in corporate.connected
    assert PUBLIC[name] in corporate.asked


def test_every_channel_has_a_row() -> None:
    assert CHANNELS.keys() == channel_modules().keys() - NO_PROXY_NEEDED


def test_the_section_becomes_the_environment_and_keeps_what_it_does_not_name(
    monkeypatch: pytest.MonkeyPatch, corporate: Corporate, tmp_path: Path
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://elsewhere:1080")
    monkeypatch.setenv("NO_PROXY", "kept.example")
    apply_network(corporate.config(tmp_path))
    assert "ALL_PROXY" not in os.environ
    assert os.environ["https_proxy"] == f"http://127.0.0.1:{corporate.port}"
    assert os.environ["NO_PROXY"] == "kept.example"
    assert os.environ["SSL_CERT_FILE"] == str(corporate.ca_file)


@pytest.mark.parametrize("accounts", [True, False])
def test_what_only_the_env_file_says_counts(
    monkeypatch: pytest.MonkeyPatch, corporate: Corporate, tmp_path: Path, accounts: bool
) -> None:
    lines = ["HTTPS_PROXY=http://proxy:1", "no_proxy=of.file", "SSL_CERT_FILE=/file.pem", "ALL_PROXY=http://all:1"]
    (tmp_path / ".env").write_text("\n".join(lines))
    (tmp_path / "config.yaml").write_text("config_version: 1\nnetwork: {no_proxy: [of.section]}\n")
    monkeypatch.setenv("all_proxy", "http://own:1")
    apply_network(load_config(tmp_path / "config.yaml", accounts=accounts))
    names = ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE", "all_proxy", "ALL_PROXY")
    proxy = "http://proxy:1"
    expected = [proxy, proxy, "of.section", "of.section", "/file.pem", "http://own:1", None]
    assert [os.environ.get(name) for name in names] == expected


def test_the_authorities_are_read_in_the_thread_that_loads_the_agent(
    monkeypatch: pytest.MonkeyPatch, corporate: Corporate
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(corporate.ca_file))
    import_agent()
    found = trust_of_file.cache_info().misses
    make_trust()
    assert trust_of_file.cache_info().misses == found


@pytest.mark.parametrize("reason", ["Connection refused", "certificate: .*certificate"])
async def test_a_failed_connection_says_why_and_no_address(corporate: Corporate, reason: str) -> None:
    is_refused = reason == "Connection refused"
    url = f"http://127.0.0.1:{free_port()}" if is_refused else f"https://{HOST}"
    proxy = None if is_refused else f"http://127.0.0.1:{corporate.port}"
    async with aiohttp.ClientSession() as session:
        with pytest.raises(TryLater, match=reason) as caught, mapped_network_errors("Slack"):
            await session.get(f"{url}/bot-secret-token", proxy=proxy)
    assert not [each for each in ("secret", "127.0.0.1", HOST) if each in str(caught.value)]


def test_the_list_of_addresses_and_the_check_know_which_names_the_proxy_looks_up(
    corporate: Corporate, tmp_path: Path
) -> None:
    text = f"models: [{{name: main, model: m, base_url: '{URL_THERE}', api_key: k1234567}}]\nweb: {{fetch: false}}\n"
    config = corporate.config(tmp_path, text, "[other.example]")
    apply_network(config)
    found = {each.host: each for each in list_destinations(config)[0]}
    assert URL(found[HOST].through).port == corporate.port


async def test_the_check_looks_up_no_name_for_the_proxy_and_says_what_does_not_use_it(
    corporate: Corporate, tmp_path: Path
) -> None:
    servers = "mcp: {servers: [{name: files, command: mcp-files}]}\n"
    model = f"models: [{{name: main, model: m, base_url: '{URL_THERE}', api_key: k1234567}}]\nweb: {{fetch: false}}\n"
    config = corporate.config(tmp_path, servers + model)
    apply_network(config)
    found = await check_network(config)
    assert [(each.state, each.subject) for each in found] == [("note", "proxy"), ("ok", "proxy")]
    assert found[0].fix == "MCP server files: name the proxy in its `env`"


def test_a_file_that_has_no_certificates_is_refused_at_its_line(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("no certificate")
    (tmp_path / "config.yaml").write_text("config_version: 1\nnetwork:\n  ca_file: empty.pem\n")
    with pytest.raises(ConfigError, match=r"network\.ca_file.*\n?.*PEM"):
        load_config(tmp_path / "config.yaml", {})
