"""`fawn check` for the services beside models and channels: each works, or its finding says what to do."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from agent.setting import Secret
from agent.settings.mcp import McpConfig, McpServerSettings
from agent.settings.models import ModelSettings
from agent.settings.sections import (
    EmbeddingsConfig,
    ExternalAgentSettings,
    ModelRoles,
    SearchSettings,
    VoiceConfig,
    WebConfig,
)
from bot.admin.doctor import run_checks
from bot.base.findings import Finding
from bot.config.operations import PushConfig, PushTarget
from bot.config.schema import Config, MemoryConfig, SandboxConfig
from bot.main.features import gather_checks
from tests.fakes.model import FakeModel
from tests.fakes.push import serve_push
from tests.fakes.server import read_form
from tests.support.engines import need_bubblewrap
from tests.support.web_server import ClonedResponse, serve_site

FILES_ONLY = SandboxConfig(provider="none")
KEY = Secret("sk-secret-0123456789")


async def findings(config: Config, *subjects: str) -> dict[str, Finding]:
    """Return the findings whose subject begins with one of these."""
    return {each.subject: each for each in await run_checks(config, gather_checks) if each.subject.startswith(subjects)}


def services(port: int, **more: Any) -> dict[str, Any]:
    url = f"http://127.0.0.1:{port}/v1"
    return {
        "voice": VoiceConfig(url, "whisper-1", KEY),
        "memory": MemoryConfig(embeddings=EmbeddingsConfig(url, "embed", KEY, **more)),
        "web": WebConfig(search=(SearchSettings("searxng", url=url), SearchSettings("brave", KEY, f"{url}/brave"))),
        "sandbox": FILES_ONLY,
    }


async def test_services_that_work_pass(tmp_path: Path) -> None:
    sent = []

    async def transcribe(request: web.Request) -> web.Response:
        sent.append((await read_form(request)).files["file"][1])
        return web.json_response({"text": ""})

    async def embed(request: web.Request) -> web.Response:
        if "slow" in request.query:
            await asyncio.sleep(0.1)
        return web.json_response({"data": [{"index": 0, "embedding": [0.6, 0.8]}]})

    hit = {"url": "https://example.com/weather", "title": "Weather", "content": "Rain"}
    async with serve_site() as site:
        site.pages |= {
            "/v1/audio/transcriptions": transcribe,
            "/v1/embeddings": embed,
            "/v1/search": ClonedResponse(text='{"results": []}', content_type="application/json"),
            "/v1/brave": ClonedResponse(
                text=str({"web": {"results": [hit]}}).replace("'", '"'), content_type="application/json"
            ),
        }
        names = ("voice", "embeddings", "web search")
        config = Config(tmp_path, **services(site.port))
        found = await findings(config, *names)
    assert {name: (each.state, each.text.split(" in ")[0]) for name, each in found.items()} == {
        "web search searxng": ("note", "it answers without results"),
        "web search brave": ("ok", "it answers: https://example.com/weather"),
        "voice": ("ok", "whisper-1 transcribes"),
        "embeddings": ("ok", "embed answers with 2 dimensions"),
    }
    assert [(data[:4], len(data)) for data in sent] == [(b"RIFF", 32044)]


async def test_services_that_refuse_are_faults_with_a_fix(tmp_path: Path) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"error": "Incorrect API key provided"}, status=401)

    async with serve_site() as site:
        site.pages |= dict.fromkeys(("/v1/audio/transcriptions", "/v1/embeddings", "/v1/search", "/v1/brave"), refuse)
        found = await findings(Config(tmp_path, **services(site.port)), "voice", "embeddings", "web search")
    assert {each.state for each in found.values()} == {"fault"}
    assert "401" in found["voice"].text
    assert "`api_key` below `voice:`" in found["voice"].fix
    assert "401" in found["embeddings"].text
    assert "`api_key` below `memory:" in found["embeddings"].fix
    assert found["web search brave"].text == "its key is wrong"
    assert KEY.reveal() not in str(found)


async def test_push_targets_are_asked_without_a_push(tmp_path: Path) -> None:
    async with serve_push("key7") as servers:
        url = servers.base_url
        targets = (
            PushTarget("phone", Secret(f"{url}/key7"), "bark"),
            PushTarget("ops", Secret(f"{url}/hook")),
            PushTarget("gone", Secret("http://127.0.0.1:9/secret-path")),
            PushTarget("nonsense", Secret("bark"), "bark"),
        )
        push = PushConfig(targets, private_addresses=True)
        found = await findings(Config(tmp_path, push=push, sandbox=FILES_ONLY), "push")
        assert [each.state for each in found.values()] == ["ok", "ok", "fault", "fault"]
        assert "status 405 to HEAD" in found["push target ops"].text
        assert found["push target gone"].text.startswith("not reached")
        assert (servers.attempts, servers.shown, servers.hooks) == (0, {}, {})
        found = await findings(Config(tmp_path, push=PushConfig(targets[:2]), sandbox=FILES_ONLY), "push")
        assert {each.state for each in found.values()} == {"fault"}, "private addresses, as for the push itself"
        assert "private_addresses" in found["push target ops"].fix
    assert "secret-path" not in str(found)


async def test_each_role_is_named_with_its_model(tmp_path: Path) -> None:
    async with FakeModel() as server:
        url = f"{server.base_url}/v1"
        models = tuple(ModelSettings(name, model=name, base_url=url, api_key=KEY) for name in ("main", "small"))
        roles = ModelRoles(fallback=("small",), title="small", vision="small")
        found = await findings(Config(tmp_path, models, roles, sandbox=FILES_ONLY), "model")
    assert found["model main"].text.endswith("(roles: lead)")
    assert (
        "(roles: fallback, title, vision); its class does not know that it takes pictures" in found["model small"].text
    )
    assert (found["model small"].state, "vision: true" in found["model small"].fix) == ("note", True)


MEET = """import pathlib, sys, time
place = pathlib.Path(sys.argv[1])
(place / sys.argv[2]).touch()
while len(list(place.iterdir())) < 4:
    time.sleep(0.01)
