"""Lock data_dir for one process: a service keeps it, a command holds it for one task and makes way for a service.

All locks are record locks (fcntl) on single bytes of the file `lock`, which the kernel releases at the end of a process
however it ends. They are not flocks, because a child that was forked right before a kill would still hold one. Closing
any descriptor of the file releases them (fcntl(2)): the process that holds one must not ask about it.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from catalogue import N_, LocalizedError

IN_USE, SERVICE, WAITING = 0, 1, 2  # bytes; a service of 0.1.0's first days locks the whole file
BOOT = Path("/proc/sys/kernel/random/boot_id")  # of the kernel: containers have that of their machine
POLL_SECONDS = 0.05
PROBE_SECONDS = 0.2  # for which the look of another process may hold a byte
COMMAND_SECONDS = 60.0  # for which a service waits for a command; systemd gives a start 90 (TimeoutStartSec)


class DataDirLocked(LocalizedError):
    """Another process already works on this data_dir."""

    def __init__(self) -> None:
        super().__init__(
            N_("Another process already works on this data_dir. Stop it first, or give this one its own data_dir.")
        )


class DataDirBusy(DataDirLocked):
    """A command works on this data_dir for longer than a start waits."""

    def __init__(self, seconds: float) -> None:
        LocalizedError.__init__(
            self,
            N_("A command has worked on this data_dir for {seconds:g} s. Start the service again when it has ended."),
            seconds=seconds,
        )


class DatabaseInUse(LocalizedError):
    """Another process already works on this database."""

    def __init__(self) -> None:
        super().__init__(N_("Another process already works on this PostgreSQL database. Stop it first."))


class _Lock:
    """What both locks do: open the file, take the bytes, and close it, which releases them."""

    gives_way = False  # a service has been seen to wait

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / "lock"
        self._fd = -1

    def __enter__(self) -> Self:
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._take()
        except BaseException:
            os.close(self._fd)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def _take(self) -> None:
        raise NotImplementedError


class DataLock(_Lock):
    """The lock of a command. Raises DataDirLocked where another process has it, or a service waits for it."""

    def _take(self) -> None:
        if not _lock_soon(self._fd, IN_USE, PROBE_SECONDS) or self.is_wanted():
            raise DataDirLocked

    def is_wanted(self) -> bool:
        """Whether a service waits until this process has ended its work."""
        self.gives_way = self.gives_way or not _is_free(self._fd, WAITING)
        return self.gives_way


class ServiceLock(_Lock):
    """The lock of a service. `waits` is called before it waits for a command that has the data_dir.

    Raises DataDirLocked where another service has it or waits for it, and DataDirBusy when `seconds` are over.
    """

    def __init__(
        self, data_dir: Path, waits: Callable[[], None] = lambda: None, seconds: float = COMMAND_SECONDS
    ) -> None:
        super().__init__(data_dir)
        self._waits, self._seconds = waits, seconds

    def _take(self) -> None:
        if not _try_lock(self._fd, SERVICE):
            raise DataDirLocked
        if _lock_soon(self._fd, IN_USE, PROBE_SECONDS):
            return
        _lock_soon(self._fd, WAITING, PROBE_SECONDS)  # from now on, commands that come later wait for this service
        self._waits()
        if not _lock_soon(self._fd, IN_USE, self._seconds):
            raise DataDirBusy(self._seconds)
        fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, WAITING)


def name_lock(data_dir: Path) -> str:
    """Return what names this lock among all that there are: the running kernel and its file. "": it is not known.

    Who has it knows that the process is dead that had the lock of this name before.
    """
    try:
        found = (data_dir / "lock").stat()
        return f"{kernel_id()}:{found.st_dev}:{found.st_ino}"
    except OSError:  # another system has no such file
        return ""


def kernel_id() -> str:
    """Return what names the running kernel. Raises OSError where the system has no such name."""
    return BOOT.read_text("ascii").strip()


def is_held(data_dir: Path) -> bool:
    """Whether another process works on data_dir, or a service waits to.

    Do not call it in the process that holds a lock: it would release it.
    """
    return not _is_free_in(data_dir, IN_USE) or is_service_waiting(data_dir)


def is_service_waiting(data_dir: Path) -> bool:
    """Whether a service waits for a command to end. Do not call it in a process that holds a lock, as `is_held`."""
    return not _is_free_in(data_dir, WAITING)


def _is_free_in(data_dir: Path, byte: int) -> bool:
    try:
        descriptor = os.open(data_dir / "lock", os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):  # what uses the folder says why it cannot
        return True
    try:
        return _is_free(descriptor, byte)
    finally:
        os.close(descriptor)


def _is_free(descriptor: int, byte: int) -> bool:
    """Whether no other process holds a byte. It is locked for a moment, as readers do, so that looks do not collide."""
    if not _try_lock(descriptor, byte, fcntl.LOCK_SH):
        return False
    fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, byte)
    return True


def _lock_soon(descriptor: int, byte: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not _try_lock(descriptor, byte):
        if time.monotonic() >= end:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _try_lock(descriptor: int, byte: int, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.lockf(descriptor, kind | fcntl.LOCK_NB, 1, byte)
    except (BlockingIOError, PermissionError):  # POSIX allows both
        return False
    return True
