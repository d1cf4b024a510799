"""Generate docs/configuration.md from the settings dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from agent.setting import Secret
from bot.config.decoder import written_name
from bot.config.files import CONFIG_VERSION
from bot.config.loader import channel_modules, environment_names
from bot.config.schema import AccessConfig, FileConfig
from bot.config.spending import Money, TokenCount

_WORDS = {
    str: "text",
    Secret: "secret",
    Path: "path",
    int: "whole number",
    float: "number",
    bool: "true or false",
    Money: "dollars",
    TokenCount: "whole number",
}
MAX_DEFAULT_CHARS = 80  # a longer one is described
_HEAD = """# Settings

`make docs` generates this page from the code. Fawn reads one YAML file, `config.yaml`, at start. It reports every fault
at once, with its line, a mark below the place, and a fix, and exits with code 2. An unknown name is a fault. Values
that may be secrets are hidden in these lines.

- Your own settings belong into `config.local.yaml` beside it, which git ignores and an upgrade never touches. It is
  merged over `config.yaml`: a setting in it wins, a list in it replaces the whole list. It needs no `config_version`.
  With `--config NAME.yaml` it is `NAME.local.yaml`. `fawn check` names the files that were read.
- A value `$NAME` or `${{NAME}}` comes from the environment, or from a `.env` file beside the config file or in the
  working directory (the real environment wins). Put secrets there.
  `$file:PATH` reads a value from a file, `$exec:COMMAND` has a program print it ([security.md](security.md#secrets)).
  A variable `NAME_FILE` names the file of a secret `NAME` that is not set (`…_KEY`, `…_TOKEN`, `…_SECRET`,
  `…_PASSWORD`).
  `$$` at the start of a value is a plain dollar sign.
  A name inside a longer value is not replaced; it is a fault if such a variable is set.
- A size or a time may have a unit: `1G` for `memory_mb`, `2h` for `turn_seconds`.
- Relative paths start at the folder of the config file, or at the working directory when there is no file.
- Without `models:`, `OPENAI_API_KEY` (with `OPENAI_BASE_URL` and `OPENAI_MODEL`, if set) configures a model called
  `main`. `OPENAI_BASE_URL` alone configures a local server without a key.
- Without its section, a channel is configured by its variables, and everybody needs pairing:
{channels}.
- `channels: {{NAME: false}}` turns a channel off, whatever the environment contains.

| Setting | Type | Default | What it does |
| --- | --- | --- | --- |
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table."""

    name: str
    type: str
    default: str
    help: str


def settings_table() -> list[Setting]:
    """Return every setting, in the order of the file; `[]` marks the items of a list."""
    table = [Setting("config_version", "whole number", "required", f"version of the file format: {CONFIG_VERSION}")]
    table += _section_rows(FileConfig, "")
    for name, module in channel_modules().items():
        table += _section_rows(module.Settings, f"channels.{name}.")
    return table + _section_rows(AccessConfig, "channels.NAME.access.")


def settings_page() -> str:
    """Return the text of docs/configuration.md."""
    names = {name: environment_names(module).values() for name, module in channel_modules().items()}
    lines = (
        f"  {name} by {' and '.join(f'`{v}`' for v in variables)}" for name, variables in names.items() if variables
    )
    rows = (f"| `{s.name}` | {s.type} | {s.default} | {s.help} |" for s in settings_table())
    return _HEAD.format(channels=",\n".join(lines)) + "\n".join(row.replace(" |  |", " | |") for row in rows) + "\n"


def _section_rows(kind: type, prefix: str) -> list[Setting]:
    return [row for field in fields(kind) for row in _field_rows(field, get_type_hints(kind)[field.name], prefix)]


def _field_rows(field: Field[Any], kind: Any, prefix: str) -> list[Setting]:
    """Return the row of a field, with the rows of the section that it is or lists."""
    name = f"{prefix}{written_name(field.name)}"
    if is_dataclass(kind):
        return _section_rows(kind, f"{name}.")  # type: ignore[arg-type]  # a field's type is a class, not an instance
    row = Setting(name, _type_words(kind), _default_text(field), field.metadata.get("help", ""))
    origin = get_origin(kind)
    item, end = (
        (get_args(kind)[0], "[]")
        if origin is tuple
        else (get_args(kind)[1], ".NAME")
        if origin is Mapping
        else (None, "")
    )
    return [row, *(_section_rows(item, f"{name}{end}.") if isinstance(item, type) and is_dataclass(item) else ())]


def _type_words(kind: Any) -> str:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _type_words(next(option for option in get_args(kind) if option is not NoneType))
    if origin is Literal:
        return ", ".join(f"`{option}`" for option in get_args(kind) if option)
    if origin is tuple:
        return "list"
    if origin is not None and issubclass(origin, Mapping):
        return "section"
    return _WORDS.get(kind, "section")


def _default_text(field: Field[Any]) -> str:
    if field.default is MISSING:
        return "required" if field.default_factory is MISSING else ""
    match field.default:
        case str() if len(field.default) > MAX_DEFAULT_CHARS:
            return "a sentence"
        case bool():
            return str(field.default).lower()
        case None | "" | ():
            return ""
        case float() | int():
            return f"{field.default:g}" if field.default < 10**6 else str(field.default)
    return f"`{field.default}`"
