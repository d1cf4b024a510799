"""Tell who wrote a message that could not be parsed: silence is the worst answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from agent.messages import Author, Kind, Message, Origin, Thread, Unreadable
from catalogue import N_

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
