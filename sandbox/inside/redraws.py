"""Fold what a command draws again and again: of a line, its first and its last draw remain.

A progress bar that is redrawn 4,000 times would fill the model's context, and the middle that is left out then may be
an error between two bars. Colours and movements of the cursor are dropped, and backspaces delete. Standard library
only, Python 3.9+.
"""

from __future__ import annotations

import re

MAX_HELD_BYTES = 1 << 16  # of a draw that may be replaced
MAX_ESCAPE_BYTES = 256  # of a sequence that is cut off at the end of a piece
# ECMA-48: control sequences, strings such as titles of windows, and functions of two bytes
_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[@-OQ-WYZ\\=>78])")


class RedrawFolder:
    """Folds a stream of output that comes in pieces. What cannot change any more is returned at once."""

    def __init__(self) -> None:
        self.tail = b""  # the end of a piece that the next one may complete: an escape, a carriage return
        self.begun = False  # something of the line was returned
        self.draw: bytes | None = None  # the latest draw after a carriage return

    def fold(self, data: bytes) -> bytes:
        """Return what a further piece shows."""
        if not self.tail and self.draw is None and not any(mark in data for mark in (b"\r", b"\b", b"\x1b")):
            self.begun = not data.endswith(b"\n") if data else self.begun
            return data
        data, self.tail = self.tail + data, b""
        data = _ESCAPES.sub(b"", data)
        escape = data.rfind(b"\x1b")
        if escape >= max(0, len(data) - MAX_ESCAPE_BYTES):
            data, self.tail = data[:escape], data[escape:]
        if data.endswith(b"\r"):
            data, self.tail = data[:-1], b"\r" + self.tail
        shown = bytearray()
        *lines, rest = data.split(b"\n")
        for line in lines:
            returns = line.endswith(b"\r")
            self._draw(line[:-1] if returns else line, shown)
            self._end_line(shown)
            shown += b"\r\n" if returns else b"\n"
            self.begun = False
        self._draw(rest, shown)
        if self.draw is not None and len(self.draw) > MAX_HELD_BYTES:
            self._end_line(shown)
        return bytes(shown)

    def flush(self) -> bytes:
        """Return what is left at the end."""
        shown = bytearray()
        tail, self.tail = self.tail, b""
        self._end_line(shown)
        return bytes(shown) + tail.lstrip(b"\r")

    def _draw(self, line: bytes, shown: bytearray) -> None:
        """Add a part of a line, whose draws are parted by carriage returns."""
        first, *draws = line.split(b"\r")
        if self.draw is not None:
            self.draw = _erase(self.draw + first)
        elif first:
            shown += _erase(first)
            self.begun = True
        for draw in draws:
            if draw or self.draw is None:
                self.draw = _erase(draw)

    def _end_line(self, shown: bytearray) -> None:
        """Add the last draw of a line, below the first one."""
        if self.draw:
            shown += b"\n" + self.draw if self.begun else self.draw
            self.begun = True
        self.draw = None


def _erase(text: bytes) -> bytes:
    """Apply the backspaces of a text; those at its beginning have nothing to delete."""
    if b"\b" not in text:
        return text
    left = bytearray()
    for piece in re.split(rb"(\x08+)", text):
        if not piece.startswith(b"\b"):
            left += piece
            continue
        for _ in piece:
            while left and left[-1] & 0xC0 == 0x80:  # the further bytes of a letter in UTF-8
                del left[-1]
            del left[-1:]
    return bytes(left)
