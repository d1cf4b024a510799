"""Show on stderr how far a long copy is: one line that moves on a terminal, else a line every ten seconds."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from bot.database.progress import CopyProgress, Part
from catalogue import N_, _

DRAW_SECONDS = 0.2  # on a terminal
LINE_SECONDS = 10.0  # elsewhere, where each line stays
PARTS = {
    Part.ROWS: N_("copying rows: {done}, {rate}/s"),
    Part.CHECK: N_("checking the archive: {done}, {rate}/s"),
    Part.UNPACK: N_("unpacking: {done}, {rate}/s"),
    Part.WRITE: N_("writing the archive: {done}, {rate}/s"),
}
PARTS_OF = {
    Part.ROWS: N_("copying rows: {done} of about {total}, {rate}/s"),
    Part.UNPACK: N_("unpacking: {done} of about {total}, {rate}/s"),
}


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """Add the option that shows no progress."""
    parser.add_argument("--quiet", action="store_true", help=_("do not say on stderr how far it is"))


@contextmanager
def shown(
    progress: CopyProgress,
    *,
    quiet: bool,
    look: Callable[[], None] = lambda: None,
    stream: TextIO | None = None,
    line_seconds: float = LINE_SECONDS,
) -> Iterator[None]:
    """Show the progress in this context, from a thread. `look` is called before, where something has to be measured."""
    if quiet:
        yield
        return
    shower = _Shower(progress, look, stream or sys.stderr, line_seconds)
    thread = threading.Thread(target=shower.run, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        shower.over.set()
        thread.join()


class _Shower:
    def __init__(self, progress: CopyProgress, look: Callable[[], None], stream: TextIO, line_seconds: float) -> None:
        self.over = threading.Event()
        self._progress, self._look, self._stream = progress, look, stream
        self._moves = stream.isatty()
        self._seconds = DRAW_SECONDS if self._moves else line_seconds
        self._part: Part | None = None
        self._part_began = time.monotonic()

    def run(self) -> None:
        """Show lines until it is over. On a terminal, the last one is drawn and removed again."""
        while not self.over.wait(self._seconds):
            self._show()
        if self._moves:
            self._show()
            self._write("\r\x1b[K")

    def _show(self) -> None:
        self._look()
        part, done, total = self._progress.part, self._progress.done, self._progress.total
        if part is None:
            return
        if part is not self._part:
            self._part, self._part_began = part, time.monotonic()
        line = describe_progress(part, done, total, time.monotonic() - self._part_began)
        self._write(f"\r{line}\x1b[K" if self._moves else f"{line}\n")

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # nobody reads it any more: the copy goes on
            self.over.set()


def describe_progress(part: Part, done: int, total: int, seconds: float) -> str:
    """Return a line about a part that began so many seconds before it was first shown."""
    count = _number if part is Part.ROWS else format_bytes
    form = PARTS_OF[part] if total and part in PARTS_OF else PARTS[part]
    rate = count(int(done / seconds)) if seconds >= DRAW_SECONDS else "–"
    return _(form, done=count(done), total=count(max(total, done)), rate=rate)


def _number(count: int) -> str:
    return f"{count:,}"


def format_bytes(count: int) -> str:
    """Return bytes as people read them."""
    return f"{count / 1e6:.1f} MB" if count >= 1_000_000 else f"{count / 1e3:.1f} KB"
