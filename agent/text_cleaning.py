"""Clean text and arguments of model answers once, where they come in.

JSON may spell what no UTF-8 text can hold (half a surrogate pair: `"\\ud83d"`) and integers that neither the checkpoint
nor SQL takes. Tool arguments are JSON inside JSON, so every parser in between lets them pass.
"""

from __future__ import annotations

from typing import Any, TypeVar

from langchain_core.messages import AIMessage

T = TypeVar("T")

CLEANED_FIELDS = ("content", "tool_calls", "invalid_tool_calls", "additional_kwargs", "response_metadata")


def clean_message(message: AIMessage) -> AIMessage:
    """The message itself, with everything the model wrote in it cleaned."""
    for name in CLEANED_FIELDS:
        setattr(message, name, clean_json(getattr(message, name)))
    return message


def clean_json(value: T) -> T:
    """The same JSON value with whole characters; integers over 64 bits become text, which tools read as a number."""
    cleaned: Any = value
    match cleaned:
        case str():
            cleaned = _join_surrogates(cleaned)
        case dict():
            cleaned = {clean_json(key): clean_json(item) for key, item in cleaned.items()}
        case list():
            cleaned = [clean_json(item) for item in cleaned]
        case int() if not -(1 << 63) <= cleaned < 1 << 63:
            cleaned = str(cleaned)
    return cleaned  # type: ignore[no-any-return]  # of the same type, but for those integers


def _join_surrogates(text: str) -> str:
    """Halves that belong together become one character, a single half becomes U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
