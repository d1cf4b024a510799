"""Read what a person sees of a message beside its text: cards, embeds, fields, buttons with addresses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

MAX_VISIBLE_CHARS = 8000  # of one message: longer than any alert, and than what platforms allow for a text


def join_visible(text: str, lines: Iterable[str]) -> str:
    """Return the text and the lines that it does not have already, up to `MAX_VISIBLE_CHARS`.

    Senders repeat the text of a card as the message's text, for notifications. Takes linear time: a line is compared
    with whole lines, and the first one with the whole text.
    """
    found = [text.strip()] if text.strip() else []
    known = {line.strip() for line in text.splitlines()} | {text.strip()}
    room = MAX_VISIBLE_CHARS - len(text)
    for line in lines:
        line = line.strip()
        if not line or line in known:
            continue
        if len(line) > room:
            found.append(f"{line[: max(0, room)]}…")
            break
        known.add(line)
        found.append(line)
        room -= len(line) + 1
    return "\n".join(found)


def text_of(value: object) -> str:
    """Return a text; anything else counts as none."""
    return value if isinstance(value, str) else ""


def dicts_in(value: object) -> Iterator[dict[str, Any]]:
    """Yield the objects of a list; anything else counts as none."""
    return (each for each in value if isinstance(each, dict)) if isinstance(value, list) else iter(())


def dict_of(value: object) -> dict[str, Any]:
    """Return an object; anything else counts as an empty one."""
    return value if isinstance(value, dict) else {}


def labelled(label: object, value: object) -> str:
    """Return "label: value", or the one that is there. Anything but text counts as nothing."""
    parts = [part.strip() for part in (label, value) if isinstance(part, str) and part.strip()]
    return ": ".join(parts)


def linked(text: object, url: object) -> str:
    """Return "text (address)", or the one that is there."""
    shown, address = (part.strip() if isinstance(part, str) else "" for part in (text, url))
    return f"{shown} ({address})" if shown and address and shown != address else shown or address
