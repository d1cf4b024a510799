"""`fawn check`: try everything the service needs, at once, and explain how to fix each problem."""

from __future__ import annotations

import asyncio
import importlib
import os
import platform
import resource
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from agent.foreign_text import printable_text
from agent.late_imports import import_in_thread
from agent.near_misses import suggest
from agent.settings.models import AgentConfigError, ModelSettings
from agent.settings.network import describe_failure
from bot.admin.network_checks import check_database, check_network
from bot.admin.service_checks import (
    MCP_SERVER,
    WEB_SEARCH,
    check_external_agents,
    check_mcp_server,
    check_search,
    check_traces,
    check_voice,
)
from bot.base.findings import Check, Finding
from bot.base.log import Redactor
from bot.base.model_discovery import name_models
from bot.base.stored_secrets import check_encryption, token_folder
from bot.config.loader import OPENAI, secret_texts
from bot.config.schema import ChannelConfig, Config
from bot.config.section_checks import SWITCHES
from bot.database.data_lock import is_held
from bot.rights.access import LOCAL_CHANNEL
from bot.service.agent_builder import try_agent
from bot.service.channel_supervisor import check_parts, connector_of
from bot.service.sandbox_setup import folders, sandbox_settings
from bot.status.local_checks import (
    check_data_dir,
    check_descriptors,
    check_machine,
    check_parsers,
    check_secret_files,
    guarded,
)
from bot.status.trouble import ModelReach
from catalogue import N_, _, join_sentences, list_items, localized
from channels.base import ChannelError, Refused
from sandbox.base import SandboxUnavailable
from sandbox.bubblewrap.provider import supplementary_groups
from sandbox.engines.select import select_provider
from sandbox.named_code import describe_error

if TYPE_CHECKING:  # it imports the agent stack
    from agent.models.loader import LoadedModel

