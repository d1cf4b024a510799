"""Clean the text and tool arguments of model answers once, on receipt.

JSON can contain lone surrogates (`"\\ud83d"`), which UTF-8 cannot encode, and integers that neither the checkpoint nor
SQL accepts. Tool arguments are JSON within JSON, so the parsers in between do not notice them.
"""

from __future__ import annotations

from typing import Any, TypeVar

from langchain_core.messages import AIMessage

T = TypeVar("T")

MAX_LEVELS = 64  # more than arguments of tools may have
CLEANED_FIELDS = ("content", "tool_calls", "invalid_tool_calls", "additional_kwargs", "response_metadata")


def clean_message(message: AIMessage) -> AIMessage:
    """Clean all model output in the message, in place, and return it."""
    for name in CLEANED_FIELDS:
        setattr(message, name, clean_json(getattr(message, name)))
    return message


def clean_json(value: T, levels: int = MAX_LEVELS) -> T:
    """Return the JSON value without lone surrogates; integers over 64 bits become text, which tools parse.

    What is nested more than `levels` deep becomes null.
    """
    cleaned: Any = value
    match cleaned:
        case str():
            cleaned = _join_surrogates(cleaned)
        case dict() | list() if not levels:
            cleaned = None
        case dict():
            cleaned = {clean_json(key): clean_json(item, levels - 1) for key, item in cleaned.items()}
        case list():
            cleaned = [clean_json(item, levels - 1) for item in cleaned]
        case int() if not -(1 << 63) <= cleaned < 1 << 63:
            cleaned = str(cleaned)
    return cleaned  # type: ignore[no-any-return]  # the same type, except for those integers


def _join_surrogates(text: str) -> str:
    """Join surrogate pairs; replace lone surrogates by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
