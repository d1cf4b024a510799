"""Keep the ids that clients give their messages in the keys of these messages."""

from __future__ import annotations

import re
from hashlib import sha256

from agent.messages import Thread

MESSAGE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_STREAMED = "web:s:"
_KEY = re.compile(r"web:(?:s:)?[0-9a-f]{16}:([A-Za-z0-9_-]{1,64})")


def make_key(thread: Thread, id: str, *, streamed: bool) -> str:
    """Return the key of a message with this id of its client: sent again, it is the same message.

    `streamed`: it came by the protocol of thread streams.
    """
    return f"{_STREAMED if streamed else 'web:'}{sha256(f'{thread}'.encode()).hexdigest()[:16]}:{id}"


def message_id(key: str) -> str:
    """Return the id that a client gave a message, by the key of the message; the key where it gave none."""
    found = _KEY.fullmatch(key)
    return found[1] if found else key


def is_streamed(key: str) -> bool:
    """Return whether a message came by the protocol of thread streams."""
    return key.startswith(_STREAMED)
