"""Check what the types of single sections cannot say.

Find the placeholders of samples, such as `xoxb-...`, where a token or key belongs.

Environment variables by which libraries send people's words elsewhere, or write them to the log, unasked.

They are removed from the environment of the process unless `library_switches` names them: the configuration decides
where words go, not what another program needed.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Collection, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from agent.late_imports import describe_install
from agent.near_misses import suggest
from agent.settings.network import make_trust
from agent.settings.sections import ContextConfig
from bot.config.database import check_database
from bot.config.document import Document
from bot.config.excerpt import SECRET_NAME, Location
from bot.config.operations import check_encryption
from catalogue import N_, _, list_items, localized
from sandbox.base import SandboxUnavailable
from sandbox.rules import EgressPolicy, NetworkRules, normalize_host

_PREFIX = r"(?i:sk|xox[a-z]|xapp|bearer|bot|ghp)[-_\s](?i:proj-|ant-|1-)?"  # of keys that are shown in samples
_STANDS_FOR_ONE = r"(?i:x{3,}|\.{3,}|…|\*{3,}|your[-_\s].{0,80}|replace[-_\s]?me|change[-_\s]?me|todo|paste.{0,80})"
_PLACEHOLDER = re.compile(rf"(?:{_PREFIX})?(?:{_STANDS_FOR_ONE})|<[^<>]{{0,100}}>")


def is_placeholder(value: object) -> bool:
    """Return whether a text only shows where a token or key belongs."""
    return isinstance(value, str) and len(value) <= 120 and _PLACEHOLDER.fullmatch(value.strip()) is not None


def describe_placeholder() -> tuple[str, str]:
    """Return what is wrong, and the fix."""
    return _("is a placeholder of a sample"), _("put the real one in its place, or remove the line")


def check_placeholders(document: Document, sections: dict[str, Any]) -> None:
    """Note each secret that is a placeholder. A model's server elsewhere may take any key."""
    for at in _placeholders(sections, ()):
        if at not in document.faulty:
            document.fault(at, *describe_placeholder())


