"""Validate the values of a document with pydantic; explain its errors with a line and a fix.

A section is a frozen dataclass, and pydantic checks its annotations. The `metadata` of a field may carry pydantic's
constraints (`ge`), `help` (the sentence in the docs), `path` (a relative path starts at the folder of the file) and
`environment` (the variable that sets it).
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from enum import Enum
from functools import cache, reduce
from operator import getitem
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from agent.near_misses import closest_name, did_you_mean, suggest
from bot.config.document import Document
from bot.config.excerpt import Location
from bot.config.texts import check_texts
from catalogue import N_, _, join_sentences, list_items

T = TypeVar("T")

MOST_PLACES = 4  # of an unknown name that are said
EXPECTED = N_("expected {expected}, found {found}")


def written_name(field: str) -> str:
    """Return the name of a setting as people write it: `as_` stands for a word that Python keeps for itself."""
    return field.removesuffix("_")


_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, alias_generator=written_name)
_EXPECTED = {  # by pydantic's type of error: what to write, and how
    "string_type": (N_("text"), N_("write it as one text")),
    "int_type": (N_("a whole number"), ""),
    "float_type": (N_("a number"), ""),
    "bool_type": (N_("true or false"), ""),
    "tuple_type": (N_("a list"), N_("write it as [first, second], or one `- item` a line")),
    "dict_type": (N_("a section (name: value)"), N_("write one `name: value` a line, indented")),
    "dataclass_type": (N_("a section (name: value)"), ""),
}
_UNITS: dict[str, dict[str, float]] = {  # by the end of a setting's name: how much of its unit each suffix is
    "mb": {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2},
    "request": {"m": 0.001},
    "cpus": {"m": 0.001},
    "seconds": {"s": 1, "m": 60, "h": 3600, "d": 86400},
    "minutes": {"s": 1 / 60, "m": 1, "h": 60, "d": 1440},
    "hours": {"m": 1 / 60, "h": 1, "d": 24},
    "days": {"d": 1, "w": 7},
}
_FOUND = {
    str: N_("text"),
    int: N_("a whole number"),
    float: N_("a number"),
    bool: N_("true or false"),
    list: N_("a list"),
    dict: N_("a section"),
    NoneType: N_("nothing"),
}


def validate(document: Document, kind: type[T], data: Any, at: Location = (), extra: Sequence[str] = ()) -> T | None:
    """Return the section at `at` as `kind`, None when it has a fault. `extra` names keys that the caller reads."""
    if isinstance(data, dict) and is_dataclass(kind):
        check_texts(document, kind, data, at)
    while True:
        try:  # as JSON, because pydantic is strict about scalars there and still takes a list for a tuple
            section = _validator(kind).validate_json(json.dumps(data))  # type: ignore[arg-type]  # a class is hashable
            return absolute_paths(section, document.folder)  # type: ignore[no-any-return]  # of the type that it got
        except ValidationError as invalid:
            errors = invalid.errors(include_url=False)
        if not [error for error in errors if _reread(document, data, at, error)]:
            break
    for error in errors:
        where = (*at, *error["loc"])
        hidden_by_parent = error["type"] == "missing" and where[:-1] in document.faulty  # which is none of its kind
        if where not in document.faulty and not hidden_by_parent:
            siblings = _fields_at(kind, error["loc"][:-1])
            owner = (
                _empty_section_of(kind, data, error["loc"]) if error["type"] == "unexpected_keyword_argument" else ""
            )
            more = () if error["loc"][:-1] else extra
            wrong, fix = _explain(error, where in document.variables, _type_at(kind, error["loc"]), siblings, more)
            fix = _example(error["type"], kind, error["loc"]) or fix
            if error["type"] == "unexpected_keyword_argument":
                fix = place_of(str(where[-1]), where[:-1], [*siblings, *more], document.settings) or fix
            fix = indent_below(owner) if owner else fix
            document.fault(where, wrong, fix, on_key=error["type"] == "unexpected_keyword_argument")
    return None


@cache
def _validator(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(with_config(_STRICT)(kind))


def _reread(document: Document, data: Any, at: Location, error: Mapping[str, Any]) -> bool:
    """Give a scalar its other meaning, which only its type can tell; return whether it has one."""
    why, where = error["type"], (*at, *error["loc"])
    if not error["loc"] or why not in (*_EXPECTED, "literal_error"):
        return False
    *way, name = error["loc"]
    section = reduce(getitem, way, data)
    match why, section[name]:
        case "int_type" | "float_type" | "bool_type", str() if where in document.variables:
            with suppress(yaml.YAMLError):  # then it stays a text, which is the fault
                section[name] = yaml.safe_load(document.variables[where])
            del document.variables[where]
        case "int_type" | "float_type", str() if (number := _in_unit(str(name), section[name])) is not None:
            section[name] = number
        case "string_type", int() if isinstance(name, int):  # an id, as it was written
            section[name] = document.written(where)
        case "literal_error", bool():  # YAML takes the words on and off for true and false
            section[name] = document.written(where).lower()
        case "dataclass_type" | "dict_type", None:
            section[name] = {}
        case "tuple_type", None:
            section[name] = []
        case _:
            return False
    return True


def _in_unit(name: str, text: str) -> float | None:
    """Return `2h` or `1G` in the unit that ends the setting's name; None if it is not written so."""
    units = _UNITS.get(name.rpartition("_")[2], {})
    written = re.fullmatch(r"(\d+(?:\.\d+)?) ?([A-Za-z])(?:i?[Bb]|i)?", text)
    if not written or not (factor := units.get(written[2]) or units.get(written[2].upper())):
        return None
    number = float(written[1]) * factor
    return int(number) if number.is_integer() else number


