"""Checks of `fawn check` that ask other services: MCP servers, search, voice, embeddings and external agents."""

from __future__ import annotations

import asyncio
import importlib
import io
import tempfile
import wave
from pathlib import Path
from typing import TYPE_CHECKING

from agent.acp.connection import AcpError
from agent.acp.settings import ExternalAgentSettings
from agent.mcp.settings import McpServerSettings
from agent.memory.embeddings import EmbeddingsFailed, embed_texts
from agent.sections import EmbeddingsConfig, VoiceConfig
from agent.transcription import NotTranscribed, transcribe
from agent.web.addresses import WebError
from agent.web.search import make_provider
from agent.web.settings import SearchSettings
from bot.admin.local_checks import Finding
from bot.app import folders, sandbox_settings
from bot.config.schema import Config
from sandbox.base import Sandbox, SandboxError
from sandbox.select import select_provider

if TYPE_CHECKING:  # it imports the agent stack
    from agent.mcp.servers import McpServer

SERVICE_TIMEOUT_SECONDS = 30.0
SILENCE_SECONDS, SAMPLE_RATE_HERTZ = 1, 16_000


async def check_mcp_server(settings: McpServerSettings) -> Finding:
    """Start the server as the service does, and count its tools."""
    subject = f"mcp server {settings.name}"
    if not settings.enabled:
        return Finding("ok", subject, "disabled")
    module = await asyncio.to_thread(importlib.import_module, "agent.mcp.servers")
    server: McpServer = module.McpServer(settings)
    try:
        if problem := await server.refresh():
            where = settings.url or settings.command
            return Finding("fault", subject, f"{where}: {problem}", "start it by hand to see why (docs/mcp.md)")
        all_tools, tools, protocol = server.connection.tools, server.tools, server.connection.protocol
    finally:
        await server.close()
    if not tools:
        names = ", ".join(tool.name for tool in all_tools[:20]) or "none"
        return Finding("note", subject, f"it offers no allowed tool; its tools: {names}", "correct `tools`")
    return Finding("ok", subject, f"{len(tools)} of {len(all_tools)} tools, protocol {protocol}")


async def check_search(settings: SearchSettings) -> Finding:
    """Send one query."""
    subject = f"web search {settings.provider}"
    try:
        found = await make_provider(settings).find("weather", 3)
    except WebError as error:
        return Finding("fault", subject, str(error), "correct `web: {search: …}` (docs/web.md)")
    if not found:
        return Finding("note", subject, "it answers without results", "see which engines it asks")
    return Finding("ok", subject, f"it answers: {found[0].url}")


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
            await transcribe(config, "silence.wav", audio.getvalue())
    except (NotTranscribed, TimeoutError) as error:
        why = error.reason if isinstance(error, NotTranscribed) else f"no answer in {SERVICE_TIMEOUT_SECONDS:.0f} s"
        fix = "check `base_url`, which usually ends in /v1, `model` and `api_key` below `voice:`"
        return [Finding("fault", "voice", f"{config.base_url}: {why}", fix)]
    return [Finding("ok", "voice", f"{config.model} transcribes")]


async def check_embeddings(config: EmbeddingsConfig) -> list[Finding]:
    """Embed one text, if embeddings are configured."""
    if not config.base_url:
        return []
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        [vector] = await embed_texts(config, ["Fawn"], SERVICE_TIMEOUT_SECONDS)
    except EmbeddingsFailed as error:
        fix = "check `base_url`, which usually ends in /v1, `model` and `api_key` below `memory: {embeddings: …}`"
        return [Finding("fault", "embeddings", f"{config.base_url}: {error}", fix)]
    text = f"{config.model} answers with {len(vector)} dimensions in {(took := loop.time() - began):.2f} s"
    if took > config.seconds:
        fix = "raise `seconds`, or choose a faster server: a slower answer is not used"
        return [Finding("note", "embeddings", f"{text}; a turn waits {config.seconds:g} s", fix)]
    return [Finding("ok", "embeddings", text)]


async def check_external_agents(config: Config) -> list[Finding]:
    """Start each external agent in a sandbox and greet it."""
    if not config.external_agents:
        return []
    try:
        provider, _ = await select_provider(config.sandbox.provider, sandbox_settings(config), folders(config))
        if not provider.runs_commands:
            fix = "configure a sandbox that runs commands (docs/sandbox.md)"
            return [Finding("note", "external agents", "not available: the sandbox runs no commands", fix)]
        try:
            with tempfile.TemporaryDirectory(dir=config.data_dir, prefix=".check-") as folder:
                async with provider.acquire("check agents", Path(folder)) as sandbox:
                    return [await _check_external_agent(each, sandbox) for each in config.external_agents]
        finally:
            await provider.close()
    except (SandboxError, OSError) as error:
        return [Finding("fault", "external agents", str(error), "see the finding about the sandbox")]


async def _check_external_agent(settings: ExternalAgentSettings, sandbox: Sandbox) -> Finding:
    subject = f"external agent {settings.name}"
    try:
        async with asyncio.timeout(SERVICE_TIMEOUT_SECONDS):
            session = await asyncio.to_thread(importlib.import_module, "agent.acp.session")  # and the agent stack
            name = await session.greet(settings, sandbox)
    except (TimeoutError, AcpError, SandboxError) as error:
        why = f"no answer in {SERVICE_TIMEOUT_SECONDS:.0f} s" if isinstance(error, TimeoutError) else str(error)
        fix = "install it in the sandbox and allow its hosts (docs/external-agents.md)"
        return Finding("fault", subject, f"{settings.command}: {why}", fix)
    return Finding("ok", subject, f"it answers as {name}")
