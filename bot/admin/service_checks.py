"""Checks of `fawn check` that ask other services: MCP servers, search, voice and external agents."""

from __future__ import annotations

import asyncio
import io
import tempfile
import wave
from pathlib import Path
from typing import TYPE_CHECKING

from agent.acp.connection import AcpError
from agent.late_imports import import_in_thread
from agent.settings.mcp import McpServerSettings
from agent.settings.mcp_tokens import TokenFile, TokenFolder
from agent.settings.sections import ExternalAgentSettings, SearchSettings, VoiceConfig
from agent.spending import Meter
from agent.turn.transcription import NotTranscribed, transcribe
from agent.web.addresses import WebError
from agent.web.search import make_provider
from bot.base.findings import Finding
from bot.config.operations import TracesConfig
from bot.config.schema import Config
from bot.service.sandbox_setup import folders, sandbox_settings
from catalogue import N_, _, list_items, localized
from sandbox.base import Sandbox, SandboxError
from sandbox.engines.select import select_provider

if TYPE_CHECKING:  # it imports the agent stack
    from agent.mcp.servers import McpServer

SERVICE_TIMEOUT_SECONDS = 30.0
MCP_SERVER, WEB_SEARCH = N_("MCP server {name}"), N_("web search {provider}")
SILENCE_SECONDS, SAMPLE_RATE_HERTZ = 1, 16_000


async def check_mcp_server(settings: McpServerSettings, tokens: TokenFolder) -> Finding:
    """Start the server as the service does, and count its tools."""
    subject = _(MCP_SERVER, name=settings.name)
    if not settings.enabled:
        return Finding("ok", subject, _("disabled"))
    module = await import_in_thread("agent.mcp.servers")
    server: McpServer = module.McpServer(settings, tokens)
    try:
        if problem := await server.refresh():
            where = settings.url or settings.command
            if server.connection.needs_sign_in:
                text = _("{url}: it needs a sign-in", url=where)
                return Finding("fault", subject, text, _("run `fawn mcp login {name}`", name=settings.name))
            if not tokens.renews and await asyncio.to_thread(_has_expired, tokens, settings):
                hint = _("use it once in a chat, then repeat the check")
                return Finding("note", subject, f"{where}: {localized(problem.why)}", hint)
            text, fix = f"{where}: {localized(problem.why)}", _("start it by hand to see why (docs/mcp.md)")
            if settings.url:
                fix = _("check `url`, `network.proxy` and the server (docs/mcp.md)")
            if said := server.connection.last_words:
                text, fix = (
                    f"{text}. " + _("Its last lines: {lines}", lines=said),
                    _("mend what it names (docs/mcp.md)"),
                )
            return Finding("fault", subject, text, fix)
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


def _has_expired(folder: TokenFolder, server: McpServerSettings) -> bool:
    """Return whether a token is due for its renewal."""
    stored = TokenFile(folder, server).read()
    return stored is not None and bool(stored.refresh_token) and not stored.is_fresh


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


async def check_traces(settings: TracesConfig) -> list[Finding]:
    """Send the collector a request without spans, if there is one."""
    if not settings.endpoint:
        return []
    from bot.telemetry.traces import Later, open_session, post  # as at a start: only where traces are on

    try:
        async with open_session(settings) as session:
            problem = await post(session, settings, b'{"resourceSpans":[]}')
    except Later as error:
        problem = str(error)
    if problem:
        fix = _("check `endpoint` and `headers` below `traces:`; a collector listens at port 4318, path /v1/traces")
        return [Finding("fault", _("traces"), f"{settings.endpoint}: {problem}", fix)]
    return [Finding("ok", _("traces"), _("{address} takes them", address=settings.endpoint))]
