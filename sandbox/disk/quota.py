"""Limit the disk space of conversations, and keep a part of the disk free.

One statvfs reads the free space and inodes of the disk, several times a second while sandboxes run.

If the disk falls below its floor, or has lost as much as a conversation had left, conversations are measured (`du`).
The sandbox of one that grew and is over its limit, or that grew most on a disk below its floor, is stopped. Its newest
files are deleted, largest first, until it is within its limit and the disk above its floor. Its next command reports
that.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from catalogue import N_
from sandbox.base import (
    FOLDERS,
    CommandResult,
    Sandbox,
    SandboxError,
    SandboxFileError,
    SandboxGone,
    SandboxProvider,
    SandboxUnavailable,
    ShellCommand,
    StreamPair,
)
from sandbox.disk.file_threads import run_file_work
from sandbox.disk.folders import ConversationFolders
from sandbox.disk.safe_files import shown_path
from sandbox.disk.usage import DiskUsage, delete_newest, measure_usage
from sandbox.settings import DISK_FULL_MARKS

log = logging.getLogger(__name__)

TICK_SECONDS = 0.2  # between two readings of the free space
FIRST_MEASURE_SECONDS = 1.0  # a start waits so long for the first measurement, which runs concurrently
MEASURE_SECONDS, STOP_SECONDS = 10.0, 30.0
PAUSE_FACTOR = 10  # after a measurement of one second, a conversation is not measured for so many
MAX_MEASUREMENTS = 4
CLOCK_LAG_SECONDS = 0.02  # the kernel's clock for time stamps lags behind

MIN_GROWTH = DiskUsage(1 << 20, 100)  # less growth is never a reason to stop a sandbox
DISK_FLOOR = DiskUsage(1 << 30, 50_000)  # stays free of a disk, or this part of it if that is less:
FLOOR_SHARE = 20
FREED_FLOORS = 4  # below the floor, files are deleted until so many floors are free
LOSS_SHARE = 8  # conversations are measured when the disk lost this part of its free space
MAX_FILES = 500_000  # per conversation, or this part of the free inodes if that is less:
FILES_SHARE = 4


@runtime_checkable
class PortDialer(Protocol):
    """A provider that can connect to a port of its sandboxes."""

    def dial(self, key: str, folder: Path, port: int) -> AbstractAsyncContextManager[StreamPair]:
        """Connect to a port of the sandbox, which is in use meanwhile. Raises SandboxError."""


@dataclass(slots=True)
class _WatchedConversation:
    """A conversation with a sandbox. `usage` is the last measurement within all limits, taken at `since`. `loss_mark`
    is what the disk had lost by the latest measurement; None requires one. `sure_mark` is that of the latest one that
    ended. `reported` says whether a command has reported `note`. `lock` is held while the sandbox starts or is stopped
    for its files."""

    folder: Path
    sandbox: Sandbox | None = None
    usage: DiskUsage | None = None
    measured: DiskUsage | None = None
    since: float = 0.0
    loss_mark: DiskUsage | None = None
    sure_mark: DiskUsage | None = None
    rest_until: float = 0.0
    stopped: Sandbox | None = None
    note: str = ""  # why `stopped` was stopped, and what was deleted
    reported: bool = True
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def watched(self) -> bool:
        return self.sandbox is not None and not self.sandbox.gone

    @property
    def growth(self) -> DiskUsage:
        return (self.measured or DiskUsage()) - (self.usage or DiskUsage())


@dataclass(slots=True)
class SandboxUse:
    """How much sandboxes are used: `since` are the monotonic times at which uses began that go on."""

    count: int = 0
    ended_seconds: float = 0.0
    since: dict[int, float] = field(default_factory=dict)

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count one use."""
        self.count += 1
        number, began = self.count, time.monotonic()
        self.since[number] = began
        try:
            yield
        finally:
            del self.since[number]
            self.ended_seconds += time.monotonic() - began

    @property
    def seconds(self) -> float:
        """The seconds of all uses so far."""
        now = time.monotonic()
        return self.ended_seconds + sum(now - began for began in self.since.values())


