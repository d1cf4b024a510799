"""config.yaml and the environment, parsed into frozen typed values. The only file that reads the environment."""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
import pkgutil
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import ModuleType
from zoneinfo import ZoneInfo, available_timezones

import yaml
from dotenv import dotenv_values

import channels
from agent.models.settings import ModelSettings
from agent.secret import Secret
from bot.config.decoder import ConfigFault, EnvString, InvalidValue, Parser, is_null, join, shown, suggest
from bot.config.schema import AccessConfig, ChannelConfig, Config

CONFIG_VERSION = 1  # of the file's meaning; raised when an old file would be misread
FROM_ENVIRONMENT = {  # a channel whose secrets are all there is configured by them
    "telegram": {"token": "TELEGRAM_BOT_TOKEN"},
    "slack": {"bot_token": "SLACK_BOT_TOKEN", "app_token": "SLACK_APP_TOKEN"},
    "discord": {"token": "DISCORD_BOT_TOKEN"},
    "feishu": {"app_id": "FEISHU_APP_ID", "app_secret": "FEISHU_APP_SECRET"},
}
OPENAI = "langchain_openai:ChatOpenAI"
DEFAULT_MODEL = "gpt-5-mini"


class ConfigError(Exception):
    """The configuration cannot be used; `faults` is everything that is wrong with it."""

    def __init__(self, faults: list[ConfigFault]) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = faults


# ---------------------------------------------------------------- loading


def load_config(path: Path | None = None, environ: Mapping[str, str] | None = None) -> Config:
    """The configuration of `path` (None: ./config.yaml if there is one, else the defaults) and the environment.

    `environ` None is the process's own; a .env beside the file and one in the working directory are read too, and the
    real environment wins. Relative paths belong to the file's folder. Raises ConfigError with every fault.
    """
    here = Path.cwd()
    if path is None and (here / "config.yaml").is_file():
        path = Path("config.yaml")
    folder = (here / path).parent if path else here
    parser = Parser(str(path or ""), folder, _read_environment(environ, here, folder))
    node = _read_document(parser, path) if path else None
    config = _read_config(parser, node, path) if not parser.faults and _check_version(parser, node) else None
    if config is None or parser.faults:
        raise ConfigError(sorted(parser.faults, key=lambda fault: fault.line))
    return config


def _read_environment(environ: Mapping[str, str] | None, *folders: Path) -> dict[str, str]:
    known: dict[str, str] = {}
    for folder in folders:
        file = folder / ".env"
        if file.is_file():
            text = file.read_text("utf-8", "replace")
            known |= {k: v for k, v in dotenv_values(stream=io.StringIO(text), interpolate=False).items() if v}
    return known | dict(os.environ if environ is None else environ)


def _read_document(parser: Parser, path: Path) -> yaml.Node | None:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        parser.fault(None, "", f"cannot be read: {why}", "check the path after --config")
        return None
    return parser.compose(text)


def _check_version(parser: Parser, node: yaml.Node | None) -> bool:
    """Whether it makes sense to read on: a file for a newer version is not looked at any further."""
    if not parser.file:
        return True
    try:
        value = parser.pairs(node, "").get("config_version", (None, None))[1]
    except InvalidValue as error:
        parser.fault(node, "", error.wrong, error.fix)
        return False
    if value is None:
        parser.fault(node, "config_version", "is missing", f"add `config_version: {CONFIG_VERSION}` as the first line")
        return True
    version = parser.check(value, "config_version", int)
    if version in (CONFIG_VERSION, None):
        return True
    fix = f"write {CONFIG_VERSION}" if version < CONFIG_VERSION else "upgrade Fawn, or write the file for this version"
    parser.fault(value, "config_version", f"this Fawn understands version {CONFIG_VERSION} only", fix)
    return bool(version < CONFIG_VERSION)


