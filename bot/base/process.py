"""Watch this process: its open files, its event loop, and what systemd knows of it.

A thread asks the loop for an answer now and then. It also sees code that keeps the interpreter's lock, such as a slow
regular expression: it gets the lock as soon as that call returns, when the stack still shows it.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from bot.config.schema import SystemdConfig

log = logging.getLogger(__name__)


class SystemdNotifier:
    """Sends states to the socket that systemd named; without one, it does nothing."""

    def __init__(self, config: SystemdConfig) -> None:
        self._config = config

    def send(self, state: str) -> None:
        """Send `READY=1`, `STOPPING=1` or `WATCHDOG=1`."""
        if not self._config.socket:
            return
        address = self._config.socket
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
                sender.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)
        except OSError as error:
            log.warning("systemd.unreachable state=%s reason=%s", state, error)

    async def feed_watchdog(self) -> None:
        """Wait half the watchdog's time, then report that the event loop works."""
        await asyncio.sleep(self._config.watchdog_seconds / 2)
        self.send("WATCHDOG=1")


MAX_DESCRIPTORS = 65_536  # where the system does not set a hard limit


def raise_descriptor_limit() -> None:
    """Raise the soft limit of file descriptors, which is 1024 on most systems, to the hard limit."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


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
