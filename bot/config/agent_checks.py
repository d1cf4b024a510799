"""Check what the configuration of agents names: the operator's own code, and schemas of answers."""

from __future__ import annotations

import re
import stat
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from agent.near_misses import suggest
from agent.settings.models import fix_of
from bot.config.decoder import EXPECTED, describe
from bot.config.document import ConfigFault, Document
from bot.config.excerpt import Location
from bot.config.schema import FileConfig, SandboxConfig
from bot.database.web_people import WEB
from catalogue import _, localized
from sandbox.named_code import NamedCodeError, check_code, find_code, import_code

EXPORTS = ("Settings", "connect", "probe")  # of a channel's module
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,29}")


def open_folder(document: Document, sections: Mapping[str, Any], folder: Path) -> None:
    """Put the folder of the configuration last on the import path, if the configuration names code.

    Last, so that a file there never replaces a module of Fawn, of a package or of Python.
    """
    if not any(_uses(sections)) or str(folder) in sys.path:
        return
    if folder.stat().st_mode & stat.S_IWOTH:
        wrong = _("everybody can write into this folder, so code beside the configuration is not used")
        document.faults.append(ConfigFault(str(folder), 0, "", wrong, _("take that right away: `chmod o-w`")))
        return
    sys.path.append(str(folder))


def _uses(sections: Mapping[str, Any]) -> Iterator[bool]:
    """Yield whether each entry that may name code does so."""
    channels = sections.get("channels")
    entries = [sections.get("sandbox"), *(channels.values() if isinstance(channels, dict) else ())]
    for name in ("models", "tools", "policies"):
        entries += section if isinstance(section := sections.get(name), list) else ()
    yield from (isinstance(entry, dict) and bool(entry.get("use")) for entry in entries)


def take_own_channels(
    document: Document, section: Mapping[str, Any], known: Collection[str]
) -> dict[str, tuple[str, ModuleType]]:
    """Return the channels with `use:` as name → its path and its module, and take `use` out of their settings."""
    found = {}
    for name, settings in section.items():
        if isinstance(settings, dict) and "use" in settings:
            use, at = settings.pop("use"), ("channels", name, "use")
            if name in (*known, WEB):
                document.fault(at, _("Fawn has a channel called {name}", name=name), _("give yours another name"))
            elif not _NAME.fullmatch(name):
                fix = _("use lower-case letters, digits, - and _")
                document.fault(at[:2], _("is no name of a channel"), fix, on_key=True)
            elif module := _import_channel(document, use, at):
                found[name] = (str(use), module)
    return found


def _import_channel(document: Document, use: object, at: tuple[str, str, str]) -> ModuleType | None:
    try:
        module = import_code(str(use))
    except NamedCodeError as error:
        document.fault(at, localized(error.wrong), localized(fix_of(error)))
        return None
    if missing := [name for name in EXPORTS if not hasattr(module, name)]:
        document.fault(at, _("has no {name}", name=f"`{missing[0]}`"), _("docs/channels.md says what it exports"))
        return None
    if not is_dataclass(module.Settings):
        document.fault(at, _("its `Settings` is no dataclass"), _("docs/channels.md says what it exports"))
        return None
    return module


def check_own_sandbox(document: Document, sandbox: SandboxConfig) -> None:
    """Find the provider of `sandbox.use`, and check its options; what it needs of the machine shows at the start."""
    if not sandbox.use:
        if sandbox.options:
            wrong = _("have no effect: they are arguments of `use`")
            document.fault(("sandbox", "options"), wrong, _("remove the line"))
        return
    try:
        check_code(sandbox.use, find_code(sandbox.use), 1, sandbox.options)
    except NamedCodeError as error:
        document.fault(("sandbox", *error.place), localized(error.wrong), localized(fix_of(error)))


TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
# json-schema.org/draft/2020-12: keywords that say what a value is; others only describe it
KEYWORDS = (
    {"type", "enum", "const", "properties", "required", "items", "prefixItems", "additionalProperties"}
    | {"patternProperties", "anyOf", "oneOf", "allOf", "not", "if", "$ref", "minimum", "maximum"}
    | {"minLength", "maxLength", "minItems", "maxItems", "pattern", "format"}
)


def check_output_schemas(document: Document, config: FileConfig) -> None:
    """Report each place of a schema that is none."""
    for i, kind in enumerate(config.subagents.kinds):
        at = ("subagents", "kinds", i, "output_schema")
        if kind.output_schema and not KEYWORDS & kind.output_schema.keys():
            fix = _("such as `{example}`", example="{type: object, properties: {total: {type: number}}}")
            document.fault(at, _("is no JSON schema: it says nothing about the value"), fix, on_key=True)
        elif kind.output_schema:
            for place, wrong, fix in _faults(kind.output_schema, at):
                document.fault(place, wrong, fix)


def _faults(schema: Any, at: Location) -> Iterator[tuple[Location, str, str]]:
    if isinstance(schema, bool):
        return  # a schema that takes everything, or nothing
    if not isinstance(schema, dict):
        expected = _("a section (name: value)")
        fix = _("such as `{example}`", example="{type: string}")
        yield at, _(EXPECTED, expected=expected, found=describe(schema)), fix
        return
    yield from _type_faults(schema, at)
    lists = {"enum": _("a list"), "required": _("a list")}
    for name, expected in lists.items():
        if name in schema and not isinstance(schema[name], list):
            yield (
                (*at, name),
                _(EXPECTED, expected=expected, found=describe(schema[name])),
                _("write it as [first, second]"),
            )
    properties = schema.get("properties")
    if isinstance(properties, dict):
        for name, inner in properties.items():
            yield from _faults(inner, (*at, "properties", name))
        for name in schema["required"] if isinstance(schema.get("required"), list) else ():
            if name not in properties and not schema.get("additionalProperties", True):
                yield (*at, "required"), _("names what `properties` lacks"), suggest(str(name), properties)
    elif properties is not None:
        expected = _("a section (name: value)")
        yield (
            (*at, "properties"),
            _(EXPECTED, expected=expected, found=describe(properties)),
            _("such as `{example}`", example="total: {type: string}"),
        )
    if "items" in schema:
        yield from _faults(schema["items"], (*at, "items"))


def _type_faults(schema: dict[str, Any], at: Location) -> Iterator[tuple[Location, str, str]]:
    types = schema.get("type", [])
    for name in types if isinstance(types, list) else [types]:
        if not isinstance(name, str) or name not in TYPES:
            yield (*at, "type"), _("is no type of JSON"), suggest(str(name), TYPES)