_BOUNDS = {  # by pydantic's type of error
    "greater_than_equal": ("ge", N_("must be at least {n}")),
    "greater_than": ("gt", N_("must be more than {n}")),
    "less_than_equal": ("le", N_("must be at most {n}")),
    "less_than": ("lt", N_("must be less than {n}")),
}


def _explain(
    error: Mapping[str, Any], hidden: bool, kind: Any, siblings: Mapping[str, Field[Any]], extra: Sequence[str]
) -> tuple[str, str]:
    """Return what is wrong and how to fix it. Never repeats a value that can be a secret, nor a sentence of pydantic's.

    `kind` is the type of the setting or item, `siblings` are the settings beside it.
    """
    value, name = error["input"], str(error["loc"][-1]) if error["loc"] else ""
    if (options := _options_of(kind)) and isinstance(value, list | dict):
        choices = _("one of: {names}", names=", ".join(filter(None, options)))
        return _(EXPECTED, expected=_("text"), found=describe(value)), choices
    if options:
        return _explain_choice(str(value), hidden, options, siblings[name].default if name in siblings else None)
    match error["type"]:
        case "missing":
            return _("is missing"), f"add `{name}: …`"
        case "unexpected_keyword_argument":
            return _("unknown setting"), _fix_of_name(name, [*siblings, *extra])
        case why if why in _BOUNDS:
            bound, text = _BOUNDS[why]
            fix = _("write a larger number") if why.startswith("greater") else _("write a smaller number")
            return _(text, n=f"{error['ctx'][bound]:g}"), _of_default(siblings.get(name), fix)
        case "value_error":  # from a type of ours: what is wrong, a colon, and how to fix it
            wrong, *rest = re.split(": |：", str(error["ctx"]["error"]), maxsplit=1)
            return wrong, "".join(rest)
        case "finite_number":
            return _("must be a finite number"), _of_default(siblings.get(name))
        case "json_invalid":
            return _("nested too deeply, or a character that is not valid text"), _("write it again, simpler")
        case why if why in _EXPECTED:
            expected, fix = _EXPECTED[why]
            if why == "string_type" and isinstance(value, int | float):
                fix = N_("put it in quotes")
            elif value is None:
                fix = N_("write it behind the colon, or remove the line")
            if units := _UNITS.get(name.rpartition("_")[2]) if why in ("int_type", "float_type") else None:
                fix = _("such as 90, or with a unit: {units}", units=list_items(f"2{unit}" for unit in units))
            if (
                isinstance(value, str)
                and why in ("int_type", "float_type")
                and re.fullmatch(r"-?(?:0|[1-9]\d*)(?:\.\d+)?", value)
            ):
                fix = N_("remove the quotes")
            elif (
                isinstance(value, str)
                and why == "int_type"
                and (thousands := re.fullmatch(r"([1-9]\d{0,5})[kK]", value))
            ):
                fix = _("write it out: {n}", n=f"{thousands[1]}000")
            example = siblings[name].metadata.get("example", "") if name in siblings else ""
            default = example or (siblings[name].default if name in siblings else "")
            if isinstance(default, str) and ":" in default:  # such as an address, which quotes alone do not mend
                return _(EXPECTED, expected=_(expected), found=describe(value)), _(
                    "such as `{example}`", example=f"{name}: {default}"
                )
            if not fix and why in ("int_type", "float_type", "bool_type"):
                fix = _of_default(siblings.get(name))
            return _(EXPECTED, expected=_(expected), found=describe(value)), fix and _(fix)
    return _("{value} is not a valid value", value=_("this")), _("see docs/configuration.md")