def _placeholders(value: Any, at: Location) -> Iterator[Location]:
    if isinstance(value, dict):
        free = at[:1] == ("models",) and value.get("base_url")
        for name, inner in value.items():
            if not (free and name == "api_key"):
                yield from _placeholders(inner, (*at, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _placeholders(inner, (*at, number))
    elif at and isinstance(at[-1], str) and SECRET_NAME.search(at[-1]) and is_placeholder(value):
        yield at


_TRACES = N_("it sends every request and answer to a tracing service")
_REDIRECTS = N_("it sends requests to another server, or adds to them")
_LOGS = N_("it writes requests and answers to the log")
SWITCHES: Mapping[str, str] = {
    **{f"{maker}_{name}": _TRACES for maker in ("LANGSMITH", "LANGCHAIN") for name in ("TRACING", "TRACING_V2")},
    **{f"{maker}_{name}": _TRACES for maker in ("LANGSMITH", "LANGCHAIN") for name in ("OTEL_ENABLED", "OTEL_ONLY")},
    "LANGCHAIN_HANDLER": _TRACES,
    "OPENAI_API_BASE": _REDIRECTS,
    "OPENAI_PROXY": _REDIRECTS,
    "OPENAI_CUSTOM_HEADERS": _REDIRECTS,
    "ANTHROPIC_BASE_URL": _REDIRECTS,
    "ANTHROPIC_API_URL": _REDIRECTS,
    "ANTHROPIC_PROXY": _REDIRECTS,
    "ANTHROPIC_CUSTOM_HEADERS": _REDIRECTS,
    "OPENAI_LOG": _LOGS,
    "ANTHROPIC_LOG": _LOGS,
}
"""Variable → what it does."""
_OFF = ("", "0", "false", "no", "off")


def check_network(document: Document, network: Any) -> None:
    """Note a file of authorities that has none."""
    file = network.get("ca_file") if isinstance(network, dict) else None
    if not isinstance(file, str) or not file or ("network", "ca_file") in document.faulty:
        return
    try:
        make_trust(str(document.folder / file))
    except OSError as error:
        wrong = _("cannot be used ({error})", error=type(error).__name__)
        document.fault(("network", "ca_file"), wrong, _("name a PEM file of certificates"))


def check_switches(document: Document, names: Any) -> None:
    """Note names that are no such variable."""
    for i, name in enumerate(names if isinstance(names, list) else ()):
        if isinstance(name, str) and name not in SWITCHES:
            document.fault(("library_switches", i), _("is not a variable that I know"), suggest(name, SWITCHES))


def active_switches(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the switches that are on in an environment."""
    return tuple(name for name in SWITCHES if environ.get(name, "").strip().lower() not in _OFF)


def remove_switches(environ: MutableMapping[str, str], allowed: Sequence[str]) -> None:
    """Remove every switch that is not allowed: some have an effect even when they say "false"."""
    for name in SWITCHES.keys() - {*allowed}:
        environ.pop(name, None)


_NEEDED = {"searxng": "url", **dict.fromkeys(("tavily", "brave", "exa", "infoquest"), "api_key")}  # by provider


def check_time_zone(document: Document, name: object) -> None:
    try:
        if name and isinstance(name, str):
            ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        names = available_timezones()
        fix = suggest(str(name), names) if names else _("install the time zone data: apt install tzdata")
        document.fault(("time_zone",), _("no such IANA time zone"), fix or _("such as Europe/Berlin"))


def check_roles(document: Document, sections: Mapping[str, Any]) -> None:
    """Each role names a model that exists."""
    models, roles = sections["models"], sections.get("roles")
    entries = models if isinstance(models, list) else []
    names = {str(model["name"]) for model in entries if isinstance(model, dict) and model.get("name")} or {"demo"}
    for role, value in roles.items() if isinstance(roles, dict) else ():
        for name in value if isinstance(value, list) else [value]:
            if name and isinstance(name, str) and name not in names:
                document.fault(("roles", role), _("no model has this name"), suggest(name, names))


def check_search(document: Document, web: object) -> None:
    """Each search provider has what it cannot work without."""
    entries = web.get("search") if isinstance(web, dict) else None
    for i, entry in enumerate(entries if isinstance(entries, list) else ()):
        provider = entry.get("provider") if isinstance(entry, dict) else None
        needed = _NEEDED.get(str(provider), "")
        at = ("web", "search", i, needed)
        if provider and needed and not entry.get(needed) and at not in document.faulty:
            document.fault(at, _("is missing"), _("{provider} needs `{setting}`", provider=provider, setting=needed))
        if provider == "ddgs" and importlib.util.find_spec("ddgs") is None:
            wrong = _("package {name} is not installed", name="ddgs")
            document.fault(("web", "search", i, "provider"), wrong, localized(describe_install("ddgs")))


def check_web_hosts(document: Document, web: object) -> None:
    """Each host whose pages may be read is a name or an address; its subdomains need no pattern."""
    entries = web.get("hosts") if isinstance(web, dict) else None
    for i, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, str) and "://" not in entry and entry.strip():
            try:
                normalize_host(entry.strip("."))
            except ValueError:
                fix = _("write only the host, such as example.com; its subdomains are included")
                document.fault(("web", "hosts", i), _("is no host"), fix)


def check_docker_host(document: Document, sandbox: object) -> None:
    """The address of the engine has a scheme that Fawn speaks, and the socket's path or the engine's name."""
    host = sandbox.get("docker_host") if isinstance(sandbox, dict) else None
    if isinstance(host, str) and host.strip() in ("unix://", "tcp://"):
        fix = _("such as {example}", example="tcp://127.0.0.1:2375" if "tcp" in host else "unix:///var/run/docker.sock")
        document.fault(("sandbox", "docker_host"), _("names no engine"), fix)
    elif isinstance(host, str) and not host.startswith(("unix://", "tcp://")):
        fix = _("write unix:// before the path of a socket, tcp:// before a name and port")
        document.fault(("sandbox", "docker_host"), _("has no scheme that Fawn can use"), fix)


def check_network_hosts(document: Document, sandbox: object) -> None:
    """Each host that sandboxes reach can be one, as `EgressPolicy` reads it, and the mode uses them."""
    network = sandbox.get("network") if isinstance(sandbox, dict) else None
    if not isinstance(network, dict):
        return
    entries = network.get("hosts")
    named = [name for name in ("hosts", "pip_index_url", "npm_registry_url") if network.get(name)]
    if network.get("mode") == "allowlist" and not named and ("sandbox", "network", "hosts") not in document.faulty:
        document.fault(("sandbox", "network"), _("allows nothing: it names no hosts"), _("add `hosts: [example.com]`"))
    elif entries and "mode" not in network:
        fix = _("add `mode: allowlist` beside it")
        document.fault(("sandbox", "network", "hosts"), _("has no effect: the network is off"), fix)
    for i, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, str) and entry.strip() and "://" not in entry:
            try:
                EgressPolicy(NetworkRules(hosts=(entry,)))
            except SandboxUnavailable:
                fix = _("write example.com, *.example.com or an address, with :port where it is not 80 or 443")
                document.fault(("sandbox", "network", "hosts", i), _("is no host"), fix)


def check_preview(document: Document, sandbox: object) -> None:
    """The address of links has a host and a port."""
    preview = sandbox.get("preview") if isinstance(sandbox, dict) else None
    listen = preview.get("listen") if isinstance(preview, dict) else None
    if isinstance(listen, str) and listen and not re.fullmatch(r"\S+:\d{1,5}", listen):
        at = ("sandbox", "preview", "listen")
        document.fault(at, _("is no address with a port"), _("such as 127.0.0.1:8080"))


def check_cluster(document: Document, sandbox: object) -> None:
    """Pods need a claim to mount."""
    section = sandbox if isinstance(sandbox, dict) else {}
    options = section.get("kubernetes")
    claim = options.get("claim") if isinstance(options, dict) else None
    if options and section.get("provider", "auto") != "kubernetes" and ("sandbox", "kubernetes") not in document.faulty:
        wrong = _("has no effect: `provider` is {provider}", provider=section.get("provider", "auto"))
        document.fault(("sandbox", "kubernetes"), wrong, _("add `provider: kubernetes`, or remove it"), on_key=True)
        return
    kubeconfig = options.get("kubeconfig") if isinstance(options, dict) else None
    file = os.path.join(document.folder, os.path.expanduser(kubeconfig)) if isinstance(kubeconfig, str) else ""
    if kubeconfig and not os.path.isfile(file):
        fix = _("check the path; it starts at the folder of the config file")
        document.fault(("sandbox", "kubernetes", "kubeconfig"), _("the file does not exist"), fix)
    if section.get("provider") == "kubernetes" and not claim and ("sandbox", "kubernetes") not in document.faulty:
        fix = _("add `claim: NAME`, the persistent volume claim that holds `data_dir`")
        document.fault(("sandbox", "kubernetes", "claim"), _("is missing"), fix)


def check_private_hosts(document: Document, skills: object) -> None:
    """Each host is a name or an address, without a port."""
    entries = skills.get("private_hosts") if isinstance(skills, dict) else None
    for i, entry in enumerate(entries if isinstance(entries, list) else ()):
        try:
            normalize_host(str(entry))
        except ValueError:
            fix = _("write a name such as git.corp.example, or an address, without https:// and without a port")
            document.fault(("skills", "private_hosts", i), _("is no host"), fix)


def check_budgets(document: Document, entries: Any) -> None:
    """Note a budget that limits nothing, and one that another one would replace."""
    found: dict[tuple[str, str, str], int] = {}
    for i, entry in enumerate(entries if isinstance(entries, list) else ()):
        if not isinstance(entry, dict):
            continue
        if entry.get("money") is None and entry.get("tokens") is None:
            document.fault(("budgets", i), _("limits nothing"), _("add `money: 5 USD`, `tokens: 2M` or both"))
        scope, which = str(entry.get("scope")), str(entry.get("which") or "")
        if which and scope in ("turn", "everything"):
            document.fault(("budgets", i, "which"), _("this scope has no single ones"), _("remove `which`"))
        period = "" if scope == "turn" else str(entry.get("period") or "month")
        if (first := found.setdefault((scope, which, period), i)) != i:
            wrong = _("has the same scope and period as `budgets[{number}]`", number=first)
            document.fault(("budgets", i), wrong, _("write `money` and `tokens` into one entry"))


def check_rates(document: Document, entries: Any) -> None:
    """Note a rate limit that another one would replace."""
    found: dict[tuple[str, str], int] = {}
    for i, entry in enumerate(entries if isinstance(entries, list) else ()):
        if not isinstance(entry, dict):
            continue
        if (first := found.setdefault((str(entry.get("scope")), str(entry.get("which") or "")), i)) != i:
            wrong = _("has the same scope as `rate_limits[{number}]`", number=first)
            document.fault(("rate_limits", i), wrong, _("remove one, or name in `which` whom it limits"))


def check_storage(document: Document, sections: Mapping[str, Any]) -> None:
    """Check where everything is stored, what is encrypted there, and where its backups go."""
    check_backup(document, sections.get("backup"), sections.get("data_dir", "data"))
    check_database(document, sections.get("database"))
    check_encryption(document, sections.get("encryption"))


def check_backup(document: Document, backup: object, data_dir: object) -> None:
    """What says how backups are written also says where: elsewhere than what is backed up."""
    to = backup.get("to") if isinstance(backup, dict) else None
    if isinstance(to, str) and to and isinstance(data_dir, str):
        paths = (os.path.join(document.folder, os.path.expanduser(each)) for each in (to, data_dir))
        there, data = (Path(os.path.abspath(each)) for each in paths)
        if there == data or data in there.parents:
            wrong = _("is inside data_dir: what takes that takes the backups, too")
            document.fault(("backup", "to"), wrong, _("name a folder outside of it, best on another disk"))
    if isinstance(backup, dict) and backup and not backup.get("to") and ("backup", "to") not in document.faulty:
        wrong = _("writes no backups: it names no folder")
        document.fault(("backup",), wrong, _("add `to: FOLDER`, or remove the section"), on_key=True)


def check_context(document: Document, context: ContextConfig) -> None:
    """What stays of a conversation is less than what begins its summary: otherwise a summary would replace nothing."""
    pairs = (
        ("keep_messages", context.keep_messages, "trigger_messages", context.trigger_messages),
        ("keep_tokens", context.keep_tokens, "trigger_tokens", context.trigger_tokens),
    )
    for name, kept, limit_name, limit in pairs:
        if kept >= limit:
            wrong = _("must be less than `{setting}`, which is {n}", setting=limit_name, n=limit)
            fix = _("such as `{example}`", example=f"{name}: {limit // 4}")
            document.fault(("context", name), wrong, fix)


def check_effort(document: Document, effort: str, known: Collection[str], at: Location) -> None:
    if not known:
        document.fault(at, _("this model has no such setting"), _("set what its server takes below `options`"))
    elif effort not in known:
        document.fault(at, _("this model does not take it"), _("choose one of {names}", names=list_items(known)))


def is_key(text: str) -> bool:
    """Return whether a text can be sent as a key, in a header."""
    return text.isascii() and not re.search(r"\s", text.strip())


def describe_bad_key() -> tuple[str, str]:
    """Return what is wrong with a key that is not ASCII, and the fix."""
    return _("contains characters that no key has"), _("put your key in its place, without `Bearer` and blanks")