sys.exit("all have met")
"""


async def test_checks_run_at_once(tmp_path: Path) -> None:
    """Each server ends only after all have started."""
    place = tmp_path / "place"
    place.mkdir()
    servers = tuple(
        McpServerSettings(f"meets{number}", command=sys.executable, args=("-c", MEET, str(place), str(number)))
        for number in range(4)
    )
    found = await findings(Config(tmp_path, mcp=McpConfig(servers), sandbox=FILES_ONLY), "MCP server")
    assert [each.state for each in found.values()] == ["fault"] * 4
    assert "did not start within" not in str(found), "none waited until its time was over"


async def test_the_last_words_of_a_server_that_died_are_shown(tmp_path: Path) -> None:
    dies = (
        "import sys; print('Traceback:\\nImportError: FastMCP was renamed to MCPServer', file=sys.stderr); sys.exit(1)"
    )
    servers = (McpServerSettings("dies", command=sys.executable, args=("-c", dies)),)
    found = await findings(Config(tmp_path, mcp=McpConfig(servers), sandbox=FILES_ONLY), "MCP server")
    [text] = [each.text for each in found.values()]
    assert "Its last lines: Traceback: | ImportError: FastMCP was renamed to MCPServer" in text


PROGRAM = """import json, sys
hello = json.loads(sys.stdin.readline())
result = {"protocolVersion": 1, "agentInfo": {"name": "coder"}}
print(json.dumps({"jsonrpc": "2.0", "id": hello["id"], "result": result}), flush=True)
sys.stdin.read()
"""


async def test_external_agents_are_greeted_in_a_sandbox(tmp_path: Path) -> None:
    need_bubblewrap()
    works = ExternalAgentSettings("works", f"python3 -c '{PROGRAM}'")
    config = Config(
        tmp_path / "data",
        external_agents=(works, ExternalAgentSettings("gone", "no-such-agent")),
        sandbox=SandboxConfig(provider="local"),
    )
    found = await findings(config, "external agent")
    assert (found["external agent works"].state, found["external agent works"].text) == ("ok", "it answers as coder")
    assert found["external agent gone"].state == "fault"
    assert "no-such-agent: " in found["external agent gone"].text
    assert not [path for path in (tmp_path / "data").iterdir() if path.name.startswith(".check")]


@pytest.mark.parametrize("agents", [(), (ExternalAgentSettings("a", "b"),)])
async def test_without_commands_external_agents_are_noted(
    tmp_path: Path, agents: tuple[ExternalAgentSettings, ...]
) -> None:
    found = await findings(Config(tmp_path, external_agents=agents, sandbox=FILES_ONLY), "external agent")
    assert [each.state for each in found.values()] == ["note"] * len(agents)