def _fix_of_name(name: str, known: Sequence[str]) -> str:
    """Return what to do about an unknown setting, where these are known."""
    if ":" in name:
        return _("put a space after the colon")
    if "options" in known and not closest_name(name, known):
        names = list_items(sorted(known))
        return _("an argument of the class belongs below `options:`; the settings here are {names}", names=names)
    return suggest(name, known) or _("see docs/configuration.md")


def _of_default(setting: Field[Any] | None, other: str = "") -> str:
    """Return what a number or a switch is without the line, as a fix; `other` where it is nothing."""
    if setting is None or not isinstance(setting.default, int | float):
        return other or _("write a number, without quotes and words")
    default = str(setting.default).lower() if isinstance(setting.default, bool) else f"{setting.default:g}"
    return _("the default is {default}", default=default)


def _empty_section_of(kind: Any, data: Any, where: Location) -> str:
    """Return the empty section beside an unknown setting that has a setting of this name; "" if there is none."""
    *way, name = where
    section = reduce(getitem, way, data)
    empty = (other for other in section if not section[other] and other != name)
    return next((str(other) for other in empty if str(name) in _fields_at(kind, (*way, other))), "")


def setting_names(kind: Any, prefix: str = "") -> Iterator[str]:
    """Yield the names of the settings and sections in a section's type, such as `sandbox.preview.listen`."""
    for name in map(written_name, get_type_hints(kind)):
        yield f"{prefix}{name}"
        inner = _type_at(kind, (name,))
        item = _type_at(kind, (name, 0)) if get_origin(inner) is tuple else None
        if is_dataclass(named := _type_at(kind, (name, "NAME")) if _is_mapping(inner) else None):
            yield from setting_names(named, f"{prefix}{name}.NAME.")
        elif is_dataclass(inner):
            yield from setting_names(inner, f"{prefix}{name}.")
        elif is_dataclass(item):
            yield from setting_names(item, f"{prefix}{name}[].")


def place_of(name: str, section: Location, siblings: Sequence[str], settings: Collection[str]) -> str:
    """Return the question whether an unknown name was meant for another section; "" if it may be a sibling misspelt.

    A section below this one is more likely than one elsewhere, and one than a list of them. Of a name that many
    sections have, none is said.
    """
    here = "".join("[]." if isinstance(part, int) else f"{part}." for part in section).replace(".[]", "[]")
    places = [each for each in settings if each.endswith(f".{name}") or each.replace(".", "_") == name]
    below = [each for each in places if each.startswith(here)] if here else []
    if not below and difflib.get_close_matches(name.lower(), [each.lower() for each in siblings], 1, 0.75):
        return ""
    found = [each for each in below or places if "[]" not in each] or below or places
    if len(found) == 1:
        return did_you_mean(found[0])
    return _("one of: {names}", names=", ".join(found)) if 1 < len(found) <= MOST_PLACES else ""


