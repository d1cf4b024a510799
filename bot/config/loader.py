"""config.yaml and the environment, parsed into frozen typed values. The only file that reads the environment."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import io
import os
import pkgutil
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from dotenv import dotenv_values
from dotenv.parser import parse_stream

import channels
from agent.late_imports import describe_channel_install, describe_install, lacks_sdk
from agent.models.presets import PRESETS, complete_entry, effort_names
from agent.near_misses import suggest
from agent.setting import Secret
from agent.settings.mcp import McpServerSettings
from agent.settings.network import left_to_files
from bot.config.addresses import check_id, id_on
from bot.config.agent_checks import check_output_schemas, check_own_sandbox, open_folder, take_own_channels
from bot.config.decoder import EXPECTED, describe, indent_below, setting_names, validate
from bot.config.document import ConfigFault, Document, explain_url
from bot.config.excerpt import Location
from bot.config.files import default_file, file_elsewhere, read_files
from bot.config.hooks import MIN_KEY_CHARS, check_hooks, check_relay
from bot.config.http import check_http
from bot.config.mcp_servers import FOREIGN_SECTION, read_foreign_servers
from bot.config.names_check import check_names, check_server_folders, check_team
from bot.config.operations import check_metrics, check_traces
from bot.config.outside import FILE, NotFetched, fetch, files_of_secrets
from bot.config.schema import AccessConfig, ChannelConfig, Config, FileConfig, SystemdConfig
from bot.config.section_checks import (
    active_switches,
    check_budgets,
    check_cluster,
    check_context,
    check_docker_host,
    check_effort,
    check_network,
    check_network_hosts,
    check_placeholders,
    check_preview,
    check_private_hosts,
    check_rates,
    check_roles,
    check_search,
    check_storage,
    check_switches,
    check_time_zone,
    check_web_hosts,
    describe_bad_key,
    describe_placeholder,
    is_key,
    is_placeholder,
    remove_switches,
)
from bot.config.uploads import check_uploads
from catalogue import LANGUAGES, N_, _, current_language, list_items, localized, match_language, use_language
from channels.shared.ids import IdForms

OPENAI = "langchain_openai:ChatOpenAI"
WITH_SECRETS = (  # sections of accounts
    *("models", "roles", "channels", "mcp", "hooks", "relay", "traces", FOREIGN_SECTION),
)
DEFAULT_MODEL = "gpt-5-mini"
NO_VARIABLE = N_("{file} has no NAME=value in line {line}, where a quote may be open: nothing of it is used")
MOST_UNREAD = 5  # lines of a `.env` that are named
LOCATED = (
    "models",
    "policies",
    "tools",
    "permissions",
    "team",
    "rate_limits",
    "agents",
    "subagents",
    "skills",
    "roles",
)


class ConfigError(Exception):
    """The configuration cannot be used; `faults` lists every reason."""

    def __init__(self, faults: list[ConfigFault]) -> None:
        super().__init__("\n".join(fault.render() for fault in faults))
        self.faults = faults


# ---------------------------------------------------------------- loading


def load_config(
    path: Path | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    accounts: bool = True,
    overrides: Mapping[str, str] | None = None,
) -> Config:
    """Return the configuration of `path` (None: ./config.yaml if it exists, else the defaults) and the environment.

    `NAME.local.yaml` beside the file `NAME.yaml` is merged over it. `environ` None is the process's own. A .env beside
    the file and one in the working directory are read too; the real environment wins. Relative paths
    start at the file's folder. Without `accounts`, models and channels are left out, so that no secret is needed.
    `overrides` are variables that win over all others. Raises ConfigError with every fault.
    """
    here = Path.cwd()
    path = path or default_file()
    folder = (here / path).parent if path else here
    document = Document(str(path or ""), folder, {})
    document.environ = _read_environment(document, environ, here, folder) | dict(overrides or {})
    document.left_out = () if accounts else WITH_SECRETS
    sections = read_files(document, path) if path else {}
    if not accounts:
        sections = _without_accounts(document, sections)
    if path and sections:
        open_folder(document, sections, folder)
    language = str((sections or {}).get("language"))
    with use_language(language if language in LANGUAGES else current_language()):
        return checked_config(document, sections)


def configured_elsewhere() -> Path | None:
    """Return the file for a command without `--config` whose folder has none: see `file_elsewhere`."""
    return file_elsewhere(os.environ)


def read_plain_sections(path: Path, names: Collection[str]) -> tuple[dict[str, Any], frozenset[str]]:
    """Return those of these sections that a file sets, as plain values, and the names of all that it sets.

    `$NAME` and the like are looked for only in these sections. Raises ConfigError.
    """
    document = Document(str(path), path.parent, {})
    document.environ = _read_environment(document, None, Path.cwd(), path.parent)
    every = {field.name for field in fields(FileConfig)} | {"channels", FOREIGN_SECTION}
    document.left_out = tuple(every - {*names})
    sections = read_files(document, path) or {}
    if document.faults:
        raise ConfigError(document.faults)
    return {name: value for name, value in sections.items() if name in names}, frozenset(sections)


def silence_libraries(config: Config) -> None:
    """Remove from this process's environment what lets libraries send people's words elsewhere unasked."""
    remove_switches(os.environ, config.library_switches)


def apply_network(config: Config) -> None:
    """Put the section `network:` into this process's environment, for all clients and for programs that it starts.

    What it leaves open comes from the environment, and else from `.env`.
    """
    for name, value in {**config.network_files, **config.network.variables()}.items():
        if value:
            os.environ[name] = value
        else:
            os.environ.pop(name, None)


def read_service_key() -> str:
    """Return the key for a service elsewhere: $FAWN_KEY, or the text of the file $FAWN_KEY_FILE; "" for none.

    Raises OSError.
    """
    if key := os.environ.get("FAWN_KEY", ""):
        return key
    file = os.environ.get("FAWN_KEY_FILE", "")
    return Path(file).read_text("utf-8").strip() if file else ""


def terminal_language() -> str:
    """Return the language of the terminal, as POSIX finds that of messages; "" if the catalogue does not have it."""
    variables = ("LC_ALL", "LC_MESSAGES", "LANG")
    return match_language(next((os.environ[name] for name in variables if os.environ.get(name)), ""))


def has_desktop() -> bool:
    """Return whether who started this process sees a desktop: not over SSH, and not without a display."""
    if os.environ.get("SSH_CONNECTION"):
        return False
    return sys.platform == "darwin" or any(map(os.environ.get, ("WAYLAND_DISPLAY", "DISPLAY")))


def known_variables(path: Path | None) -> dict[str, str]:
    """Return the variables that a configuration at `path` could use. Raises ConfigError."""
    here = Path.cwd()
    document = Document(str(path or ""), here, {})
    known = _read_environment(document, None, here, (here / path).parent if path else here)
    if document.faults:
        raise ConfigError(document.faults)
    return known


def _read_environment(document: Document, environ: Mapping[str, str] | None, *folders: Path) -> dict[str, str]:
    known: dict[str, str] = {}
    for folder in dict.fromkeys(folders):
        file = folder / ".env"
        try:
            text = file.read_text("utf-8", "replace") if file.is_file() else ""
        except OSError as error:
            fix = _("run as the user that owns it, or make it readable for this user")
            document.faults.append(
                ConfigFault(str(file), 0, "", _("cannot be read: {strerror}", strerror=error.strerror), fix)
            )
            continue
        document.paths |= {file} if text else set()
        values = {k: v for k, v in dotenv_values(stream=io.StringIO(text), interpolate=False).items() if v}
        known |= values
        shown = file.name if folder == folders[0] else str(file)
        lines, unread = _lines_of(text)
        document.origins |= {name: (shown, line) for name, line in lines.items() if name in values}
        document.unread += [(shown, line) for line in unread[:MOST_UNREAD]]
    given = dict(os.environ if environ is None else environ)
    for name in given:
        document.origins.pop(name, None)
    document.network = left_to_files(given, known)
    known |= given
    return known | _read_files_of_secrets(document, known, folders[0])


def _read_files_of_secrets(document: Document, environ: Mapping[str, str], here: Path) -> dict[str, str]:
    """Return what the variables `…_FILE` of secrets name; a file that cannot be read is a fault of its variable."""
    values = {}
    for name, (variable, file) in files_of_secrets(environ).items():
        try:
            values[name] = fetch(f"{FILE}{file}", here, environ)
            document.paths |= {here / file}
            document.origins[name] = (file, 1)
        except NotFetched as error:
            document.fault_of_variable(variable, error.wrong, error.fix)
    return values


def _lines_of(text: str) -> tuple[dict[str, int], list[int]]:
    """Return the line of each variable of a `.env`, the last one, which counts; and the lines that are none."""
    found: dict[str, int] = {}
    unread = []
    for binding in parse_stream(io.StringIO(text)):
        blank = len(binding.original.string) - len(binding.original.string.lstrip())
        line = binding.original.line + binding.original.string.count("\n", 0, blank)
        found |= {binding.key: line} if binding.key else {}
        unread += [line] if binding.error else []
    return found, unread


def _without_accounts(document: Document, sections: dict[str, Any] | None) -> dict[str, Any] | None:
    """Drop the sections that hold secrets, with their faults and those of the environment."""
    document.locked = any(fault.place.startswith("encryption") for fault in document.faults)
    document.faults[:] = [
        fault
        for fault in document.faults
        if fault.file in document.files
        and re.split(r"[.\[]", fault.place)[0] not in WITH_SECRETS
        and not fault.place.startswith(("audit.key", "audit.push"))
        and not fault.place.startswith(("encryption", "database.password"))
    ]
    document.environ, document.has_accounts = {}, False
    return (
        {name: value for name, value in sections.items() if name not in WITH_SECRETS} if sections is not None else None
    )


def checked_config(document: Document, sections: dict[str, Any] | None) -> Config:
    """Return the configuration of these sections. Raises ConfigError with every fault."""
    config = read_config(document, sections)
    if config is None or document.faults:
        faults = sorted(document.faults, key=lambda fault: fault.line)
        raise ConfigError([document.with_excerpt(fault) for fault in faults])
    return config


def read_config(document: Document, sections: dict[str, Any] | None) -> Config | None:
    """Return the whole configuration, None when a part of it has a fault; every part is checked."""
    if sections is None:
        return None
    document.settings = known_settings()
    check_placeholders(document, sections)
    entries = _read_channels(document, sections.pop("channels", None))
    sections["models"] = _complete_models(document, sections.get("models"))
    _check_sections(document, sections)
    servers = read_foreign_servers(document, sections)
    extra = ("config_version", "channels", FOREIGN_SECTION)
    config = validate(document, FileConfig, sections, extra=extra)
    if config is None:
        return None
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    values["mcp"] = replace(config.mcp, servers=(*config.mcp.servers, *servers))
    own_servers: dict[Location, McpServerSettings] = {
        ("mcp", "servers", i): server for i, server in enumerate(config.mcp.servers)
    }
    check_server_folders(document, own_servers | {(FOREIGN_SECTION, server.name): server for server in servers})
    modules = channel_modules() | {entry.name: importlib.import_module(entry.module) for entry in entries}
    check_team(document, config, entries, modules)
    configured = {entry.name: entry for entry in entries}
    listens = bool(config.http.listen or config.relay.url)
    check_hooks(document, config.hooks, configured, modules, config.team.all_roles(), listens=listens)
    check_relay(document, config.relay, listens=bool(config.http.listen))
    if config.audit.key:
        document.refuse_weak(("audit", "key"), config.audit.key.reveal(), MIN_KEY_CHARS)
    check_names(document, config, entries, modules)
    check_context(document, config.context)
    check_output_schemas(document, config)
    if document.has_accounts:
        check_own_sandbox(document, config.sandbox)
    source = list_items(document.files) or _("built-in defaults")
    return Config(
        **values,
        channels=entries,
        source=source,
        file=Path(document.file).absolute() if document.file else None,
        paths=frozenset(document.paths),
        digest=document.digest,
        variables=frozenset(document.variables.values()),
        network_files=document.network,
        hints=(
            *(_(NO_VARIABLE, file=name, line=line) for name, line in document.unread),
            *environment_hints(document.environ, {entry.name for entry in entries}),
            *(() if config.models else model_hints(document.environ)),
            *other_hints(document.environ, config),
        ),
        switches=active_switches(document.environ),
        encryption_locked=document.locked,
        systemd=_read_systemd(document.environ),
        places={
            at: document.with_excerpt(document.locate(at, "", on_key="options" in at))
            for at in document.locations(*LOCATED)
        },
    )


def _check_sections(document: Document, sections: dict[str, Any]) -> None:
    """Check what the types of single sections cannot say."""
    check_roles(document, sections)
    check_search(document, sections.get("web"))
    check_web_hosts(document, sections.get("web"))
    check_docker_host(document, sections.get("sandbox"))
    check_network_hosts(document, sections.get("sandbox"))
    check_preview(document, sections.get("sandbox"))
    check_cluster(document, sections.get("sandbox"))
    check_private_hosts(document, sections.get("skills"))
    check_http(document, sections.get("http"))
    check_metrics(document, sections)
    check_traces(document, sections.get("traces"))
    check_uploads(document, sections)
    check_storage(document, sections)
    check_budgets(document, sections.get("budgets"))
    check_rates(document, sections.get("rate_limits"))
    check_time_zone(document, sections.get("time_zone"))
    check_switches(document, sections.get("library_switches"))
    check_network(document, sections.get("network"))


def _read_systemd(environ: Mapping[str, str]) -> SystemdConfig:
    microseconds = environ.get("WATCHDOG_USEC", "")
    return SystemdConfig(environ.get("NOTIFY_SOCKET", ""), int(microseconds) / 1e6 if microseconds.isdecimal() else 0.0)


# ---------------------------------------------------------------- models


def _complete_models(document: Document, models: Any) -> Any:
    """Check the models' names and classes, and add the key of OpenAI, or the model of the environment."""
    if models is None or models == []:
        return _model_of_environment(document)
    names: set[str] = set()
    for i, model in enumerate(models if isinstance(models, list) else ()):
        if not isinstance(model, dict):
            continue  # reported by its validation
        _complete_model(document, model, ("models", i))
        name = str(model.get("name", i))
        if name in names:
            document.fault(("models", i, "name"), _("another model has the same name"), _("give it its own name"))
        names.add(name)
    return models


