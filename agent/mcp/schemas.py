"""Reduce the schema of a tool's arguments to what every provider takes.

A schema goes with every request, so one that a provider refuses would stop every turn. What is left are plain types,
properties, items, enums of texts, choices and bounds; other rules are told in the description, and the server of the
tool checks its arguments anyway. Rules: platform.openai.com (function calling), docs.claude.com (tool use),
ai.google.dev (Schema), docs.mistral.ai, platform.moonshot.ai (tool use).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from agent.mcp.bounds import MAX_ARGUMENT_CHARS, MAX_SCHEMA_CHARS, clean_text

Schema = dict[str, Any]

MAX_LEVELS = 12
MAX_NODES = 2000  # of one schema with its references resolved
MAX_NOTE_CHARS = 120
TYPES = ("string", "number", "integer", "boolean", "object", "array")
OTHER_TYPES = {"str": "string", "text": "string", "int": "integer", "float": "number", "double": "number"} | {
    "bool": "boolean",
    "dict": "object",
    "map": "object",
    "list": "array",
}
BOUNDS = dict.fromkeys(("number", "integer"), ("minimum", "maximum")) | {"array": ("minItems", "maxItems")}
NOTED = (  # rules that not every provider takes
    *("const", "default", "examples", "format", "pattern", "minLength", "maxLength", "multipleOf"),
    *("exclusiveMinimum", "exclusiveMaximum", "uniqueItems", "not"),
)
CHOICES = ("anyOf", "oneOf")
ANY: tuple[str, ...] = ("string", "number", "boolean", "object", "array")
_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


def common_schema(schema: object) -> Schema | None:
    """Return the schema as every provider takes it; None if it is too large, or needs a name that one refuses."""
    root = schema if isinstance(schema, Mapping) else {}
    try:
        made = _Reader(root).top()
    except _Unusable:
        return None
    return made if len(orjson.dumps(made)) <= MAX_SCHEMA_CHARS else None


class _Unusable(Exception):
    """No provider could take the schema."""


class _Reader:
    """Reads one schema. Raises _Unusable."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._nodes = 0  # the parts that were read
        self._open: list[str] = []  # the references that lead here

    def top(self) -> Schema:
        """Return the top: an object without choices. What one of its choices has is optional."""
        return self._object(self._whole(self._root, 0), 0)

    def _count(self) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise _Unusable

    def _schema(self, given: Any, level: int) -> Schema:
        """Return any schema below the top."""
        self._count()
        if not isinstance(given, Mapping) or level > MAX_LEVELS:
            return _any()
        reference = str(given.get("$ref", ""))
        if reference in self._open:  # it contains itself
            return {"type": "object", "properties": {}}
        self._open.append(reference or f"{level}")
        try:
            return self._read(self._whole(given, level), level)
        finally:
            self._open.pop()

    def _read(self, given: Mapping[str, Any], level: int) -> Schema:
        told = {"description": text} if (text := _description(given)) else {}
        choices = [each for word in CHOICES for each in _list(given.get(word))]
        kinds = _types(given)
        if choices and not (kinds and not self._tell_apart(choices)):
            return _choice([self._schema(each, level + 1) for each in choices if not _is_null(each)], told)
        if len(kinds) != 1:
            return _choice([self._typed(given, kind, level) for kind in kinds or ANY], told)
        return {**self._typed(given, kinds[0], level), **told}

    @staticmethod
    def _tell_apart(choices: Sequence[Any]) -> bool:
        return any(isinstance(each, Mapping) and each.keys() & {"type", "$ref", "enum", "const"} for each in choices)

    def _typed(self, given: Mapping[str, Any], kind: str, level: int) -> Schema:
        if kind == "object":
            return self._object(given, level)
        made: Schema = {"type": kind}
        if kind == "array":
            made["items"] = self._items(given, level)
        enum = [each for each in _enum(given) if each and isinstance(each, str)]
        if kind == "string" and enum:
            made["enum"] = list(dict.fromkeys(enum))
        bounds = {name: given.get(name) for name in BOUNDS.get(kind, ())}
        return made | {name: value for name, value in bounds.items() if _is_number(value)}

    def _items(self, given: Mapping[str, Any], level: int) -> Schema:
        items = given.get("prefixItems") or given.get("items")
        if isinstance(items, list):  # of a tuple
            return _choice([self._schema(each, level + 1) for each in items], {}) if items else {"type": "string"}
        return self._schema(items, level + 1) if isinstance(items, Mapping) else {"type": "string"}

    def _object(self, given: Mapping[str, Any], level: int) -> Schema:
        properties, required = _mapping(given.get("properties")), _list(given.get("required"))
        required += [name for name, each in properties.items() if _mapping(each).get("required") is True]
        made: Schema = {"type": "object", "properties": {}}
        for name, each in properties.items():
            if _KEY.fullmatch(name):
                made["properties"][name] = self._schema(each, level + 1)
            elif name in required:
                raise _Unusable
        needed = [name for name in dict.fromkeys(map(str, required)) if name in made["properties"]]
        return {**made, **({"required": needed} if needed else {})}

    def _whole(self, given: Mapping[str, Any], level: int) -> Mapping[str, Any]:
        """Return a schema with its reference and its `allOf` taken in; at the top also what its choices have."""
        made = dict(given)
        seen: set[str] = set()
        while isinstance(reference := made.pop("$ref", None), str) and reference not in seen:
            seen.add(reference)
            made = {**self._target(reference), **made}
        for each in _list(made.pop("allOf", None)):
            made = self._merged(made, each, level, _list)
        for word in CHOICES if level == 0 else ():
            for each in _list(made.pop(word, None)):
                made = self._merged(made, each, level, lambda required: [])
        return made

    def _merged(self, made: Schema, given: Any, level: int, required_of: Any) -> Schema:
        self._count()
        if level > MAX_LEVELS:
            return made
        other = self._whole(_mapping(given), level + 1)
        both = {**other, **made}
        if "properties" in other:
            both["properties"] = {**_mapping(other["properties"]), **_mapping(made.get("properties"))}
        both["required"] = [*_list(made.get("required")), *required_of(other.get("required"))]
        return both

    def _target(self, reference: str) -> Mapping[str, Any]:
        """Return what a reference within the schema points at, an empty schema if it leads nowhere."""
        self._count()
        node: Any = self._root
        for part in reference.removeprefix("#").strip("/").split("/") if reference.startswith("#") else ("",):
            if part:
                node = _mapping(node).get(part.replace("~1", "/").replace("~0", "~"))
        return _mapping(node) if reference != "#" and node is not self._root else {"type": "object"}


