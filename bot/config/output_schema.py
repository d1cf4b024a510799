"""Check that the `output_schema` of a kind of sub-agent is a JSON schema, as far as answers are compared with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agent.near_misses import suggest
from bot.config.decoder import EXPECTED, describe
from bot.config.document import Document
from bot.config.excerpt import Location
from bot.config.schema import FileConfig
from catalogue import _

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
