"""Notice when the event loop is held: log what it does meanwhile, so that a stall of everybody can be explained.

A thread asks the loop for an answer now and then. It also sees code that keeps the interpreter's lock, such as a slow
regular expression: it gets the lock as soon as that call returns, when the stack still shows it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

log = logging.getLogger(__name__)

HELD_SECONDS = 1.0
ASK_SECONDS = 0.5  # between two questions: the loop wakes up this often
MAX_FRAMES = 12


class LoopWatch:
    """Watches the running event loop, while entered."""

    def __init__(self) -> None:
        self.observe: Callable[[float], object] = abs  # called on its thread with each delay, in seconds
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        self._answered = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="loop-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()  # the thread ends with its next look: waiting for it would hold the loop

    def _watch(self) -> None:
        while not self._closed.wait(ASK_SECONDS):
            self._answered.clear()
            asked = time.monotonic()
            try:
                self._loop.call_soon_threadsafe(self._answered.set)
            except RuntimeError:  # the loop was closed
                return
            if self._answered.wait(HELD_SECONDS):
                self.observe(time.monotonic() - asked)
                continue
            log.warning("loop.held seconds=%.1f at=%s", time.monotonic() - asked, describe_stack(self._watched))
            while not self._answered.wait(ASK_SECONDS):
                if self._closed.is_set() or self._loop.is_closed():
                    return
            self.observe(time.monotonic() - asked)
            log.warning("loop.freed seconds=%.1f", time.monotonic() - asked)


def describe_stack(thread: int) -> str:
    """Return the last calls of a thread on one line, the innermost last."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001  the documented way to another thread's stack
    frames = traceback.extract_stack(frame)[-MAX_FRAMES:] if frame else []
    return " > ".join(f"{'/'.join(Path(each.filename).parts[-2:])}:{each.lineno} {each.name}" for each in frames)
