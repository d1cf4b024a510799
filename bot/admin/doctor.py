"""`fawn check`: try everything the service needs and explain how to fix each problem."""

from __future__ import annotations

import asyncio
import importlib
import platform
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo

from agent.models.settings import AgentConfigError, ModelSettings
from bot.app import folders, sandbox_settings
from bot.config.loader import secret_texts
from bot.config.schema import ChannelConfig, Config
from bot.data_dir import open_to_others
from bot.log import Redactor
from bot.model_discovery import name_models
from channels.base import ChannelError, Refused
from sandbox.base import SandboxUnavailable
from sandbox.bubblewrap.provider import supplementary_groups
from sandbox.select import select_provider

CHANNEL_TIMEOUT_SECONDS = 15.0
MODEL_TIMEOUT_SECONDS = 60.0  # a local model may have to be loaded first
MIN_FREE_BYTES = 200_000_000
_MARKS = {"ok": "ok   ", "note": "note ", "fault": "FAULT"}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. The service works with a note, but not with a fault."""

    state: Literal["ok", "note", "fault"]
    subject: str
    text: str
    fix: str = ""

    @property
    def ok(self) -> bool:
        return self.state != "fault"


async def run_checks(config: Config) -> list[Finding]:
    """Run every check, whatever the others find. The findings do not contain secrets."""
    redact = Redactor(secret_texts(config))
    findings = [finding async for finding in _check_everything(config)]
    return [replace(finding, text=redact(finding.text), fix=redact(finding.fix)) for finding in findings]


def render_findings(findings: Sequence[Finding]) -> str:
    """Return the findings as text: one line each, the fix below it."""
    lines = []
    for finding in findings:
        lines.append(f"{_MARKS[finding.state]} {finding.subject}: {finding.text}")
        if finding.fix:
            lines.append(f"      → {finding.fix}")
    return "\n".join(lines)


async def _check_everything(config: Config) -> AsyncIterator[Finding]:
    yield Finding("ok", "configuration", config.source)
    yield Finding("ok", "python", f"{platform.python_version()} on {platform.system()}")
    yield _check_clock(config)
    yield await asyncio.to_thread(_check_data_dir, config.data_dir)
    yield await _check_sandbox(config)
    if not config.models:
        yield Finding(
            "note", "model", "not configured: the built-in demo model answers", "set OPENAI_API_KEY or `models:`"
        )
    for settings in await name_models(config.models):
        yield await _check_model(settings)
    if not config.channels:
        fix = "set the token of a platform (see docs/configuration.md) or `channels:`"
        yield Finding("note", "channels", "not configured: only the console is available", fix)
    for entry in config.channels:
        yield await _check_channel(entry)


def _check_clock(config: Config) -> Finding:
    now = datetime.now(ZoneInfo(config.time_zone)) if config.time_zone else datetime.now().astimezone()
    return Finding("ok", "time zone", f"{config.time_zone or now.tzname()}, local time {now:%Y-%m-%d %H:%M}")


def _check_data_dir(data_dir: Path) -> Finding:
    """Write a file, which also finds quotas and read-only mounts."""
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=data_dir, prefix=".check-") as file:
            file.write(b"x" * 4096)
            file.flush()
        free = shutil.disk_usage(data_dir).free
    except OSError as error:
        fix = "make it writable for the user that runs Fawn, or set `data_dir`"
        return Finding("fault", "data_dir", f"cannot write to {data_dir}: {error.strerror}", fix)
    if free < MIN_FREE_BYTES:
        return Finding("fault", "data_dir", f"{data_dir} has {free / 1e6:.0f} MB left", "free space, or set `data_dir`")
    if open_to_others(data_dir):
        fix = f"chmod 700 {data_dir} (the service does this at start if it owns the folder)"
        return Finding("note", "data_dir", f"other users of this machine can read {data_dir}", fix)
    return Finding("ok", "data_dir", f"{data_dir} is writable, {free / 1e9:.1f} GB left")


async def _check_sandbox(config: Config) -> Finding:
    try:
        provider, sentence = await select_provider(config.sandbox.provider, sandbox_settings(config), folders(config))
    except SandboxUnavailable as error:
        return Finding("fault", "sandbox", str(error), "or set `sandbox: {provider: auto}` to run without commands")
    await provider.close()
    sentence = sentence.removeprefix("Sandbox: ")
    if provider.name == "bubblewrap" and (groups := supplementary_groups()):
        text = f"{sentence} Its commands can read the files of the groups {', '.join(groups)}."
        return Finding("note", "sandbox", text, "run Fawn as a user without supplementary groups (docs/sandbox.md)")
    return Finding("ok" if provider.runs_commands else "note", "sandbox", sentence)


# ---------------------------------------------------------------- models


async def _check_model(settings: ModelSettings) -> Finding:
    """Send a real, tiny request through the class that the service uses."""
    subject = f"model {settings.name}"
    try:
        await asyncio.to_thread(importlib.import_module, "agent.models.loader")
        text = await _call_model(settings)
    except AgentConfigError as error:
        return Finding("fault", subject, str(error), "see `models:` in the configuration")
    except Exception as error:  # noqa: BLE001  # any class can be configured: whatever it raises is the finding
        what, fix = _explain_model_error(error, settings)
        return Finding("fault", subject, what, fix)
    return Finding("ok", subject, f"{settings.model or settings.name} answers: {text[:40]!r}")


async def _call_model(settings: ModelSettings) -> str:
    from agent.models.loader import load_model

    model = load_model(settings)
    try:
        async with asyncio.timeout(MODEL_TIMEOUT_SECONDS):
            return (await model.ainvoke("Answer with the single word: ready")).text.strip()
    finally:
        if client := getattr(model, "root_async_client", None):
            await client.close()


def _explain_model_error(error: Exception, settings: ModelSettings) -> tuple[str, str]:
    """Return what happened and what to do, by HTTP status if there is one."""
    status = getattr(error, "status_code", None)
    where = settings.base_url or "the provider"
    match status:
        case 401 | 403:
            return f"{where} refused the key ({status})", "check `api_key` and the variable it names"
        case 404:
            model = settings.model or settings.name
            return f"{where} does not know {model!r} (404)", "check `model`, and that `base_url` ends in /v1"
        case 429:
            return "too many requests, or no credit left (429)", "check the limits and the credit of the account"
        case int():
            return f"{where} answered with status {status}", "check the server's log, or try again later"
    cause = _innermost_error(error)
    if isinstance(cause, TimeoutError):
        return f"no answer from {where} in {MODEL_TIMEOUT_SECONDS:.0f} s", "check `base_url`, `proxy` and the network"
    return (
        f"{where} cannot be reached: {cause or type(cause).__name__}",
        "check `base_url`, `proxy`, `ca_file`, and that the server is running",
    )


def _innermost_error(error: BaseException) -> BaseException:
    """Unwrap the cause: SDKs wrap "connection refused" several times, once as a timeout."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error