def _read_config(parser: Parser, node: yaml.Node | None, path: Path | None) -> Config | None:
    """The whole of it; None when something was at fault. Each part is looked at, whatever the others are like."""
    values = {name: value for name, (_, value) in parser.pairs(node, "").items()}
    config: Config | None = parser.section(node, "", Config, ("config_version", "models", "channels"))
    models = _read_models(parser, values.get("models"))
    _check_roles(parser, values)
    _check_time_zone(parser, values.get("time_zone"))
    entries = _read_channels(parser, values.get("channels"))
    if config is None or parser.faults:
        return None
    return replace(config, models=models, channels=entries, source=str(path) if path else config.source)


def _check_time_zone(parser: Parser, node: yaml.Node | None) -> None:
    try:
        name = parser.variable(node.value) if isinstance(node, yaml.ScalarNode) and not is_null(node) else ""
        if name:
            ZoneInfo(name)
    except InvalidValue:
        return  # reported where the section was read
    except (LookupError, ValueError, OSError):
        names = {known.lower(): known for known in available_timezones()}
        hint = suggest(name, names) if names else "install the time zone data: apt install tzdata"
        hint = re.sub(r"'(.*)'", lambda match: repr(names[match[1]]), hint)
        parser.fault(node, "time_zone", "no such IANA time zone", hint or "such as Europe/Berlin")


# ---------------------------------------------------------------- models


def _read_models(parser: Parser, node: yaml.Node | None) -> tuple[ModelSettings, ...]:
    if is_null(node) or (isinstance(node, yaml.SequenceNode) and not node.value):
        return _model_of_environment(parser.environ)
    if not isinstance(node, yaml.SequenceNode):
        parser.fault(node, "models", "expected a list of models", "write each as `- {name: …, model: …}`")
        return ()
    models = []
    names: set[str] = set()
    for i, item in enumerate(node.value):
        place = f"models[{i}]"
        model: ModelSettings | None = parser.check(item, place, ModelSettings)
        for name, line in _model_names(item):
            if name in names:
                parser.fault(line, f"{place}.name", f"a second model is called {shown(name)!r}", "give it its own name")
            names.add(name)
        if model is not None:
            models.append(_complete_model(parser, item, place, model))
    return tuple(models)


def _model_of_environment(environ: Mapping[str, str]) -> tuple[ModelSettings, ...]:
    """The model that OPENAI_API_KEY or OPENAI_BASE_URL stand for. A local server's model is asked for at start."""
    key, url = environ.get("OPENAI_API_KEY", ""), environ.get("OPENAI_BASE_URL", "")
    if not key and not url:
        return ()
    model = environ.get("OPENAI_MODEL", "") or ("" if url else DEFAULT_MODEL)
    return (ModelSettings("main", OPENAI, model, url, Secret(key or "none")),)


def _complete_model(parser: Parser, node: yaml.Node, place: str, model: ModelSettings) -> ModelSettings:
    """`model` with its class looked for and, for OpenAI-compatible ones, a key: OpenAI's own comes from the usual
    variable, a server elsewhere never sees that one and usually needs none."""
    package = re.fullmatch(r"([A-Za-z_]\w*)(?:\.\w+)*:[A-Za-z_]\w*", model.use)
    if not package:
        parser.fault(node, f"{place}.use", "is no class path", f"write it as package.module:Class, such as {OPENAI}")
    elif importlib.util.find_spec(package[1]) is None:
        pip = package[1].replace("_", "-")
        parser.fault(node, f"{place}.use", f"package {package[1]} is not installed", f".venv/bin/pip install {pip}")
    if model.use != OPENAI or model.api_key is not None:
        return model
    if model.base_url:
        return replace(model, api_key=Secret("none"))
    key = parser.environ.get("OPENAI_API_KEY", "")
    if not key:
        parser.fault(
            node, f"{place}.api_key", "is missing and $OPENAI_API_KEY is not set", "export it or put it into .env"
        )
    return replace(model, api_key=Secret(key))