def _any() -> Schema:
    filled: dict[str, Schema] = {"object": {"properties": {}}, "array": {"items": {"type": "string"}}}
    return {"anyOf": [{"type": kind, **filled.get(kind, {})} for kind in ANY]}


def _choice(choices: Sequence[Schema], told: Schema) -> Schema:
    """Return one of the choices; only a description may stand at its side."""
    different = list({orjson.dumps(each): each for each in choices}.values())
    flat = [inner for each in different for inner in each.get("anyOf", [each])]
    if not flat:
        return {**_any(), **told}
    return {**flat[0], **told} if len(flat) == 1 else {"anyOf": flat, **told}


def _types(given: Mapping[str, Any]) -> list[str]:
    """Return the types that the schema names or shows, [] if any will do."""
    named = given.get("type")
    words = [str(each).lower() for each in (named if isinstance(named, list) else [named]) if each]
    types = [OTHER_TYPES.get(word, word) for word in words]
    if found := [kind for kind in dict.fromkeys(types) if kind in TYPES]:
        return found
    if "properties" in given or "additionalProperties" in given:
        return ["object"]
    if "items" in given or "prefixItems" in given:
        return ["array"]
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return list(dict.fromkeys(names[type(each)] for each in _enum(given) if type(each) in names))


def _enum(given: Mapping[str, Any]) -> list[Any]:
    return _list(given.get("enum")) or ([given["const"]] if "const" in given else [])


def _description(given: Mapping[str, Any]) -> str:
    """Return the description with the rules that not every provider takes."""
    rules = {name: given[name] for name in NOTED if name in given}
    others = [each for each in _enum(given) if each is not None and not isinstance(each, str)]
    if others:
        rules = {"one of": others, **{name: rule for name, rule in rules.items() if name != "const"}}
    elif "const" in rules:
        del rules["const"]  # it is the only one of the enum
    told = "; ".join(f"{name}: {_shown(rule)}" for name, rule in rules.items())
    text = clean_text(given.get("description") or given.get("title"), MAX_ARGUMENT_CHARS)
    note = f"({clean_text(told, MAX_NOTE_CHARS)})" if told else ""
    return f"{text} {note}".strip()


def _shown(rule: Any) -> str:
    try:
        return orjson.dumps(rule).decode()
    except TypeError:
        return str(rule)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_null(given: Any) -> bool:
    return isinstance(given, Mapping) and (given.get("type") == "null" or _enum(given) == [None])


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    is_list = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    return list(value) if is_list else []