# ---------------------------------------------------------------- channels


async def _check_channel(entry: ChannelConfig) -> Finding:
    """Probe the account through the channel's own `probe`."""
    subject = f"channel {entry.name}"
    if entry.name == "console":
        return Finding("ok", subject, "a terminal" if sys.stdin and sys.stdin.isatty() else "configured")
    try:
        async with asyncio.timeout(CHANNEL_TIMEOUT_SECONDS):
            account = await importlib.import_module(f"channels.{entry.name}").probe(entry.settings)
    except Refused as error:  # it says what to do
        return Finding("fault", subject, str(error))
    except (ChannelError, OSError) as error:  # a TimeoutError is an OSError
        late = isinstance(error, TimeoutError)
        what = f"no answer in {CHANNEL_TIMEOUT_SECONDS:.0f} s" if late else str(error) or type(error).__name__
        return Finding("fault", subject, what, "check the address, `proxy` and the network")
    access, count = entry.access, len({*entry.access.allow, *entry.access.operators})
    if access.open:
        fix = "if you do not want that, set `access: {allow: [ID]}`"
        return Finding("note", subject, f"{account}; EVERYBODY can talk to it", fix)
    if not count and not access.pairing:
        return Finding("fault", subject, f"{account}, but nobody can talk to it", "set `access: {allow: [ID]}`")
    others = "others need pairing" if access.pairing else "nobody else can talk to it"
    return Finding("ok", subject, f"{account}; access for {count} ids, {others}")