def _model_of_environment(document: Document) -> list[dict[str, str]]:
    """Return the model of OPENAI_API_KEY or OPENAI_BASE_URL. A local server names its model itself, at start."""
    environ = document.environ
    key, url = environ.get("OPENAI_API_KEY", ""), environ.get("OPENAI_BASE_URL", "")
    if not key and not url:
        return []
    if url and (found := explain_url(url, "base_url")):
        document.fault_of_variable("OPENAI_BASE_URL", *found)
    if not url and is_placeholder(key):
        document.fault_of_variable("OPENAI_API_KEY", *describe_placeholder())
    elif not is_key(key):
        document.fault_of_variable("OPENAI_API_KEY", *describe_bad_key())
    model = environ.get("OPENAI_MODEL", "") or ("" if url else DEFAULT_MODEL)
    return [{"name": "main", "model": model, "base_url": url, "api_key": key or "none"}]


def _complete_model(document: Document, model: dict[str, Any], at: Location) -> None:
    """Add what the preset knows, and look for the model's class. A provider's own key comes from the usual variable; a
    server elsewhere never gets that one and usually needs none."""
    named = model.get("preset")
    preset = PRESETS.get(named or "") if isinstance(named, str | None) else None
    if named and not preset:
        return  # its validation reports the preset, and which there are
    elsewhere = bool(model.get("base_url"))
    if preset:
        complete_entry(model)
    use = model.get("use") or OPENAI
    package = re.fullmatch(r"([A-Za-z_]\w*)(?:\.\w+)*:[A-Za-z_]\w*", use) if isinstance(use, str) else None
    if not package:
        document.fault(
            (*at, "use"),
            _("is not a class path"),
            _("write it as package.module:Class, such as {OPENAI}", OPENAI=OPENAI),
        )
    elif importlib.util.find_spec(package[1]) is None:
        wrong = _("package {name} is not installed", name=package[1])
        document.fault((*at, "preset" if preset else "use"), wrong, localized(describe_install(package[1])))
    elif (effort := model.get("effort")) and isinstance(effort, str):
        check_effort(document, effort, effort_names(model["preset"] if preset else "", use), (*at, "effort"))
    if isinstance(key := model.get("api_key"), str) and not is_key(key):
        document.fault((*at, "api_key"), *describe_bad_key())
    if (preset or use == OPENAI) and not model.get("api_key") and (*at, "api_key") not in document.faulty:
        variable = preset.key_variable if preset else "OPENAI_API_KEY"
        model["api_key"] = document.environ.get(variable) if variable and not elsewhere else "none"
        if not model["api_key"]:
            why = _("is missing and ${variable} is not set", variable=variable)
            document.fault((*at, "api_key"), why, _("export it or put it into .env"))


