"""Any schema of a tool becomes one that every provider takes, or the tool is left out."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.mcp.schemas import common_schema

S = {"type": "string"}
EMPTY = {"type": "object", "properties": {}}


def faults(schema: Any, at: str = "") -> Iterator[str]:
    """Yield what one of OpenAI, Anthropic, Gemini, Mistral or Moonshot refuses in a schema."""
    if not isinstance(schema, dict):
        yield f"{at}: no object"
        return
    known = {"type", "description", "properties", "required", "items", "enum", "anyOf"}
    known |= {"minimum", "maximum", "minItems", "maxItems"}
    if more := schema.keys() - known:
        yield f"{at}: {more}"
    if "anyOf" in schema:
        if schema.keys() - {"anyOf", "description"} or len(schema["anyOf"]) < 2:
            yield f"{at}: something beside the choices, or no choice"
        for number, each in enumerate(schema["anyOf"]):
            yield from faults(each, f"{at}/{number}")
        return
    if schema.get("type") not in ("string", "number", "integer", "boolean", "object", "array"):
        yield f"{at}: type {schema.get('type')}"
    if schema.get("type") == "array":
        yield from faults(schema.get("items"), f"{at}/items")
    if "enum" in schema and not (schema["enum"] and all(each and isinstance(each, str) for each in schema["enum"])):
        yield f"{at}: enum {schema['enum']}"
    for name, each in schema.get("properties", {}).items():
        if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", name):
            yield f"{at}: name {name}"
        yield from faults(each, f"{at}/{name}")
    if schema.get("type") == "object" and "properties" not in schema:
        yield f"{at}: no properties"
    if set(schema.get("required", ())) - schema.get("properties", {}).keys():
        yield f"{at}: required"


def value() -> st.SearchStrategy[Any]:
    """Any JSON, mostly made of the words of schemas, in their places and in wrong ones."""
    words = "type properties items required enum anyOf oneOf allOf $ref $defs const not default description minimum"
    word = st.sampled_from([*words.split(), "maxItems", "pattern", "additionalProperties", "prefixItems", "a", "b[c]"])
    leaf = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.sampled_from(["string", "object", "array", "any", "null", "#/$defs/a", "#", "#/nowhere", "https://x/y", ""]),
    )
    return st.recursive(leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(word, inner, max_size=4))


@given(value())
def test_any_schema_becomes_one_that_all_providers_take(given_schema: Any) -> None:
    made = common_schema(given_schema)
    if made is not None:
        assert made["type"] == "object"
        assert "anyOf" not in made
        assert list(faults(made)) == []
        json.dumps(made, allow_nan=False)


KEPT: dict[str, tuple[Any, Any]] = {
    "plain": ({"a": S}, S),
    "a reference": ({"a": {"$ref": "#/$defs/A", "description": "x"}}, {**S, "description": "x"}),
    "a reference of draft 7": ({"a": {"$ref": "#/definitions/B"}}, {"type": "integer", "minimum": 1}),
    "a reference to nowhere": ({"a": {"$ref": "#/$defs/C", "type": "string"}}, S),
    "or nothing": ({"a": {"anyOf": [S, {"type": "null"}], "default": None}}, {**S, "description": "(default: null)"}),
    "two types": ({"a": {"type": ["string", "null"]}}, S),
    "one of": ({"a": {"oneOf": [S, {"type": "integer"}]}}, {"anyOf": [S, {"type": "integer"}]}),
    "no items": ({"a": {"type": "array"}}, {"type": "array", "items": S}),
    "a tuple": (
        {"a": {"items": [S, {"type": "number"}]}},
        {"type": "array", "items": {"anyOf": [S, {"type": "number"}]}},
    ),
    "numbers": ({"a": {"enum": [1, 2]}}, {"type": "integer", "description": "(one of: [1,2])"}),
    "a constant": ({"a": {"const": "x"}}, {**S, "enum": ["x"]}),
    "an empty choice": ({"a": {"type": "string", "enum": ["", "x"]}}, {**S, "enum": ["x"]}),
    "a pattern": ({"a": {**S, "pattern": "(?<!x)y"}}, {**S, "description": '(pattern: "(?<!x)y")'}),
    "parts": (
        {"a": {"allOf": [{"properties": {"b": S}, "required": ["b"]}, {"properties": {"c": S}}]}},
        {"type": "object", "properties": {"b": S, "c": S}, "required": ["b"]},
    ),
    "a value that is none": ({"a": {"type": "number", "minimum": math.nan}}, {"type": "number"}),
    "a word of Python": ({"a": {"type": "int"}}, {"type": "integer"}),
    "itself": ({"a": {"$ref": "#/$defs/N"}}, {"type": "object", "properties": {"next": EMPTY}}),
}
DEFS = {
    "$defs": {"A": S, "N": {"type": "object", "properties": {"next": {"$ref": "#/$defs/N"}}}},
    "definitions": {"B": {"type": "integer", "minimum": 1}},
}


@pytest.mark.parametrize("name", KEPT)
def test_what_a_schema_says_is_kept(name: str) -> None:
    properties, wanted = KEPT[name]
    made = common_schema({"type": "object", "properties": properties, "required": ["a", "b"], **DEFS})
    assert made == {"type": "object", "properties": {"a": wanted}, "required": ["a"]}


def test_choices_at_the_top_become_one_object_and_what_only_one_has_is_optional() -> None:
    one = {"type": "object", "properties": {"a": S}, "required": ["a"]}
    two = {"type": "object", "properties": {"b": S}, "required": ["b"]}
    assert common_schema({"oneOf": [one, two]}) == {"type": "object", "properties": {"a": S, "b": S}}


def test_a_tool_that_no_provider_could_take_is_left_out_and_work_is_bounded() -> None:
    assert common_schema({"properties": {"filter[name]": S}, "required": ["filter[name]"]}) is None
    assert common_schema({"properties": {"filter[name]": S, "b": S}}) == {"type": "object", "properties": {"b": S}}
    assert common_schema({"properties": {"a": {"enum": ["x" * 20_000]}}}) is None
    defs = {f"d{n}": {"properties": {f"p{m}": {"$ref": f"#/$defs/d{n + 1}"} for m in range(10)}} for n in range(10)}
    assert common_schema({"$ref": "#/$defs/d0", "$defs": defs}) is None
    long = common_schema({"properties": {"a": {"type": "string", "description": "x" * 999}}})
    assert long is not None
    assert len(long["properties"]["a"]["description"]) == 300
