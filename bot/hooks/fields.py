"""Read single fields of foreign JSON, whatever is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from yarl import URL

Body: TypeAlias = Mapping[str, Any]
MAX_FIELD_CHARS, MAX_LINK_CHARS = 1_000, 2_000


def at(content: object, *way: str) -> Any:
    """Return the value at a way of names and numbers; None where there is none."""
    for name in way:
        if isinstance(content, Mapping):
            content = content.get(name)
        elif isinstance(content, list) and name.isascii() and name.isdecimal() and len(name) <= 6:
            content = content[int(name)] if int(name) < len(content) else None
        else:
            return None
    return content


def text_at(content: object, *way: str, most: int = MAX_FIELD_CHARS) -> str:
    """Return a text or number at a way, cut; "" where there is none."""
    value = at(content, *way)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    return str(value)[:most].encode("utf-8", "replace").decode().replace("\0", "")  # PostgreSQL takes no NUL


def link_at(content: object, *way: str) -> str:
    """Return a web address at a way; "" for anything else, such as `javascript:`."""
    value = at(content, *way)
    if not isinstance(value, str) or len(value) > MAX_LINK_CHARS:
        return ""
    try:
        url = URL(value)
    except ValueError:
        return ""
    usable = url.scheme in ("http", "https") and url.host and not url.user
    return str(url).replace("(", "%28").replace(")", "%29") if usable else ""
