"""Bound what a server sends: its messages, lists, descriptions and schemas."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

from agent.foreign_text import printable_text
from catalogue import N_, LazyText

# The worst message within both takes 36 ms (docs/decisions/0072-messages-of-mcp-servers.md).
MAX_MESSAGE_BYTES = 4 << 20
MAX_VALUES = 25_000  # of a message: marks of its structure outside of strings
SLICE_BYTES = 1 << 14  # what is looked at between two turns of the event loop
LINES_PER_SECOND = 20_000.0
BURST_LINES = 200
BYTES_PER_LINE = 1 << 13  # a slice counts as so many lines
MAX_REQUESTS = 50  # of a server, without an answer
MAX_STRANGE_BYTES = 1 << 20  # of stdout in lines that are no messages, since the last message
LINE_COST_BYTES = 64  # of each such line, however short
MAX_LOGGED_LINES = 20
SESSION_UNKNOWN = -32001  # JSON-RPC code of the TypeScript SDK's servers
_LINES = re.compile(rb"[\r\n]++")
_MARKS = (b",", b":", b"[", b"{")

TOO_LARGE = LazyText(N_("it sent a message of more than {n} MB"), n=MAX_MESSAGE_BYTES >> 20)
TOO_MANY_VALUES = LazyText(N_("it sent a message with more than {n} values"), n=MAX_VALUES)
TOO_MANY_REQUESTS = LazyText(N_("it sent more than {n} requests at once"), n=MAX_REQUESTS)
TOO_MUCH_NOISE = LazyText(N_("it wrote more than {n} MB that is no message"), n=MAX_STRANGE_BYTES >> 20)
COMPRESSED = LazyText(N_("it sent a compressed message, which nobody asked for"))


class ValueCount:
    """Counts the values of JSON text that comes in pieces. A raw line break ends a string: JSON has none in strings."""

    def __init__(self) -> None:
        self.values = 0
        self._inside = False  # a string
        self._escape = b""  # a backslash whose character comes with the next piece

    def add(self, piece: bytes) -> None:
        """Count the next piece."""
        piece = self._escape + piece
        backslashes = len(piece) - len(piece.rstrip(b"\\"))
        self._escape = b"\\" if backslashes % 2 else b""
        piece = piece[: len(piece) - backslashes % 2].replace(b"\\\\", b"").replace(b'\\"', b"")
        lines = _LINES.split(piece)
        for number, line in enumerate(lines):
            parts = line.split(b'"')
            self.values += sum(part.count(mark) for part in parts[self._inside :: 2] for mark in _MARKS)
            self._inside = (len(parts) + self._inside) % 2 == 0 and number == len(lines) - 1


class Pace:
    """Lets the event loop work on others while a server floods it."""

    def __init__(self) -> None:
        self._left = float(BURST_LINES)
        self._at = 0.0

    async def take(self, lines: float) -> None:
        """Wait until so many lines may be read."""
        now = asyncio.get_running_loop().time()
        self._left = min(BURST_LINES, self._left + (now - self._at) * LINES_PER_SECOND) - lines
        self._at = now
        if self._left < -BURST_LINES / 2:
            await asyncio.sleep(-self._left / LINES_PER_SECOND)


async def excess(message: bytes, pace: Pace) -> LazyText | None:
    """Return why a message is too large to be parsed."""
    if len(message) > MAX_MESSAGE_BYTES:
        return TOO_LARGE
    if len(message) <= MAX_VALUES:
        return None
    count = ValueCount()
    for start in range(0, len(message), SLICE_BYTES):
        count.add(message[start : start + SLICE_BYTES])
        if count.values > MAX_VALUES:
            return TOO_MANY_VALUES
        await pace.take(SLICE_BYTES / BYTES_PER_LINE)
    return None


MAX_DESCRIPTION_CHARS = 1000
MAX_ARGUMENT_CHARS = 300  # of the description of an argument
MAX_SCHEMA_CHARS = 16_000


def clean_text(text: object, limit: int) -> str:
    """Return the printable part of a text on at most `limit` characters."""
    lines = printable_text(str(text or "")).strip()
    return lines if len(lines) <= limit else f"{lines[: limit - 1]}…"


MAX_PAGES = 20  # of one list


async def read_pages(ask: Callable[[str | None], Awaitable[Any]], field: str, most: int | None = None) -> list[Any]:
    """Return what the pages of a list have in a field, up to the page with which there are `most`. `ask` returns the
    page of a cursor."""
    found: list[Any] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await ask(cursor)
        found += getattr(page, field)
        cursor = page.next_cursor
        if not cursor or (most is not None and len(found) >= most):
            break
    return found