CHANNEL_TIMEOUT_SECONDS = 15.0
MODEL_TIMEOUT_SECONDS = 60.0  # a local model may have to be loaded first
PROBE = "Answer with the single word: ready"
PROBE_TOOL = {
    "type": "function",
    "function": {
        "name": "note",
        "description": "Note a word.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    },
}
MODEL, CHANNEL = N_("model {name}"), N_("channel {name}")
_MARKS = {"ok": N_("ok"), "note": N_("note"), "fault": N_("FAULT")}


async def run_checks(
    config: Config,
    of_features: Callable[[Config], Iterable[Check]],
    report: Callable[[Finding], None] = lambda finding: None,
) -> list[Finding]:
    """Run every check, whatever the others find, and `report` them in a fixed order as soon as they are known.

    Findings do not contain secrets.
    """
    redact = Redactor(secret_texts(config))
    findings = []
    checks = _list_checks(replace(config, models=await name_models(config.models)), of_features)
    tasks = [asyncio.create_task(check.findings(), name=f"check {check.subject}") for check in checks]
    for task in tasks:
        for found in await task:
            findings.append(replace(found, text=redact(found.text), fix=redact(found.fix)))
            report(findings[-1])
    return findings


def render_finding(finding: Finding) -> str:
    """Return a finding as a line, with its fix on the next one."""
    fix = f"\n      → {finding.fix}" if finding.fix else ""
    text = _("{name}: {reason}", name=finding.subject, reason=finding.text)
    return printable_text(f"{_(_MARKS[finding.state]):5} {text}{fix}")  # it may quote a stranger's server


def _list_checks(config: Config, of_features: Callable[[Config], Iterable[Check]]) -> list[Check]:
    """Return the checks of the core and of the features, in the order of the report."""
    return [
        Check(_("this machine"), partial(_check_base, config)),
        *(Check(_(MODEL, name=each.name), partial(check_model, config, each)) for each in config.models),
        *(
            Check(_(MCP_SERVER, name=each.name), partial(check_mcp_server, each, token_folder(config)))
            for each in config.mcp.servers
        ),
        *(
            Check(_(WEB_SEARCH, provider=each.provider), partial(check_search, each, config.web.proxy))
            for each in config.web.search
        ),
        Check(_("voice"), partial(check_voice, config.voice)),
        Check(_("external agents"), partial(check_external_agents, config)),
        Check(_("traces"), partial(check_traces, config.traces)),
        *of_features(config),
        check_encryption(config),
        Check(_("agent"), partial(_check_agent, config)),
        Check(_("permissions"), partial(asyncio.to_thread, _check_rules, config)),
        Check(_("network"), partial(check_network, config)),
        *(Check(_(CHANNEL, name=each.name), partial(check_channel, each)) for each in config.channels),
    ]


async def _check_base(config: Config) -> list[Finding]:
    """Check what needs no network, and the sandbox."""
    served = is_held(config.data_dir)
    data_dir = await asyncio.to_thread(guarded, "data_dir", partial(check_data_dir, config.data_dir, served=served))
    found = [
        Finding("ok", _("configuration"), config.source),
        Finding("ok", "Python", f"{platform.python_version()} ({platform.system()})"),
        _check_clock(config),
        data_dir,
        *await check_database(config, served=served),
        *await asyncio.to_thread(lambda: list(check_machine(config, served=served))),
        *await asyncio.to_thread(check_parsers),
        *check_descriptors(resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
        *await asyncio.to_thread(check_secret_files, config),
        await _check_sandbox(config)
        if data_dir.ok
        else Finding("note", _("sandbox"), _("not tested, because data_dir cannot be used")),
    ]
    if not config.models:
        text = _("not configured: the built-in demo model answers")
        found.append(Finding("note", _("model"), text, _("run `fawn init`, or set OPENAI_API_KEY or `models:`")))
    if not config.channels:
        fix = _("set the token of a platform (see docs/configuration.md) or `channels:`")
        found.append(Finding("note", _("channels"), _("not configured: only the console is available"), fix))
    found += [Finding("note", _("environment"), hint) for hint in config.hints]
    return found + [_describe_switch(name, allowed=name in config.library_switches) for name in config.switches]


def _describe_switch(name: str, *, allowed: bool) -> Finding:
    """Describe a variable that a library would obey."""
    effect = _(SWITCHES[name])
    if allowed:
        text = _("{name} is set and `library_switches` allows it: {effect}", name=name, effect=effect)
        return Finding("note", _("environment"), text, _("remove it there if nobody wants that"))
    text = _("{name} is set, and I ignore it: {effect}", name=name, effect=effect)
    fix = _("unset it; or, if that is wanted, add `library_switches: [{name}]`", name=name)
    return Finding("note", _("environment"), text, fix)


def _check_rules(config: Config) -> list[Finding]:
    """Name the rules that a program can get around, and the chats that cannot be asked for approval."""
    team, channels = config.team, [LOCAL_CHANNEL, *(entry.name for entry in config.channels)]
    rules = [*config.permissions.rules(), *(rule for role in team.roles for rule in role.rules())]
    unasked = N_("the chat {chat} can't be asked: its channel is not configured")
    evadable = N_("the rule {rule!r} reads commands: a program or a script can do the same unseen")
    by_force = _(
        "to forbid it by force: `sandbox.network` without that host, no credentials in the sandbox, or `bash` denied"
    )
    return (
        _check_ways_out(config)
        + _check_open_access(config)
        + [
            Finding("note", _("permissions"), _(evadable, rule=str(rule)), by_force)
            for rule in rules
            if rule.verdict == "deny" and rule.pattern and rule.names("bash")
        ]
        + [
            Finding("note", _("approvals"), _(unasked, chat=chat), suggest(name, channels))
            for chat in filter(None, (approval.chat for approval in team.approvals))
            if (name := chat.partition("/")[0]) not in channels
        ]
    )


async def _check_agent(config: Config) -> list[Finding]:
    """Build the agent as `run`, `reload` and `ask` do. What is wrong with a model, its own check says."""
    subject = _("agent")
    try:
        await try_agent(config)
    except AgentConfigError as error:
        own = [(each, config.locate(each.place, each.wrong, "")) for each in (error, *error.others)]
        return [
            Finding("fault", subject, fault.render(), localized(each.fix))
            for each, fault in own
            if each.place[0] != "models"
        ]
    return [Finding("ok", subject, _("it can be built"))]


def _check_ways_out(config: Config) -> list[Finding]:
    """Name a configuration in which private data, text by strangers and a way out meet without a question."""
    ways = [*(["web_fetch"] if config.web.fetch and not config.web.hosts else ())]
    ways += [f"mcp__{server.name}__*" for server in config.mcp.servers]
    if config.permissions.outward != "allow" or not (config.web.fetch or config.web.search) or not ways:
        return []
    text = _(
        "private data, text by strangers and ways out meet without a question: `outward: allow`, pages, and {tools}",
        tools=list_items(ways),
    )
    fix = _("remove `permissions.outward`, then such calls ask; or bound pages with `web.hosts`")
    return [Finding("note", _("permissions"), text, fix)]


def _check_open_access(config: Config) -> list[Finding]:
    """Name channels on which everybody has the agent reach the network."""
    names = [entry.name for entry in config.channels if entry.access.open and entry.name != LOCAL_CHANNEL]
    network = config.sandbox.network
    if not names or not network.enabled:
        return []
    values = {"channels": list_items(names), "mode": network.mode}
    text = _("everybody on {channels} can have commands reach the network (`mode: {mode}`)", **values)
    return [Finding("note", _("access"), text, _("set `access: {allow: [ID]}`, or `sandbox: {network: {mode: off}}`"))]


def _check_clock(config: Config) -> Finding:
    now = datetime.now(ZoneInfo(config.time_zone)) if config.time_zone else datetime.now().astimezone()
    zone, local = config.time_zone or now.tzname(), f"{now:%Y-%m-%d %H:%M}"
    return Finding("ok", _("time zone"), _("{zone}, local time {local}", zone=zone, local=local))


async def _check_sandbox(config: Config) -> Finding:
    subject, settings = _("sandbox"), sandbox_settings(config)
    try:
        provider, description, why = await select_provider(config.sandbox.provider, settings, folders(config))
    except (SandboxUnavailable, OSError) as error:
        fix = _("or set `sandbox: {provider: auto}`: bubblewrap if it is installed, otherwise no commands")
        return Finding("fault", subject, localized(error), fix)
    await provider.close()
    if provider.name == "bubblewrap" and (groups := supplementary_groups()):
        more = _("Its commands can read the files of the groups {groups}.", groups=list_items(groups))
        fix = _("run Fawn as a user without supplementary groups (docs/sandbox.md)")
        return Finding("note", subject, join_sentences(description, localized(why), more), fix)
    return Finding("ok" if provider.runs_commands else "note", subject, join_sentences(description, localized(why)))


# ---------------------------------------------------------------- models


async def check_model(config: Config, settings: ModelSettings, seconds: float = MODEL_TIMEOUT_SECONDS) -> Finding:
    """Send a real, tiny request through the class that the service uses."""
    subject, roles = _(MODEL, name=settings.name), _roles_of(config, settings.name)
    try:
        module = await import_in_thread("agent.models.loader")
        model: LoadedModel = module.LoadedModel(settings, module.load_model(settings))
        text = await _call_model(model, seconds)
    except AgentConfigError as error:
        fault = config.locate(error.place, error.wrong, "")
        fix = localized(error.fix) or _("see `models:` in the configuration")
        return Finding("fault", subject, fault.render(), fix)
    except Exception as error:  # noqa: BLE001  # any class can be configured: whatever it raises is the finding
        alone = replace(config, models=(settings,))
        if isinstance(error, TimeoutError) and not await ModelReach().find_trouble(alone):
            where = settings.base_url or _("the provider")
            slow = _("{where} is reached, but has not answered in {n:.0f} s", where=where, n=seconds)
            return Finding("note", subject, slow, _("wait until the model is loaded, and raise `read_seconds`"))
        what, fix = _explain_model_error(error, settings)
        return Finding("fault", subject, what, fix)
    values = {"model": settings.model or settings.name, "text": text[:40], "roles": list_items(roles)}
    said = (
        _("{model} answers: {text!r} (roles: {roles})", **values) if roles else _("{model} answers: {text!r}", **values)
    )
    if "vision" in roles and not model.sees_pictures:
        fix = _("choose another model for `roles: {vision: NAME}`, or set `vision: true` if it does")
        return Finding("note", subject, _("{said}; its class does not know that it takes pictures", said=said), fix)
    if "lead" in roles and not config.roles.vision and settings.vision is False:
        text = _("{said}; it does not see the pictures that people send", said=said)
        return Finding("note", subject, text, _("name one that does: `roles: {vision: NAME}`"))
    return Finding("ok", subject, said)


def _roles_of(config: Config, model: str) -> list[str]:
    roles = {"lead": config.models[0].name} | {name: value for name, value in asdict(config.roles).items() if value}
    return [name for name, value in roles.items() if model == value or (isinstance(value, tuple) and model in value)]


async def _call_model(model: LoadedModel, seconds: float) -> str:
    """Return the answer to a request like those of turns, with a tool, as far as it comes in time."""
    streamed = await import_in_thread("agent.models.streamed_answer")
    said: list[str] = []
    try:
        async with asyncio.timeout(seconds):
            answer = await streamed.stream_answer(
                model.model, [("human", PROBE)], [PROBE_TOOL], lambda chunk: said.append(chunk.text)
            )
            return str(answer.text).strip()
    except TimeoutError:
        if not any(said):
            raise
        return "".join(said).strip()  # it is slow, and answers
    finally:
        await model.close()


def _explain_model_error(error: Exception, settings: ModelSettings) -> tuple[str, str]:
    """Return what happened and what to do, by HTTP status if there is one."""
    status = getattr(error, "status_code", None)
    where = settings.base_url or _("the provider")
    match status:
        case 401 | 403:
            return _("{where} refused the key ({status})", where=where, status=status), _(
                "check `api_key` and the variable it names"
            )
        case 404:
            model = settings.model or settings.name
            near = _("add /v1 to `base_url`") if _has_no_path(settings.base_url) else _("check `model` and `base_url`")
            return _("{where} does not know {model!r} (404)", where=where, model=model), near
        case 429:
            return _("too many requests, or no credit left (429)"), _("check the limits and the credit of the account")
        case int():
            return _("{where} answered with status {status}", where=where, status=status), _(
                "check the server's log, or try again later"
            )
    cause = _innermost_error(error)
    if settings.use == OPENAI and isinstance(cause, TypeError | ValueError):  # what langchain raises for a web page
        return _("{where} is not an OpenAI-compatible server", where=where), _(
            "check `base_url`; it usually ends in /v1"
        )
    if isinstance(error, TimeoutError) or isinstance(cause, TimeoutError | asyncio.CancelledError):
        return _("no answer from {where} in {n:.0f} s", where=where, n=MODEL_TIMEOUT_SECONDS), _(
            "check `base_url`, `proxy` and the network"
        )
    return (
        _("{where} cannot be reached: {error}", where=where, error=_describe(error, cause)),
        _("check `base_url`, `proxy`, `ca_file`, and that the server is running"),
    )


def _describe(error: BaseException, cause: BaseException) -> str:
    is_plain = isinstance(cause, OSError) and cause.errno
    return describe_failure(error) if is_plain else str(cause) or type(cause).__name__


def _has_no_path(url: str) -> bool:
    return bool(url) and urlsplit(url).path in ("", "/")


def _innermost_error(error: BaseException) -> BaseException:
    """Unwrap the cause: SDKs wrap "connection refused" several times, once as a timeout."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error


# ---------------------------------------------------------------- channels


def _check_console(entry: ChannelConfig, subject: str) -> Finding:
    """Find out whether the agent's files can be saved: the folder is made when the first one comes."""
    folder = Path(os.path.abspath(entry.settings.downloads))
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        fix = _("set `channels.console.downloads` to a folder of your own")
        return Finding("fault", subject, _("files cannot be saved: {folder} is not writable", folder=there), fix)
    return Finding("ok", subject, _("a terminal") if sys.stdin and sys.stdin.isatty() else _("configured"))


async def _check_own_channel(entry: ChannelConfig) -> None:
    """Make a channel of the operator's own code, as a start does. Raises Refused where it lacks what a channel has."""
    try:
        async with connector_of(entry)() as channel:
            check_parts(entry.name, channel)
    except (ChannelError, OSError):
        raise
    except Exception as error:
        raise Refused(_("{use} cannot be made: {error}", use=entry.use, error=describe_error(error))) from error


async def check_channel(entry: ChannelConfig) -> Finding:
    """Probe the account through the channel's own `probe`."""
    subject = _(CHANNEL, name=entry.name)
    if entry.name == "console":
        return _check_console(entry, subject)
    try:
        async with asyncio.timeout(CHANNEL_TIMEOUT_SECONDS):
            account = await importlib.import_module(entry.module).probe(entry.settings)
            if entry.use:
                await _check_own_channel(entry)
    except Refused as error:
        fix = _("see docs/setup-{channel}.md, step by step", channel=entry.name)
        return Finding("fault", subject, str(error), _("docs/channels.md says what it needs") if entry.use else fix)
    except (ChannelError, OSError) as error:  # a TimeoutError is an OSError
        late = isinstance(error, TimeoutError)
        what = _("no answer in {n:.0f} s", n=CHANNEL_TIMEOUT_SECONDS) if late else str(error) or type(error).__name__
        return Finding("fault", subject, what, _("check the address, `proxy` and the network"))
    access, count = entry.access, len({*entry.access.allow, *entry.access.operators})
    if access.open:
        fix = _("if you do not want that, set `access: {allow: [ID]}`")
        return Finding("note", subject, _("{account}; EVERYBODY can talk to it", account=account), fix)
    if not count and not access.pairing:
        return Finding(
            "fault",
            subject,
            _("{account}, but nobody can talk to it", account=account),
            _("set `access: {allow: [ID]}`"),
        )
    if access.pairing:
        return Finding(
            "ok", subject, _("{account}; access for {count} ids, others need pairing", account=account, count=count)
        )
    return Finding(
        "ok", subject, _("{account}; access for {count} ids, nobody else can talk to it", account=account, count=count)
    )
