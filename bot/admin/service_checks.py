"""Checks of `fawn check` that ask other services: MCP servers, search, voice, embeddings and external agents."""

from __future__ import annotations

import asyncio
import io
import tempfile
import wave
from pathlib import Path
from typing import TYPE_CHECKING

from agent.acp.connection import AcpError
from agent.acp.settings import ExternalAgentSettings
from agent.context import Meter
from agent.imports import import_in_thread
from agent.mcp.settings import McpServerSettings
from agent.memory.embeddings import EmbeddingsFailed, embed_texts
from agent.models.prices import Priced, price_call
from agent.models.settings import ModelSettings
from agent.sections import EmbeddingsConfig, VoiceConfig
from agent.spending import EMBEDDING, LEAD, VOICE, ModelCall
from agent.transcription import NotTranscribed, transcribe
from agent.web.addresses import AddressGuard, WebError
from agent.web.search import make_provider
from agent.web.settings import SearchSettings
from bot.admin.local_checks import Finding
from bot.config.push import PushConfig, PushTarget
from bot.config.schema import Config
from bot.notifications.push import PushFailed, PushRefused, probe_target
from bot.rights.budget_texts import unknown_price
from bot.service.sandbox_setup import folders, sandbox_settings
from catalogue import N_, _, list_items, localized
from sandbox.base import Sandbox, SandboxError
from sandbox.select import select_provider

if TYPE_CHECKING:  # it imports the agent stack
    from agent.mcp.servers import McpServer

SERVICE_TIMEOUT_SECONDS = 30.0
MCP_SERVER, WEB_SEARCH, PUSH_TARGET = N_("MCP server {name}"), N_("web search {provider}"), N_("push target {name}")
SILENCE_SECONDS, SAMPLE_RATE_HERTZ = 1, 16_000


async def check_mcp_server(settings: McpServerSettings, data_dir: Path) -> Finding:
    """Start the server as the service does, and count its tools."""
    subject = _(MCP_SERVER, name=settings.name)
    if not settings.enabled:
        return Finding("ok", subject, _("disabled"))
    module = await import_in_thread("agent.mcp.servers")
    server: McpServer = module.McpServer(settings, data_dir)
    try:
        if problem := await server.refresh():
            where = settings.url or settings.command
            if server.connection.needs_sign_in:
                text = _("{url}: it needs a sign-in", url=where)
                return Finding("fault", subject, text, _("run `fawn mcp login {name}`", name=settings.name))
            return Finding(
                "fault", subject, f"{where}: {localized(problem.why)}", _("start it by hand to see why (docs/mcp.md)")
            )
        all_tools, tools, protocol = server.connection.tools, server.tools, server.connection.protocol
    finally:
        await server.close()
    if not tools:
        names = list_items(tool.name for tool in all_tools[:20]) or _("none")
        return Finding(
            "note", subject, _("it offers no allowed tool; its tools: {names}", names=names), _("correct `tools`")
        )
    return Finding(
        "ok", subject, _("{n} of {all} tools, protocol {protocol}", n=len(tools), all=len(all_tools), protocol=protocol)
    )


async def check_search(settings: SearchSettings, proxy: str = "") -> Finding:
    """Send one query."""
    subject = _(WEB_SEARCH, provider=settings.provider)
    try:
        found = await make_provider(settings, proxy).find("weather", 3)
    except WebError as error:
        return Finding("fault", subject, localized(error), _("correct `web: {search: …}` (docs/web.md)"))
    if not found:
        return Finding("note", subject, _("it answers without results"), _("see which engines it asks"))
    return Finding("ok", subject, _("it answers: {url}", url=found[0].url))


async def check_voice(config: VoiceConfig) -> list[Finding]:
    """Have a second of silence transcribed, if voice is configured."""
    if not config.base_url:
        return []
    audio = io.BytesIO()
    with wave.open(audio, "wb") as file:
        file.setparams((1, 2, SAMPLE_RATE_HERTZ, 0, "NONE", ""))
        file.writeframes(bytes(2 * SAMPLE_RATE_HERTZ * SILENCE_SECONDS))
    try:
        async with asyncio.timeout(SERVICE_TIMEOUT_SECONDS):
            await transcribe(config, "silence.wav", audio.getvalue(), Meter())
    except (NotTranscribed, TimeoutError) as error:
        why = error.reason if isinstance(error, NotTranscribed) else _no_answer()
        fix = _("check `base_url`, which usually ends in /v1, `model` and `api_key` below `voice:`")
        return [Finding("fault", _("voice"), f"{config.base_url}: {why}", fix)]
    return [Finding("ok", _("voice"), _("{model} transcribes", model=config.model))]


