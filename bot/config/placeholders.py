"""Find the placeholders of samples, such as `xoxb-...`, where a token or key belongs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from bot.config.document import Document
from bot.config.excerpt import SECRET_NAME, Location
from catalogue import _

_PREFIX = r"(?i:sk|xox[a-z]|xapp|bearer|bot|ghp)[-_\s](?i:proj-|ant-|1-)?"  # of keys that are shown in samples
_STANDS_FOR_ONE = r"(?i:x{3,}|\.{3,}|…|\*{3,}|your[-_\s].{0,80}|replace[-_\s]?me|change[-_\s]?me|todo|paste.{0,80})"
_PLACEHOLDER = re.compile(rf"(?:{_PREFIX})?(?:{_STANDS_FOR_ONE})|<[^<>]{{0,100}}>")


def is_placeholder(value: object) -> bool:
    """Return whether a text only shows where a token or key belongs."""
    return isinstance(value, str) and len(value) <= 120 and _PLACEHOLDER.fullmatch(value.strip()) is not None


def describe_placeholder() -> tuple[str, str]:
    """Return what is wrong, and the fix."""
    return _("is a placeholder of a sample"), _("put the real one in its place, or remove the line")


def check_placeholders(document: Document, sections: dict[str, Any]) -> None:
    """Note each secret that is a placeholder. A model's server elsewhere may take any key."""
    for at in _placeholders(sections, ()):
        if at not in document.faulty:
            document.fault(at, *describe_placeholder())


def _placeholders(value: Any, at: Location) -> Iterator[Location]:
    if isinstance(value, dict):
        free = at[:1] == ("models",) and value.get("base_url")
        for name, inner in value.items():
            if not (free and name == "api_key"):
                yield from _placeholders(inner, (*at, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _placeholders(inner, (*at, number))
    elif at and isinstance(at[-1], str) and SECRET_NAME.search(at[-1]) and is_placeholder(value):
        yield at