def _model_names(node: yaml.Node) -> Iterator[tuple[str, yaml.Node]]:
    """The name a model entry gives itself, even when the rest of it is at fault."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(value, yaml.ScalarNode) and isinstance(key, yaml.ScalarNode) and key.value == "name":
                yield value.value, value


def _check_roles(parser: Parser, values: Mapping[str, yaml.Node]) -> None:
    """Each role names a model that exists."""
    node, models = values.get("roles"), values.get("models")
    entries = models.value if isinstance(models, yaml.SequenceNode) else []
    names = {name for item in entries for name, _ in _model_names(item)}
    names = names or {model.name for model in _model_of_environment(parser.environ)} or {"demo"}
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if isinstance(value, yaml.ScalarNode) and value.value not in names and not is_null(value) and value.value:
            parser.fault(value, join("roles", shown(key.value)), "no model has this name", suggest(value.value, names))


# ---------------------------------------------------------------- channels


def channel_modules() -> dict[str, ModuleType]:
    """Every channel there is: a module of `channels` with Settings and connect. Imports them all."""
    found = {info.name: _channel_module(info.name) for info in pkgutil.iter_modules(channels.__path__)}
    return {name: module for name, module in found.items() if module}


def _channel_module(name: str) -> ModuleType | None:
    if not re.fullmatch(r"[a-z][a-z0-9]*", name) or importlib.util.find_spec(f"channels.{name}") is None:
        return None
    module = importlib.import_module(f"channels.{name}")
    return module if hasattr(module, "Settings") and hasattr(module, "connect") else None


def _read_channels(parser: Parser, node: yaml.Node | None) -> tuple[ChannelConfig, ...]:
    """The configured channels; `name: false` leaves one out, and so does not mentioning it, but for one whose secrets
    are in the environment."""
    try:
        pairs = parser.pairs(node, "channels")
    except InvalidValue as error:
        parser.fault(node, "channels", error.wrong, error.fix)
        return ()
    entries = []
    for name, (key, value) in pairs.items():
        module = _channel_module(name)
        if module is None:
            parser.fault(key, f"channels.{shown(name)}", "there is no such channel", suggest(name, channel_modules()))
        elif not (isinstance(value, yaml.ScalarNode) and value.value.lower() in ("false", "off", "no")):
            entries.append(_read_channel(parser, name, module, key, value))
    for name, variables in FROM_ENVIRONMENT.items():
        if name not in pairs and all(parser.environ.get(variable) for variable in variables.values()):
            text = "tag:yaml.org,2002:str"
            named = [(yaml.ScalarNode(text, k), yaml.ScalarNode(text, f"${v}")) for k, v in variables.items()]
            section = yaml.MappingNode("tag:yaml.org,2002:map", named)
            module = importlib.import_module(f"channels.{name}")
            entries.append(_read_channel(parser, name, module, section, section))
    return tuple(entry for entry in entries if entry is not None)


def _read_channel(
    parser: Parser, name: str, module: ModuleType, key: yaml.Node, node: yaml.Node
) -> ChannelConfig | None:
    place = f"channels.{name}"
    try:
        access = parser.pairs(node, place).get("access", (None, None))[1]
        if is_null(node):
            node = yaml.MappingNode("tag:yaml.org,2002:map", [], key.start_mark, key.end_mark)
        settings = parser.section(node, place, module.Settings, ("access",))
    except InvalidValue as error:
        parser.fault(node, place, error.wrong, error.fix)
        return None
    if is_null(access) and getattr(module, "LOCAL", False):  # who is here could read everything anyway
        rights: AccessConfig | None = AccessConfig(open=True)
    else:
        rights = parser.check(access, f"{place}.access", AccessConfig)
    return ChannelConfig(name, settings, rights) if settings is not None and rights is not None else None


# ---------------------------------------------------------------- what others ask


def secret_texts(config: object) -> set[str]:
    """Every secret text in a configuration, for the log's filter."""
    if isinstance(config, Secret):
        return {config.reveal()} - {"", "none"}
    if isinstance(config, EnvString):
        return {str(config)}
    if is_dataclass(config) and not isinstance(config, type):
        return set().union(*(secret_texts(getattr(config, f.name)) for f in fields(config)))
    if isinstance(config, Mapping):
        return set().union(*map(secret_texts, config.values()))
    return set().union(*map(secret_texts, config)) if isinstance(config, tuple | list) else set()