# ---------------------------------------------------------------- channels


@cache
def channel_modules() -> dict[str, ModuleType]:
    """Import every channel: a module of `channels` with Settings and connect."""
    names = [info.name for info in pkgutil.iter_modules(channels.__path__) if info.name not in ("base", "shared")]
    found = {name: importlib.import_module(f"channels.{name}") for name in sorted(names)}
    return {name: module for name, module in found.items() if hasattr(module, "Settings")}


@cache
def known_settings() -> tuple[str, ...]:
    """Return the names of all settings and sections that a place has."""
    found = [*setting_names(FileConfig)]
    for name, module in channel_modules().items():
        at = f"channels.{name}."
        found += [at[:-1], *setting_names(module.Settings, at), *setting_names(AccessConfig, f"{at}access.")]
    return tuple(found)


INCOMPLETE = N_("{given} is set, but {name} is not: set it, or remove {given}")


def other_hints(environ: Mapping[str, str], config: FileConfig) -> Iterator[str]:
    """Yield which variables that other programs obey have no effect here."""
    name = "OTEL_EXPORTER_OTLP_ENDPOINT"
    if environ.get(name) and not config.traces.endpoint:
        yield _(
            "{name} is set, and I ignore it: for traces, write `traces: {section}`", name=name, section="{endpoint: …}"
        )


