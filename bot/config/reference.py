"""Generate docs/configuration.md from the settings dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from agent.models.settings import ModelSettings
from agent.secret import Secret
from bot.config.decoder import hints
from bot.config.loader import CONFIG_VERSION, channel_modules
from bot.config.schema import AccessConfig, Config

_MODEL_HELP = {
    "name": "what `roles:` and `/model` call it",
    "use": "class path of a LangChain chat model, `package.module:Class`",
    "model": "the provider's own name of the model; empty: what the server at `base_url` offers first",
    "base_url": "an OpenAI-compatible server; empty: the provider's own",
    "api_key": "empty: `$OPENAI_API_KEY` for OpenAI itself, none for other servers",
    "display_name": "what `/models` shows; empty: the name",
    "proxy": "proxy for calls to this model",
    "ca_file": "certificates of authorities to trust for this model (PEM)",
    "connect_seconds": "longest wait for a connection",
    "read_seconds": "longest silence inside an answer",
    "retries": "how often a failed call is tried again",
    "options": "further arguments of the class, such as `temperature`",
}
_WORDS = {str: "text", Secret: "secret", Path: "path", int: "whole number", float: "number", bool: "true or false"}
_HEAD = """# Settings

Made from the code by `make docs`; a test keeps it so. One YAML file, `config.yaml`, parsed at start: every fault is
reported at once with its line and its fix, exit code 2, and an unknown name is a fault.

- A value `$NAME` or `${NAME}` comes from the environment, or from a `.env` file beside the config or in the working
  directory (the real environment wins). Secrets belong there. `$$` at the start of a value is a plain dollar sign.
- Relative paths belong to the folder of the config file, or to the working directory when there is no file.
- Not in the file but in the environment: `OPENAI_API_KEY` (with `OPENAI_BASE_URL`, `OPENAI_MODEL`) is a model called
  `main` when `models:` is empty, `OPENAI_BASE_URL` alone is a local server without a key. `TELEGRAM_BOT_TOKEN`,
  `SLACK_BOT_TOKEN` with `SLACK_APP_TOKEN`, `DISCORD_BOT_TOKEN`, `FEISHU_APP_ID` with `FEISHU_APP_SECRET` are the
  channel of that name, which lets nobody in before they are paired.
- `channels: {telegram: false}` leaves a channel out whatever the environment says.

| Setting | Type | Default | What it does |
| --- | --- | --- | --- |
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """One line of the table."""

    name: str
    type: str
    default: str
    help: str


def settings_table() -> list[Setting]:
    """Every setting there is, in the order of the file; `[]` marks the items of a list."""
    table = [Setting("config_version", "whole number", "required", f"the meaning of this file: {CONFIG_VERSION}")]
    for field in fields(Config):
        kind = hints(Config)[field.name]
        if field.name == "models":
            table += [_setting_row(field, kind, ""), *_section_rows(ModelSettings, "models[].")]
        elif field.name == "channels":
            for name, module in sorted(channel_modules().items()):
                table += _section_rows(module.Settings, f"channels.{name}.")
            table += _section_rows(AccessConfig, "channels.NAME.access.")
        else:
            table += _field_rows(field, kind, "")
    return table


def settings_page() -> str:
    """docs/configuration.md as it must be."""
    rows = (f"| `{s.name}` | {s.type} | {s.default} | {s.help} |" for s in settings_table())
    return _HEAD + "\n".join(row.replace(" |  |", " | |") for row in rows) + "\n"


def _section_rows(kind: type, prefix: str) -> list[Setting]:
    return [row for field in fields(kind) for row in _field_rows(field, hints(kind)[field.name], prefix)]


def _field_rows(field: Field[Any], kind: Any, prefix: str) -> list[Setting]:
    """The line of one field, or those of the section that it is."""
    if is_dataclass(kind):
        return _section_rows(kind, f"{prefix}{field.name}.")  # type: ignore[arg-type]  # a field's type is a class, not an instance
    return [] if field.metadata.get("internal") else [_setting_row(field, kind, prefix)]


def _setting_row(field: Field[Any], kind: Any, prefix: str) -> Setting:
    text = field.metadata.get("help") or (_MODEL_HELP.get(field.name, "") if prefix == "models[]." else "")
    return Setting(prefix + field.name, _type_words(kind), _default_text(field), text)


def _type_words(kind: Any) -> str:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _type_words(next(option for option in get_args(kind) if option is not NoneType))
    if origin is Literal:
        return ", ".join(f"`{option}`" for option in get_args(kind))
    if origin is tuple:
        return "list"
    if origin is not None and issubclass(origin, Mapping):
        return "section"
    return _WORDS.get(kind, "section")


def _default_text(field: Field[Any]) -> str:
    if field.default is MISSING:
        return "required" if field.default_factory is MISSING else ""
    match field.default:
        case bool():
            return str(field.default).lower()
        case None | "" | ():
            return ""
        case float() | int():
            return f"{field.default:g}" if field.default < 10**6 else str(field.default)
    return f"`{field.default}`"
