"""Bound the descriptions and schemas of tools, which are words of the servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

MAX_DESCRIPTION_CHARS = 1000
MAX_ARGUMENT_CHARS = 300  # of the description of an argument
MAX_SCHEMA_CHARS = 16_000
MAX_DEPTH = 12


def clean_text(text: object, limit: int) -> str:
    """Return the printable part of a text on at most `limit` characters."""
    lines = "".join(each for each in str(text or "") if each.isprintable() or each == "\n").strip()
    return lines if len(lines) <= limit else f"{lines[: limit - 1]}…"


def clean_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the schema of a tool's arguments with short descriptions; None if it is too large."""
    cleaned = _clean(schema, 0)
    cleaned.pop("$schema", None)
    cleaned = {"type": "object", "properties": {}, **cleaned}  # OpenAI refuses an object without properties
    return cleaned if len(orjson.dumps(cleaned, default=str)) <= MAX_SCHEMA_CHARS else None


def _clean(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        return {}
    if isinstance(value, Mapping):
        return {
            key: clean_text(each, MAX_ARGUMENT_CHARS)
            if key == "description" and isinstance(each, str)
            else _clean(each, depth + 1)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [_clean(each, depth + 1) for each in value]
    return value
