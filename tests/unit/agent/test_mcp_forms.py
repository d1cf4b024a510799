"""Forms of MCP servers that lie: whatever a server writes as the schema of a field, a person gets a short question."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.mcp.elicitation import Field, MisfitAnswer, read_form, usable_schema

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner))
NAMES = ("type", "title", "description", "minimum", "maximum", "minLength", "maxLength", "enum", "enumNames")
KINDS = st.sampled_from(["string", "number", "integer", "boolean", "array", "object", "null"])
CHOICES = st.lists(st.fixed_dictionaries({"const": JSON}, optional={"title": JSON}) | JSON, max_size=3)
SCHEMAS = st.recursive(
    st.fixed_dictionaries(
        {}, optional=dict.fromkeys(NAMES, JSON) | {"type": KINDS | JSON, "oneOf": CHOICES | JSON, "anyOf": CHOICES}
    ),
    lambda inner: st.fixed_dictionaries({"type": KINDS | JSON, "items": inner | JSON}),
    max_leaves=3,
)
ANSWERS = st.sampled_from(["blue", "7", "-1", "1e400", "nan", "yes", "1, 2", "9" * 4000, "", "Skip", "x" * 3000])


@given(schema=SCHEMAS | JSON, words=ANSWERS, required=st.booleans())
def test_any_schema_gives_a_short_question_whose_answer_fits_or_does_not(
    schema: Any, words: str, required: bool
) -> None:
    field = Field.of("colour", schema, required)
    assert len(field.line(1000)) <= 1100
    assert len(field.expected) <= 600
    assert "\n" not in field.line(1000)
    with contextlib.suppress(MisfitAnswer):
        field.read(words)
    read_form([field, Field.of("other", schema, required)], words)


def test_a_field_with_many_choices_is_one_message() -> None:
    field = Field.of("town", {"enum": [f"town {number} of the world" for number in range(20_000)]}, True)
    assert len(field.expected) <= 600
    assert field.read("town 7 of the world") == "town 7 of the world"
    with pytest.raises(MisfitAnswer):
        field.read("Atlantis")


def test_what_is_right_of_a_schema_stays() -> None:
    schema = {"type": "integer", "minimum": 1, "maximum": "many", "enum": {"a": 1}, "oneOf": [{"const": [1]}, 3]}
    assert usable_schema(schema) == {"type": "integer", "minimum": 1}
    choices = {"type": "array", "items": {"anyOf": [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}]}}
    assert Field.of("colours", choices, True).read("blue, Red") == ["b", "r"]