async def check_embeddings(config: EmbeddingsConfig) -> list[Finding]:
    """Embed one text, if embeddings are configured."""
    if not config.base_url:
        return []
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        [vector] = await embed_texts(config, ["Fawn"], SERVICE_TIMEOUT_SECONDS, Meter())
    except EmbeddingsFailed as error:
        fix = _("check `base_url`, which usually ends in /v1, `model` and `api_key` below `memory: {embeddings: …}`")
        return [Finding("fault", _("embeddings"), f"{config.base_url}: {localized(error)}", fix)]
    took = loop.time() - began
    values = {"model": config.model, "n": len(vector), "took": took, "limit": config.seconds}
    if took > config.seconds:
        text = _("{model} answers with {n} dimensions in {took:.2f} s; a turn waits {limit:g} s", **values)
        fix = _("raise `seconds`, or choose a faster server: a slower answer is not used")
        return [Finding("note", _("embeddings"), text, fix)]
    return [Finding("ok", _("embeddings"), _("{model} answers with {n} dimensions in {took:.2f} s", **values))]


def check_prices(config: Config) -> list[Finding]:
    """Name what a budget in money refuses, because its price is not known. Reads the prices: call in a thread."""
    if all(each.money is None for each in config.budgets):
        return []
    paid: list[tuple[str, Priced]] = [("turn", each) for each in config.models]
    paid += [(VOICE, config.voice)] if config.voice.base_url else []
    paid += [(EMBEDDING, config.memory.embeddings)] if config.memory.embeddings.base_url else []
    findings = []
    for kind, settings in paid:
        name = settings.name if isinstance(settings, ModelSettings) else settings.model
        call = ModelCall(LEAD, name, kind, 1000, 1000, 0, 0, 1.0, 0.0, audio_seconds=60.0 * (kind == VOICE))
        if price_call(settings, call)[0] is None:
            refusal = unknown_price(kind, name)
            findings.append(Finding("note", _("budgets"), refusal.what, refusal.what_to_do))
    return findings


async def check_push_target(target: PushTarget, config: PushConfig) -> Finding:
    """Ask a target whether it is there, in a way that notifies nobody, under the rules of a push."""
    subject = _(PUSH_TARGET, name=target.name)
    guard = None if config.private_addresses else AddressGuard()
    fix = _("correct its `url`; a server in your own network needs `push: {private_addresses: true}`")
    try:
        status = await probe_target(target.kind, target.url.reveal(), guard)
    except (PushRefused, PushFailed, WebError, ValueError) as error:
        return Finding("fault", subject, localized(error), fix)
    if status >= 500 or (target.kind == "bark" and status != 200):
        return Finding("fault", subject, _("it answers with status {status}", status=status), fix)
    if target.kind == "bark":
        return Finding("ok", subject, _("the Bark server answers; whether the key is right shows with the first push"))
    return Finding("ok", subject, _("it answers (status {status} to HEAD); nothing was pushed", status=status))


async def check_external_agents(config: Config) -> list[Finding]:
    """Start each external agent in a sandbox and greet it."""
    if not config.external_agents:
        return []
    try:
        chosen = await select_provider(config.sandbox.provider, sandbox_settings(config), folders(config))
        provider = chosen[0]
        if not provider.runs_commands:
            fix = _("configure a sandbox that runs commands (docs/sandbox.md)")
            return [Finding("note", _("external agents"), _("not available: the sandbox runs no commands"), fix)]
        try:
            with tempfile.TemporaryDirectory(dir=config.data_dir, prefix=".check-") as folder:
                async with provider.acquire("check agents", Path(folder)) as sandbox:
                    return [await _check_external_agent(each, sandbox) for each in config.external_agents]
        finally:
            await provider.close()
    except (SandboxError, OSError) as error:
        return [Finding("fault", _("external agents"), localized(error), _("see the finding about the sandbox"))]


async def _check_external_agent(settings: ExternalAgentSettings, sandbox: Sandbox) -> Finding:
    subject = _("external agent {name}", name=settings.name)
    try:
        async with asyncio.timeout(SERVICE_TIMEOUT_SECONDS):
            session = await import_in_thread("agent.acp.session")  # and the agent stack
            name = await session.greet(settings, sandbox)
    except (TimeoutError, AcpError, SandboxError) as error:
        why = _no_answer() if isinstance(error, TimeoutError) else localized(error)
        fix = _("install it in the sandbox and allow its hosts (docs/external-agents.md)")
        return Finding("fault", subject, f"{settings.command}: {why}", fix)
    return Finding("ok", subject, _("it answers as {name}", name=name))


def _no_answer() -> str:
    return _("no answer in {n:.0f} s", n=SERVICE_TIMEOUT_SECONDS)
