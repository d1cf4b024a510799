"""A program on a real pseudo-terminal, with pyte as the screen."""

from __future__ import annotations

import fcntl
import itertools
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyte
from wcwidth import wcwidth

EMPTY = ("› Ask me, or /help", "› Try: plot")  # the latter while the demo answers
PATIENCE = 20.0  # seconds until a test gives up: never a measure of speed


class Terminal:
    """A real pseudo-terminal: `screen` is what a person sees, `raw` all output of the program."""

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], rows: int = 24, columns: int = 80
    ) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=1000, ratio=1)
        self.stream = pyte.ByteStream(self.screen)
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.write_process_input = self.type  # type: ignore[method-assign,assignment]  # how pyte answers "where is the cursor?"
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, cwd=folder, env=environment, start_new_session=True
        )
        os.close(slave)
        self.raw = b""
        self.patience = PATIENCE
        self.seen: list[str] = []  # every picture after every piece of output
        self._shown = [""] * rows  # the rows of the screen as text
        self._above: list[tuple[object, str]] = []  # the lines of the scrollback, which change no more, as text

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def rows(self) -> list[str]:
        """Return the scrollback and the screen as text. Makes only what has changed: it is asked for all the time."""
        top = self.screen.history.top
        if not top or not self._above or top[0] is not self._above[0][0]:
            self._above = []
        for line in itertools.islice(top, len(self._above), None):
            self._above.append((line, "".join(line[i].data for i in sorted(line)).rstrip()))
        self._shown = [*self._shown, *[""] * self.screen.lines][: self.screen.lines]
        for number in self.screen.dirty:
            if number < self.screen.lines:
                self._shown[number] = self._row(number)
        self.screen.dirty.clear()
        return [*(text for _line, text in self._above), *self._shown]

    def _row(self, number: int) -> str:
        """Return a row of the screen as text: the cell behind a wide character shows nothing of its own."""
        line, text = self.screen.buffer[number], ""
        for x in range(max(line, default=-1) + 1):
            if not (x and wcwidth(line[x - 1].data[:1]) == 2):
                text += line[x].data
        return text.rstrip()

    def text(self) -> str:
        return "\n".join(self.rows())

    def until(self, true: Callable[[], bool]) -> None:
        """Read output until the screen matches."""
        end = time.monotonic() + self.patience
        while not true():
            assert time.monotonic() < end, f"waited in vain; the screen is:\n{self.text()}"
            if select.select([self.master], [], [], 0.05)[0]:
                try:
                    data = os.read(self.master, 65_536)
                    self.raw += data
                    self.stream.feed(data)
                except OSError:  # the program has left
                    self.process.wait(PATIENCE)
                    assert true(), f"it left; the screen is:\n{self.text()}"
                self.seen.append(self.text())

    def shows(self, text: str) -> None:
        self.until(lambda: text in self.text())

    def shows_times(self, row: str, count: int) -> None:
        self.until(lambda: self.rows().count(row) == count)

    def prompt(self) -> None:
        """The prompt is visible and empty, and no reply is streaming."""
        self.until(lambda: next((row for row in reversed(self.rows()) if row.startswith("›")), "") in EMPTY)

    def left(self) -> bool:
        return self.process.poll() is not None

    def close(self) -> None:
        if not self.left():
            self.process.kill()
        self.process.wait()
        os.close(self.master)
