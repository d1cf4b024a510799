"""Read what a person sees of a message besides its text: cards, embeds, fields, buttons with addresses.

A message that could not be parsed becomes a placeholder with its author: silence is the worst answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from agent.messages import Author, Kind, Message, Origin, Thread, Unreadable
from catalogue import N_

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


UNKNOWN_KIND = N_("messages of this kind")


def make_unread(thread: Thread, key: str, id: Any, author: Any, *, private: bool) -> Message:
    """Return the message of unsupported content that an unreadable event was. Raises ValueError without its ids."""
    if not all(isinstance(each, str | int) and each for each in (id, author)) or thread.chat in ("", "None"):
        raise ValueError("an event without ids")
    person = Author(str(author), str(author))
    return Message(
        thread,
        f"{key}:unread",
        str(id),
        person,
        UNKNOWN_KIND,
        time.time(),
        Kind.UNSUPPORTED,
        private=private,
        origin=Origin.PERSON,
    )


def with_author(unreadable: Unreadable, find: Callable[[], Message | None]) -> Unreadable:
    """Return an unreadable event with the message that `find` makes of its ids, if it has them and is for the bot."""
    try:
        return replace(unreadable, said=find())
    except (KeyError, TypeError, ValueError, AttributeError):  # not even the ids have a known shape
        return unreadable
