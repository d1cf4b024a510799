"""Keep the latest lines of the log in memory for `fawn logs`, wherever the log itself goes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

MAX_LINES, MAX_CHARS = 10_000, 8_000_000


class LogLine(NamedTuple):
    """A line, with its number in this process and whose it is; "" for nobody's."""

    number: int
    run: str
    thread: str
    text: str


class RecentLines:
    """A ring of lines, bounded in their number and their size."""

    def __init__(self) -> None:
        self._lines: deque[LogLine] = deque()
        self._chars = 0
        self.last = 0

    def add(self, text: str, run: str, thread: str) -> None:
        """Keep a line."""
        self.last += 1
        self._lines.append(LogLine(self.last, run, thread, text))
        self._chars += len(text)
        while len(self._lines) > MAX_LINES or self._chars > MAX_CHARS:
            self._chars -= len(self._lines.popleft().text)

    def after(self, number: int, wanted: Callable[[LogLine], bool], limit: int) -> tuple[Sequence[LogLine], int]:
        """Return up to `limit` wanted lines behind a number, and the number up to which that looked."""
        found = []
        for line in list(self._lines):
            if line.number > number and wanted(line):
                found.append(line)
                if len(found) == limit:
                    return found, line.number
        return found, self.last


RECENT = RecentLines()  # of this process: what sets up the log adds to it