def environment_names(module: ModuleType) -> dict[str, str]:
    """Return setting → variable of the channel: when all of them are set, they configure it."""
    return {f.name: f.metadata["environment"] for f in fields(module.Settings) if "environment" in f.metadata}


def environment_hints(environ: Mapping[str, str], configured: Collection[str]) -> list[str]:
    """Return what looks wrong in the variables of channels that are not configured: a misspelt or a missing one."""
    hints = []
    modules = {name: module for name, module in channel_modules().items() if name not in configured}
    groups = [list(environment_names(module).values()) for module in modules.values()]
    known = [name for group in groups for name in group]
    for name in sorted(environ.keys() - {*known}):
        if environ[name] and (close := difflib.get_close_matches(name, known, 1, 0.8)) and not environ.get(close[0]):
            hints.append(_("{name} is set: did you mean {other}?", name=name, other=close[0]))
    for group in groups:
        given = [name for name in group if environ.get(name)]
        missing = [name for name in group if given and name not in given]
        hints += [_(INCOMPLETE, given=given[0], name=name) for name in missing]
    return hints


def model_hints(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield what to add for the keys of models that no model uses, where none is configured."""
    adds = N_("{name} is set, but no model uses it: add `models: [{entry}]` to config.local.yaml")
    named = {preset.key_variable: name for name, preset in [*PRESETS.items()][::-1] if preset.key_variable}
    for variable, name in named.items():
        if environ.get(variable) and variable != "OPENAI_API_KEY":
            yield _(adds, name=variable, entry=f"{{name: main, preset: {name}, model: …}}")
    for variable in ("OPENAI_KEY", "OPENAI_TOKEN", "OPENAI_APIKEY"):
        if environ.get(variable):
            yield _("{name} is set: did you mean {other}?", name=variable, other="OPENAI_API_KEY")
    if environ.get("OPENAI_MODEL"):
        yield _(INCOMPLETE, given="OPENAI_MODEL", name="OPENAI_API_KEY")


def _read_channels(document: Document, section: Any) -> tuple[ChannelConfig, ...]:
    """Return the channels of the file, and of the environment where the file does not name them. `name: false` turns
    one off. What a channel needs and the file leaves out comes from its variables, as `fawn setup` writes them."""
    if not isinstance(section, dict | None):
        wrong = _(EXPECTED, expected=_("a section (name: value)"), found=describe(section))
        document.fault(("channels",), wrong, _("write the name of a channel, a colon, and its settings"))
        return ()
    modules, section = {**channel_modules()}, section or {}
    own = take_own_channels(document, section, modules)
    modules |= {name: module for name, (_use, module) in own.items()}
    for name in section.keys() - modules.keys():
        if any(at[:2] == ("channels", name) for at in document.faulty):
            continue  # a channel of the operator's own, which cannot be used
        empty = (other for other in modules if other in section and not section[other])
        owner = next((each for each in empty if name in {field.name for field in fields(modules[each].Settings)}), "")
        fix = indent_below(owner) if owner else suggest(name, modules)
        document.fault(("channels", name), _("there is no such channel"), fix, on_key=True)
    for name, module in modules.items():
        variables = environment_names(module)
        if name not in section and variables and all(map(document.environ.get, variables.values())):
            section[name] = {}
        if isinstance(settings := section.get(name), dict):
            left = {f: v for f, v in variables.items() if f not in settings and document.environ.get(v)}
            settings |= {f: document.substitute(f"${v}", ("channels", name, f)) for f, v in left.items()}
    entries = [_read_channel(document, n, modules[n], s) for n, s in section.items() if n in modules and s is not False]
    return tuple(replace(each, use=own[each.name][0] if each.name in own else "") for each in entries if each)


def _read_channel(document: Document, name: str, module: ModuleType, section: Any) -> ChannelConfig | None:
    at = ("channels", name)
    if lacks_sdk(name):
        wrong = _("the package of {name} is not installed", name=name)
        document.fault(at, wrong, localized(describe_channel_install(name)), on_key=True)
    section = {} if section is None else section
    access = section.pop("access", None) if isinstance(section, dict) else None
    if access is None:  # a person at this terminal could read everything anyway
        access = {"open": True} if getattr(module, "LOCAL", False) else {}
    settings = validate(document, module.Settings, section, at, ("access",))
    for own in fields(module.Settings) if settings else ():
        if least := own.metadata.get("least"):  # a secret that Fawn's owner makes up
            document.refuse_weak((*at, own.name), getattr(settings, own.name).reveal(), least)
    access = _with_bare_ids(name, access)
    _check_ids(document, module, access, at)
    rights = validate(document, AccessConfig, access, (*at, "access"))
    return ChannelConfig(name, settings, rights) if settings and rights else None


def _with_bare_ids(channel: str, access: Any) -> Any:
    """Return `access:` with the ids of addresses that name this channel, too, as `/whoami` shows them."""
    if isinstance(access, dict):
        return {name: _with_bare_ids(channel, value) if name != "role" else value for name, value in access.items()}
    if isinstance(access, list):
        return [id_on(channel, each) if isinstance(each, str) else _with_bare_ids(channel, each) for each in access]
    return access


def _check_ids(document: Document, module: ModuleType, access: Any, at: Location) -> None:
    """Compare the ids of people and places with their forms on this platform, where the channel knows them."""
    forms = [module.IDS] if hasattr(module, "IDS") else []
    for name in ("allow", "operators") if isinstance(access, dict) else ():
        test = IdForms.is_person if name == "operators" else IdForms.is_any
        for i, person in enumerate(access[name] if isinstance(access.get(name), list) else ()):
            if isinstance(person, str):
                check_id(document, (*at, "access", name, i), person, forms, test)


# ---------------------------------------------------------------- secrets


def secret_texts(config: Config) -> set[str]:
    """Return every text that logs must not show: secrets, and texts that came from the environment."""
    return set(_secrets_in(config, config.variables)) - {"", "none"}


def _secrets_in(value: object, variables: frozenset[str]) -> Iterator[str]:
    if isinstance(value, Secret):
        yield value.reveal()
    elif isinstance(value, str) and value in variables:
        yield value
    elif isinstance(value, Mapping):
        yield from _secrets_in(tuple(value.values()), variables)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _secrets_in(item, variables)
    elif is_dataclass(value) and not isinstance(value, type):
        texts = [field for field in fields(value) if not str(field.type).startswith("Literal")]  # those are no secrets
        yield from _secrets_in([getattr(value, field.name) for field in texts], variables)