def indent_below(section: str) -> str:
    """Return how to mend a setting that stands beside the section to which it belongs."""
    return _("indent it: it belongs below `{section}:`", section=section)


def _explain_choice(value: str, hidden: bool, options: Sequence[str], default: Any) -> tuple[str, str]:
    """Return that a word is none of the options, and which there are."""
    written = _("this") if hidden or not re.fullmatch(r"[\w-]{1,20}", value) else repr(value)
    named = [option for option in options if option]
    near = "" if hidden else closest_name(value, named)
    shown = (_("{name} (default)", name=option) if option == default else option for option in named)
    choices = _("one of: {names}", names=", ".join(shown))
    fix = join_sentences(did_you_mean(near), choices.capitalize()) if near else choices
    return _("{value} is not a valid value", value=written), fix


def _type_at(kind: Any, way: Location) -> Any:
    """Return the type of the setting or item at `way`, without its "or nothing"; object where the type says nothing."""
    for part in way:
        hints = {written_name(name): hint for name, hint in get_type_hints(kind).items()} if is_dataclass(kind) else {}
        if part in hints:
            kind = hints[str(part)]
        elif _is_mapping(kind):
            kind = get_args(kind)[1]
        else:
            inner = get_args(kind)
            kind = inner[0] if inner and isinstance(part, int) else object
        if get_origin(kind) in (Union, UnionType):
            kind = next(option for option in get_args(kind) if option is not NoneType)
    return kind


def _example(why: str, kind: Any, way: Location) -> str:
    """Return how to write the section, or the list of sections, that belongs at `way`; "" if it is none."""
    if why == "dataclass_type" and (inner := _fields_at(kind, way)):
        return _("such as `{example}`", example=_written(inner))
    if why == "tuple_type" and (inner := _fields_at(kind, (*way, 0))):
        return _("one item a line: `- {example}`", example=_written(inner))
    return ""


def _written(inner: Mapping[str, Field[Any]]) -> str:
    """Return two settings as one writes them: first those that have no value of their own."""
    names = sorted(inner, key=lambda name: inner[name].default not in (MISSING, "", None))
    return f"{{{', '.join(f'{name}: …' for name in names[:2])}}}"


def _fields_at(kind: Any, way: Location) -> dict[str, Field[Any]]:
    found = _type_at(kind, way)
    return {written_name(field.name): field for field in fields(found)} if is_dataclass(found) else {}


def _is_mapping(kind: Any) -> bool:
    """Return whether a type is that of a section whose names the operator chooses."""
    return get_origin(kind) is Mapping


def _options_of(kind: Any) -> list[str]:
    """Return the words that a type allows; none if it allows more than words."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [str(option.value) for option in kind]
    return [str(option) for option in get_args(kind)] if get_origin(kind) is Literal else []


def absolute_paths(section: Any, folder: Path) -> Any:
    """Return the dataclass with its relative paths, the default ones too, as paths below `folder`."""
    changes: dict[str, Any] = {}
    for field in fields(section):
        value = getattr(section, field.name)
        if isinstance(value, tuple):
            is_path = field.metadata.get("path")
            changes[field.name] = tuple(
                absolute_paths(v, folder) if is_dataclass(v) else str(folder / os.path.expanduser(v)) if is_path else v
                for v in value
            )
        elif is_dataclass(value):
            changes[field.name] = absolute_paths(value, folder)
        elif value and (isinstance(value, Path) or field.metadata.get("path") or field.name.endswith("_file")):
            changes[field.name] = type(value)(folder / os.path.expanduser(value))
    return replace(section, **changes)


def describe(value: object) -> str:
    """Return what kind of value this is, without repeating it."""
    return _(_FOUND.get(type(value), N_("something else")))