class QuotaProvider:
    """A `SandboxProvider` around another one. `watch` has to run beside it."""

    def __init__(
        self,
        inner: SandboxProvider,
        folders: ConversationFolders,
        files: int = MAX_FILES,
        tick: float = TICK_SECONDS,
        measure_seconds: float = MEASURE_SECONDS,
    ) -> None:
        self.name, self.runs_commands = inner.name, inner.runs_commands
        self.use = SandboxUse()
        self._inner, self._folders, self._files, self._tick = inner, folders, files, tick
        self._measure_seconds = measure_seconds
        self._known: dict[str, _WatchedConversation] = {}
        self._begun = asyncio.Event()  # a sandbox was asked for
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="disk")  # other pools may be busy
        self._measuring = asyncio.Semaphore(MAX_MEASUREMENTS)
        self._free: DiskUsage | None = None  # at the last reading
        self._floor, self._lost = DiskUsage(), DiskUsage()

    async def check(self) -> None:
        await self._inner.check()

    @asynccontextmanager
    async def acquire(self, key: str, folder: Path) -> AsyncIterator[Sandbox]:
        async with AsyncExitStack() as stack:
            stack.enter_context(self.use.one())
            if not self.runs_commands:  # the model writes few and small files itself
                yield await stack.enter_async_context(self._inner.acquire(key, folder))
                return
            one = self._known.setdefault(key, _WatchedConversation(folder))
            self._begun.set()
            async with one.lock:
                unknown = one.usage is None
                first = asyncio.create_task(self._measure_first(one), name=f"disk-first:{key}")
                try:
                    sandbox = await stack.enter_async_context(self._inner.acquire(key, folder))
                    await asyncio.wait([first], timeout=FIRST_MEASURE_SECONDS)
                finally:
                    first.cancel()
                if unknown:
                    one.since = time.time() - CLOCK_LAG_SECONDS
                if one.sandbox is not sandbox:
                    one.sandbox, one.loss_mark = sandbox, None
            yield Metered(sandbox, self, key, one)

    async def reap(self, idle: float) -> list[str]:
        keys = await self._inner.reap(idle)
        self._forget_idle()
        return keys

    async def destroy(self, key: str) -> None:
        self._known.pop(key, None)
        await self._inner.destroy(key)

    async def close(self) -> None:
        await self._inner.close()
        self._thread.shutdown(wait=False)

    @asynccontextmanager
    async def dial(self, key: str, folder: Path, port: int) -> AsyncIterator[StreamPair]:
        if not isinstance(self._inner, PortDialer):
            raise SandboxUnavailable(N_("This kind of sandbox cannot show its ports."))
        async with self._inner.dial(key, folder, port) as ends:
            yield ends

    def _forget_idle(self) -> None:
        """Forget conversations whose sandbox has ended."""
        for key, one in list(self._known.items()):
            if one.sandbox and one.sandbox.gone and one.reported and not one.lock.locked():
                del self._known[key]

    async def watch(self) -> None:
        """Enforce the limits until cancelled."""
        async with asyncio.TaskGroup() as group:
            judging: asyncio.Task[None] | None = None
            while True:
                if not self._known:
                    self._begun.clear()
                    await self._begun.wait()
                await asyncio.sleep(self._tick)
                watched = {key: one for key, one in self._known.items() if one.watched and not one.lock.locked()}
                if not watched:
                    continue
                lack = await self._look_at_disk()
                suspects = {key: one for key, one in watched.items() if self._is_suspect(one, lack)}
                if suspects and (judging is None or judging.done()):
                    judging = group.create_task(self._measure_and_end(suspects), name="disk-judge")

    async def _look_at_disk(self) -> DiskUsage:
        """Return what the disk lacks of its floor, and add up what it lost."""
        found = await asyncio.get_running_loop().run_in_executor(self._thread, os.statvfs, self._folders.root)
        inodes = found.f_favail if found.f_files else 1 << 62  # some file systems make inodes on demand
        free = DiskUsage(found.f_bavail * found.f_frsize, inodes)
        self._lost += (self._free or free) - free
        self._free = free
        parts = DiskUsage(found.f_blocks * found.f_frsize // FLOOR_SHARE, found.f_files // FLOOR_SHARE)
        self._floor = DiskUsage(min(DISK_FLOOR.size, parts.size), min(DISK_FLOOR.files, parts.files))
        return self._floor - free

    def _is_suspect(self, one: _WatchedConversation, lack: DiskUsage) -> bool:
        if one.loss_mark is None:
            return True
        lost = self._lost - one.loss_mark
        if lack != DiskUsage():
            return lost.reaches(MIN_GROWTH)
        measured, free = one.measured or DiskUsage(), self._free or DiskUsage()
        left = self._bound_of(measured) - measured
        room = DiskUsage(
            max(MIN_GROWTH.size, min(left.size, free.size // LOSS_SHARE)),
            max(MIN_GROWTH.files, min(left.files, free.files // LOSS_SHARE)),
        )
        return lost.reaches(room) and time.monotonic() >= one.rest_until

    def _bound_of(self, now: DiskUsage) -> DiskUsage:
        free = self._free.files if self._free else 1 << 62
        return DiskUsage(self._folders.size, min(self._files, (now.files + free) // FILES_SHARE))

    def _overuse(self, one: _WatchedConversation) -> DiskUsage:
        return one.measured - self._bound_of(one.measured) if one.measured else DiskUsage()

    async def _measure_and_end(self, suspects: dict[str, _WatchedConversation]) -> None:
        """Measure the suspects, and stop those responsible, largest growth first."""
        await asyncio.gather(*(self._measure(one) for one in suspects.values()))
        lack, ended = await self._look_at_disk(), 0

        def most(item: tuple[str, _WatchedConversation]) -> int:
            return -(item[1].growth.files if lack.files and not lack.size else item[1].growth.size)

        for key, one in sorted(suspects.items(), key=most):
            if one.watched and not one.lock.locked() and self._is_responsible(one, lack, len(suspects)):
                try:
                    await self._stop_and_delete(key, one)
                except (OSError, TimeoutError, ValueError, SandboxError) as error:
                    log.error("disk.kept sandbox=%s reason=%r", key, error)  # noqa: TRY400  the reason is enough
                ended += 1
                lack = await self._look_at_disk()
        if not ended and lack != DiskUsage() and (keys := await self.reap(0)):
            # No known conversation is responsible, perhaps a container of a killed service.
            log.warning("disk.low stopped=%d — idle sandboxes were stopped", len(keys))

    def _is_responsible(self, one: _WatchedConversation, lack: DiskUsage, among: int) -> bool:
        """Whether it grew while over its limit, or by its share of what the disk lacks."""
        if one.measured is None:  # its folders change too fast to be measured, or have too many files
            lost = self._lost - (one.sure_mark or DiskUsage())
            return lack != DiskUsage() or lost.reaches(self._bound_of(lost))
        over, grown = self._overuse(one), one.growth
        return bool(
            (grown.size >= MIN_GROWTH.size and (over.size or 0 < lack.size <= grown.size * among))
            or (grown.files >= MIN_GROWTH.files and (over.files or 0 < lack.files <= grown.files * among))
        )

    async def _stop_and_delete(self, key: str, one: _WatchedConversation) -> None:
        """Stop its sandbox and delete its newest files. Raises OSError, TimeoutError, ValueError, SandboxError."""
        async with one.lock:
            stopped = "The sandbox was stopped with all its processes"
            one.stopped, one.reported, one.note = one.sandbox, False, f"{stopped}: it filled the disk of this machine."
            log.warning("disk.full sandbox=%s bytes=%d files=%d", key, one.growth.size, one.growth.files)
            async with asyncio.timeout(STOP_SECONDS):
                await self._inner.destroy(key)
            one.measured = await measure_usage([one.folder / name for name in FOLDERS])
            one.sure_mark = self._lost
            why, excess = self._explain_stop(one), await self._excess(one)
            freed, largest = await delete_newest(one.folder, one.since, excess)
            one.note = f"{stopped}: {why}.{_describe_deleted(freed, largest)} Use less space, or delete other files."
            one.usage, one.since = one.measured - freed, time.time()
            log.warning("disk.freed sandbox=%s bytes=%d files=%d", key, freed.size, freed.files)

    async def _excess(self, one: _WatchedConversation) -> DiskUsage:
        """Return how much to delete, until its limit and the disk's floor are kept."""
        lack, over, floor = await self._look_at_disk(), self._overuse(one), self._floor
        size = max(over.size, lack.size + (FREED_FLOORS - 1) * floor.size if lack.size else 0)
        files = max(over.files, lack.files + (FREED_FLOORS - 1) * floor.files if lack.files else 0)
        return DiskUsage(min(size, one.growth.size), min(files, one.growth.files))

    def _explain_stop(self, one: _WatchedConversation) -> str:
        over, now, bound = self._overuse(one), one.measured or DiskUsage(), self._bound_of(one.measured or DiskUsage())
        if over.size:
            what = f"take {now.size >> 20:,} MB of the disk, and {bound.size >> 20:,} MB are allowed"
        elif over.files:
            what = f"are {now.files:,}, and {bound.files:,} are allowed"
        elif self._free and self._floor - self._free == DiskUsage():
            return "its folders changed too fast to be measured, and the disk lost more than one conversation may have"
        else:
            grown = f"{one.growth.size >> 20:,} MB in {one.growth.files:,} files"
            return f"the disk of this machine was nearly full, and this conversation had just taken {grown}"
        return f"the files of this conversation {what} (sandbox.disk_mb)"

    async def _measure_first(self, one: _WatchedConversation) -> None:
        """Measure a conversation whose folders were not watched before."""
        if one.usage is None:
            if await asyncio.to_thread(one.folder.exists):
                await self._measure(one)
            else:
                one.usage = DiskUsage()

    async def _measure(self, one: _WatchedConversation) -> None:
        began, started = time.time() - CLOCK_LAG_SECONDS, time.monotonic()
        mark = one.loss_mark = self._lost
        one.sure_mark, one.measured = one.sure_mark or mark, None
        try:
            async with self._measuring:
                one.measured = await measure_usage([one.folder / name for name in FOLDERS], self._measure_seconds)
        except (OSError, TimeoutError, ValueError) as error:
            log.warning("disk.unmeasured folder=%s reason=%r", one.folder.name, error)
        one.rest_until = time.monotonic() + PAUSE_FACTOR * (time.monotonic() - started)
        if not one.measured:
            return
        one.sure_mark = mark
        first = one.sandbox is None
        if first or (self._overuse(one) == DiskUsage() and await self._look_at_disk() == DiskUsage()):
            one.usage, one.since = one.measured, began


class Metered:
    """A `Sandbox` whose disk space a `QuotaProvider` limits."""

    def __init__(self, inner: Sandbox, disk: QuotaProvider, key: str, one: _WatchedConversation) -> None:
        self.runs_commands = inner.runs_commands
        self.read, self.stat, self.ls, self.glob, self.grep = inner.read, inner.stat, inner.ls, inner.glob, inner.grep
        self.realpath = inner.realpath
        self._inner, self._disk, self._key, self._one = inner, disk, key, one

    @property
    def gone(self) -> bool:
        return self._inner.gone

    async def run(self, command: ShellCommand) -> CommandResult:
        """See `Sandbox.run`. Raises SandboxError with the reason if the sandbox was stopped for its files."""
        one, note = self._one, ""
        try:
            result = await self._inner.run(command)
        except SandboxGone:
            async with one.lock:  # until its files are deleted
                if one.stopped is not self._inner:
                    raise
            one.reported = True
            raise SandboxError(one.note) from None
        if not one.reported:
            one.reported, note = True, f"[{one.note}]\n"
        if result.exit_code != 0 and _is_disk_full(result.output):
            note += f"[{await run_file_work(_describe_free_space, one.folder)}]\n"
        return replace(result, output=result.output + note) if note else result

    @asynccontextmanager
    async def dial(self, port: int) -> AsyncIterator[StreamPair]:
        """See `PortDialer.dial`. Connects to this sandbox only, not to its successor."""
        if self.gone:
            raise SandboxGone("The sandbox has stopped, and its servers with it.")
        async with self._disk.dial(self._key, self._one.folder, port) as ends:
            yield ends

    async def write(self, path: str, data: bytes, *, append: bool = False) -> None:
        try:
            await self._inner.write(path, data, append=append)
        except SandboxFileError as fault:
            if not _is_disk_full(str(fault)):
                raise
            raise SandboxFileError(f"{fault}: {await run_file_work(_describe_free_space, self._one.folder)}") from fault


def _is_disk_full(text: str) -> bool:
    return any(mark in text for mark in DISK_FULL_MARKS)


def _describe_free_space(folder: Path) -> str:
    """Say how much can still be written to a conversation's folders."""
    disk = os.statvfs(folder)
    left = f"{disk.f_bavail * disk.f_frsize >> 20:,} MB and {disk.f_favail:,} files"
    if os.path.ismount(folder):
        return f"the conversation has {left} left (sandbox.disk_mb); delete files that are not needed"
    return f"the disk of this machine has {left} left"


def _describe_deleted(freed: DiskUsage, largest: list[tuple[int, str]]) -> str:
    """Say which files were deleted."""
    if not freed.files:
        return " Nothing was deleted."
    names = ", ".join(f"{shown_path(name)} ({size / (1 << 20):,.1f} MB)" for size, name in largest)
    more = f" and {freed.files - len(largest):,} more" if freed.files > len(largest) else ""
    return f" Deleted the newest files: {names}{more}."
