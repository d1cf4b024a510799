"""A bound on what each conversation's folders hold, and a floor under the disk that all of them share.

Where the kernel keeps the bound (`sandbox.disk.loop_images`), nothing is done here. Else the free space and the free
inodes of the disk are looked at several times a second while sandboxes run: one statvfs. One rule follows:

Where the disk falls below its floor, or has lost as much as a conversation had left, conversations are measured (`du`).
The one that is over its bound and grew, or that grew most of those on a disk below its floor, loses its sandbox at
once; what it made since all was well is deleted, largest first, until it is within its bound and the disk above its
floor; and its next command says so.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from sandbox.base import (
    FOLDERS,
    CommandResult,
    Sandbox,
    SandboxError,
    SandboxFileError,
    SandboxGone,
    SandboxProvider,
    SandboxUnavailable,
)
from sandbox.disk.file_threads import run_file_work
from sandbox.disk.folders import ConversationFolders
from sandbox.disk.safe_files import shown_path
from sandbox.disk.usage import DiskUsage, delete_newest, measure_usage
from sandbox.network.proxy import Ends
from sandbox.settings import NO_SPACE

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.2  # between two looks at the free space
FIRST_SECONDS = 1.0  # that a start waits for the first measurement, which runs beside it
MEASURE_SECONDS, END_SECONDS = 10.0, 30.0
PAUSE_FACTOR = 10  # after a measurement of one second a conversation is left alone for so many
MAX_MEASUREMENTS = 4  # measurements
CLOCK_SECONDS = 0.02  # the kernel stamps files with a clock that lags behind


GROWTH = DiskUsage(1 << 20, 100)  # less is nobody's fault
FLOOR = DiskUsage(1 << 30, 50_000)  # what stays free of a disk, or a part of it where that is less:
FLOOR_SHARE = 20
ROOM_FLOORS = 4  # what is deleted where the disk fell below its floor: until so many floors are free
LOSS_SHARE = 8  # the disk lost such a part of what is free: who took it is measured, and what all hold is known lately
MAX_FILES = 500_000  # per conversation, or a part of what the disk has left where that is less:
FILES_SHARE = 4


@runtime_checkable
class PortDialer(Protocol):
    """A provider whose machines can be connected to."""

    def dial(self, key: str, folder: Path, port: int) -> AbstractAsyncContextManager[Ends]:
        """A connection to a port on the loopback of this machine, which counts as used meanwhile. Raises SandboxError
        when nothing listens there."""


@dataclass(slots=True)
class _WatchedConversation:
    """One that has a machine. `usage` is what its folders held when all was well for the last time, which was at the
    time `since`; `mark` what the disk had lost by the last measurement (None: measure at once)."""

    folder: Path
    machine: Sandbox | None = None
    bounded: bool = False
    usage: DiskUsage | None = None
    now: DiskUsage | None = None
    since: float = 0.0
    mark: DiskUsage | None = None
    rest_until: float = 0.0
    stopped: Sandbox | None = None
    note: str = ""  # why `stopped` was, and what was deleted
    told: bool = True
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # held while its machine starts or is ended for its files

    @property
    def watched(self) -> bool:
        return self.machine is not None and not self.machine.gone and not self.bounded

    @property
    def growth(self) -> DiskUsage:
        return (self.now or DiskUsage()) - (self.usage or DiskUsage())


class QuotaProvider:
    """A `SandboxProvider` around another one. `watch` has to run beside it."""

    def __init__(
        self, inner: SandboxProvider, folders: ConversationFolders, files: int = MAX_FILES, tick: float = LOOK_SECONDS
    ) -> None:
        self.name, self.runs_commands = inner.name, inner.runs_commands
        self._inner, self._folders, self._files, self._tick = inner, folders, files, tick
        self._known: dict[str, _WatchedConversation] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="disk")  # the others' threads may all be busy
        self._measuring = asyncio.Semaphore(MAX_MEASUREMENTS)
        self._free: DiskUsage | None = None  # at the last look
        self._floor, self._lost = DiskUsage(), DiskUsage()

    async def check(self) -> None:
        """See `SandboxProvider.check`."""
        await self._inner.check()

    @asynccontextmanager
    async def acquire(self, key: str, folder: Path) -> AsyncIterator[Sandbox]:
        """See `SandboxProvider.acquire`."""
        async with AsyncExitStack() as stack:
            bounded = await stack.enter_async_context(self._folders.open(folder))
            if not self.runs_commands:  # files that the model writes itself are small and few
                yield await stack.enter_async_context(self._inner.acquire(key, folder))
                return
            one = self._known.setdefault(key, _WatchedConversation(folder))
            async with one.lock:
                one.bounded, unknown = bounded, one.usage is None
                first = asyncio.create_task(self._begin(one), name=f"disk-first:{key}")
                try:
                    sandbox = await stack.enter_async_context(self._inner.acquire(key, folder))
                    await asyncio.wait([first], timeout=FIRST_SECONDS)
                finally:
                    first.cancel()
                if unknown:
                    one.since = time.time() - CLOCK_SECONDS
                if one.machine is not sandbox:
                    one.machine, one.mark = sandbox, None
            yield Metered(sandbox, self, key, one)

    async def reap(self, idle: float) -> list[str]:
        """See `SandboxProvider.reap`."""
        keys = await self._inner.reap(idle)
        self._forget_idle()
        live = {one.folder for one in self._known.values() if one.machine and not one.machine.gone}
        await self._folders.release_idle(keep=live)
        return keys

    async def destroy(self, key: str) -> None:
        """See `SandboxProvider.destroy`."""
        self._known.pop(key, None)
        await self._inner.destroy(key)

    async def close(self) -> None:
        """See `SandboxProvider.close`."""
        await self._inner.close()
        await self._folders.release_idle(0)
        self._thread.shutdown(wait=False)

    @asynccontextmanager
    async def dial(self, key: str, folder: Path, port: int) -> AsyncIterator[Ends]:
        """See `PortDialer`."""
        if not isinstance(self._inner, PortDialer):
            raise SandboxUnavailable("This kind of sandbox cannot show its ports.")
        async with self._folders.open(folder), self._inner.dial(key, folder, port) as ends:
            yield ends

    def _forget_idle(self) -> None:
        """Drop what need not be known of conversations without a machine."""
        for key, one in list(self._known.items()):
            if one.machine and one.machine.gone and one.told and not one.lock.locked():
                del self._known[key]

    # ------------------------------------------------------------ watching

    async def watch(self) -> None:
        """Keep everybody within the bound, and the disk above its floor, for ever."""
        async with asyncio.TaskGroup() as group:
            judging: asyncio.Task[None] | None = None
            while True:
                await asyncio.sleep(self._tick)
                watched = {key: one for key, one in self._known.items() if one.watched and not one.lock.locked()}
                if not watched:
                    continue
                lack = await self._look_at_disk()
                suspects = {key: one for key, one in watched.items() if self._is_suspect(one, lack)}
                if suspects and (judging is None or judging.done()):
                    judging = group.create_task(self._measure_and_end(suspects), name="disk-judge")

    async def _look_at_disk(self) -> DiskUsage:
        """What the disk lacks of its floor; counts what it lost."""
        found = await asyncio.get_running_loop().run_in_executor(self._thread, os.statvfs, self._folders.root)
        inodes = found.f_favail if found.f_files else 1 << 62  # some file systems make them when they are needed
        free = DiskUsage(found.f_bavail * found.f_frsize, inodes)
        self._lost += (self._free or free) - free
        self._free = free
        parts = DiskUsage(found.f_blocks * found.f_frsize // FLOOR_SHARE, found.f_files // FLOOR_SHARE)
        self._floor = DiskUsage(min(FLOOR.size, parts.size), min(FLOOR.files, parts.files))
        return self._floor - free

    def _is_suspect(self, one: _WatchedConversation, lack: DiskUsage) -> bool:
        if one.mark is None:
            return True
        lost = self._lost - one.mark
        if lack != DiskUsage():
            return lost.reaches(GROWTH)
        left, free = self._bound_of(one.now or DiskUsage()) - (one.now or DiskUsage()), self._free or DiskUsage()
        room = DiskUsage(
            max(GROWTH.size, min(left.size, free.size // LOSS_SHARE)),
            max(GROWTH.files, min(left.files, free.files // LOSS_SHARE)),
        )
        return lost.reaches(room) and time.monotonic() >= one.rest_until

    def _bound_of(self, now: DiskUsage) -> DiskUsage:
        free = self._free.files if self._free else 1 << 62
        return DiskUsage(self._folders.size, min(self._files, (now.files + free) // FILES_SHARE))

    def _is_over(self, one: _WatchedConversation) -> DiskUsage:
        return one.now - self._bound_of(one.now) if one.now else DiskUsage()

    async def _measure_and_end(self, suspects: dict[str, _WatchedConversation]) -> None:
        """Measure them, and end those that are responsible, the one that grew most first."""
        await asyncio.gather(*(self._measure(one) for one in suspects.values()))
        lack, ended = await self._look_at_disk(), 0

        def most(item: tuple[str, _WatchedConversation]) -> int:
            return -(item[1].growth.files if lack.files and not lack.size else item[1].growth.size)

        for key, one in sorted(suspects.items(), key=most):
            if one.watched and not one.lock.locked() and self._is_responsible(one, lack, len(suspects)):
                try:
                    await self._end(key, one)
                except (OSError, TimeoutError, ValueError, SandboxError) as error:
                    log.error("disk.kept sandbox=%s reason=%r", key, error)  # noqa: TRY400  the reason is enough
                ended += 1
                lack = await self._look_at_disk()
        if not ended and lack != DiskUsage() and (keys := await self.reap(0)):
            # Nobody who is known: perhaps a container that a killed service left.
            log.warning("disk.low — %d idle sandboxes were stopped", len(keys))

    def _is_responsible(self, one: _WatchedConversation, lack: DiskUsage, among: int) -> bool:
        """It grew although it is over its bound, or by no less than its part of what the disk lacks."""
        if one.now is None:  # it hides behind a tree that takes too long to measure while it changes
            return lack != DiskUsage()
        over, grown = self._is_over(one), one.growth
        return bool(
            (grown.size >= GROWTH.size and (over.size or 0 < lack.size <= grown.size * among))
            or (grown.files >= GROWTH.files and (over.files or 0 < lack.files <= grown.files * among))
        )

    async def _end(self, key: str, one: _WatchedConversation) -> None:
        """Stop its machine, and delete what it made. Raises OSError, TimeoutError, ValueError, SandboxError."""
        async with one.lock:
            stopped = "The sandbox was stopped, with all that ran in it"
            one.stopped, one.told, one.note = one.machine, False, f"{stopped}: it filled the disk of this machine."
            log.warning("disk.full sandbox=%s bytes=%d files=%d", key, one.growth.size, one.growth.files)
            async with asyncio.timeout(END_SECONDS):
                await self._inner.destroy(key)
            one.now = await measure_usage([one.folder / name for name in FOLDERS])
            why, excess = self._why(one), await self._excess(one)
            freed, largest = await delete_newest(one.folder, one.since, excess)
            one.note = f"{stopped}: {why}.{_removed(freed, largest)} Use less, or delete what is not needed."
            one.usage, one.since = one.now - freed, time.time()
            log.warning("disk.freed sandbox=%s bytes=%d files=%d", key, freed.size, freed.files)

    async def _excess(self, one: _WatchedConversation) -> DiskUsage:
        """What has to go of what it took, until it is within its bound and the disk well above its floor."""
        lack, over, floor = await self._look_at_disk(), self._is_over(one), self._floor
        size = max(over.size, lack.size + (ROOM_FLOORS - 1) * floor.size if lack.size else 0)
        files = max(over.files, lack.files + (ROOM_FLOORS - 1) * floor.files if lack.files else 0)
        return DiskUsage(min(size, one.growth.size), min(files, one.growth.files))

    def _why(self, one: _WatchedConversation) -> str:
        over, now, bound = self._is_over(one), one.now or DiskUsage(), self._bound_of(one.now or DiskUsage())
        if over.size:
            what = f"take {now.size >> 20:,} MB of the disk, and {bound.size >> 20:,} MB are allowed"
        elif over.files:
            what = f"are {now.files:,}, and {bound.files:,} are allowed"
        else:
            grown = f"{one.growth.size >> 20:,} MB in {one.growth.files:,} files"
            return f"the disk of this machine was nearly full, and this conversation had just taken {grown}"
        return f"the files of this conversation {what} (sandbox.disk_mb)"

    async def _begin(self, one: _WatchedConversation) -> None:
        """The first measurement of one whose folders nobody watched."""
        if one.usage is None and not one.bounded:
            if await asyncio.to_thread(one.folder.exists):
                await self._measure(one)
            else:
                one.usage = DiskUsage()

    async def _measure(self, one: _WatchedConversation) -> None:
        began, started, one.mark, one.now = time.time() - CLOCK_SECONDS, time.monotonic(), self._lost, None
        try:
            async with self._measuring:
                one.now = await measure_usage([one.folder / name for name in FOLDERS], MEASURE_SECONDS)
        except (OSError, TimeoutError, ValueError) as error:
            log.warning("disk.unmeasured folder=%s reason=%r", one.folder.name, error)
        one.rest_until = time.monotonic() + PAUSE_FACTOR * (time.monotonic() - started)
        first = one.machine is None
        if one.now and (first or (self._is_over(one) == DiskUsage() and await self._look_at_disk() == DiskUsage())):
            one.usage, one.since = one.now, began


class Metered:
    """A `Sandbox` on the disk that `disk` watches."""

    def __init__(self, inner: Sandbox, disk: QuotaProvider, key: str, one: _WatchedConversation) -> None:
        self.runs_commands = inner.runs_commands
        self.read, self.stat, self.ls, self.glob, self.grep = inner.read, inner.stat, inner.ls, inner.glob, inner.grep
        self._inner, self._disk, self._key, self._one = inner, disk, key, one

    @property
    def gone(self) -> bool:
        """See `Sandbox.gone`."""
        return self._inner.gone

    async def run(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 120,
        max_output: int = 64_000,
        on_output: Callable[[str], Awaitable[None]] | None = None,
    ) -> CommandResult:
        """See `Sandbox.run`. Raises SandboxError with the reason when the sandbox was stopped for its files."""
        one, note = self._one, ""
        try:
            result = await self._inner.run(
                command, cwd=cwd, env=env, timeout=timeout, max_output=max_output, on_output=on_output
            )
        except SandboxGone:
            async with one.lock:  # until its files are deleted
                if one.stopped is not self._inner:
                    raise
            one.told = True
            raise SandboxError(one.note) from None
        if not one.told:
            one.told, note = True, f"[{one.note}]\n"
        if result.exit_code != 0 and _no_space(result.output):
            note += f"[{await run_file_work(_room, one.folder)}]\n"
        return replace(result, output=result.output + note) if note else result

    @asynccontextmanager
    async def dial(self, port: int) -> AsyncIterator[Ends]:
        """A connection to a port of this very machine, not of one that came after it. See `PortDialer`."""
        if self.gone:
            raise SandboxGone("The sandbox has stopped, and its servers with it.")
        async with self._disk.dial(self._key, self._one.folder, port) as ends:
            yield ends

    async def write(self, path: str, data: bytes, *, append: bool = False) -> None:
        """See `Sandbox.write`."""
        try:
            await self._inner.write(path, data, append=append)
        except SandboxFileError as fault:
            if not _no_space(str(fault)):
                raise
            raise SandboxFileError(f"{fault}: {await run_file_work(_room, self._one.folder)}") from fault


def _no_space(said: str) -> bool:
    return any(mark in said for mark in NO_SPACE)


def _room(folder: Path) -> str:
    """What can still be written to a conversation's folders."""
    disk = os.statvfs(folder)
    left = f"{disk.f_bavail * disk.f_frsize >> 20:,} MB and {disk.f_favail:,} files"
    if os.path.ismount(folder):
        return f"the conversation has room for {left} more (sandbox.disk_mb); delete what is not needed"
    return f"the disk of this machine has room for {left} more"


def _removed(freed: DiskUsage, largest: list[tuple[int, str]]) -> str:
    """Which files went, in words."""
    if not freed.files:
        return " Nothing was deleted."
    names = ", ".join(f"{shown_path(name)} ({size / (1 << 20):,.1f} MB)" for size, name in largest)
    more = f" and {freed.files - len(largest):,} more" if freed.files > len(largest) else ""
    return f" Removed, as they were made last: {names}{more}."
