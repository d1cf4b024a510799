"""A bound on what each conversation's folders hold, for every kind of sandbox.

Where a conversation has an image of its own (`sandbox.disk.loop_images`), the kernel keeps it. Else the host measures
with `du`.
That costs nothing while nobody writes: a look at the file system's free space says whether a conversation can have come
near its bound since it was measured last; only while its commands run it is measured every few seconds anyway, because
some file systems count late. What is over the bound may still delete, but not grow: a command that does is stopped, and
where something in the background does, the whole sandbox is.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from sandbox.base import FOLDERS, FileFault, Gone, Result, Sandbox, SandboxError, SandboxProvider, SandboxUnavailable
from sandbox.disk.file_threads import file_work
from sandbox.disk.loop_images import Images
from sandbox.network.proxy import Ends
from sandbox.settings import NO_SPACE

log = logging.getLogger(__name__)

TICK = 2.0  # seconds between two looks at the free space
OFTEN = 6.0  # seconds between two measurements while commands run
SHARE = 20  # a measurement that took a second is followed by so many without one
FILES = 500_000  # inodes: a disk can be full of empty files
SLACK = 1 << 20  # bytes that do not count as growth
MEASURE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Usage:
    """What folders hold on the disk: bytes (of sparse files only what is there) and files."""

    size: int = 0
    files: int = 0


@runtime_checkable
class Dials(Protocol):
    """A provider whose machines can be connected to."""

    def dial(self, key: str, folder: Path, port: int) -> AbstractAsyncContextManager[Ends]:
        """A connection to a port on the loopback of this machine, which counts as used meanwhile. Raises SandboxError
        when nothing listens there."""


@dataclass(slots=True)
class _Command:
    """One that runs. `base` is what was there when it began; `scope` ends it."""

    base: Usage | None
    scope: asyncio.Timeout = field(default_factory=lambda: asyncio.timeout(None))


@dataclass(slots=True)
class _Conversation:
    """One whose machine is live, and what is known of its folders; with `image` nothing has to be. `low` is the free
    space that was seen last, `lost` what went since the last measurement, both as (bytes, files)."""

    folder: Path
    machine: Sandbox | None = None
    image: bool = False
    usage: Usage | None = None
    over: bool = False
    commands: list[_Command] = field(default_factory=list)
    low: tuple[int, int] = (0, 0)
    lost: tuple[int, int] = (0, 0)
    measured: float = 0.0
    cost: float = 0.0
    strikes: int = 0
    note: str = ""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Disk:
    """A `SandboxProvider` around another one. `watch` has to run beside it."""

    def __init__(self, inner: SandboxProvider, images: Images, files: int = FILES, tick: float = TICK) -> None:
        self.name, self.runs_commands = inner.name, inner.runs_commands
        self._inner, self._images, self._most, self._tick = inner, images, Usage(images.size, files), tick
        self._known: dict[str, _Conversation] = {}

    async def check(self) -> None:
        """See `SandboxProvider.check`."""
        await self._inner.check()

    @asynccontextmanager
    async def acquire(self, key: str, folder: Path) -> AsyncIterator[Sandbox]:
        """See `SandboxProvider.acquire`."""
        async with self._images.open(folder) as image, self._inner.acquire(key, folder) as sandbox:
            if not sandbox.runs_commands:  # files that the model writes itself are small and few
                yield sandbox
                return
            one = self._known.setdefault(key, _Conversation(folder))
            one.machine, one.image = sandbox, image
            yield Metered(sandbox, self, key, one)

    async def reap(self, idle: float) -> list[str]:
        """See `SandboxProvider.reap`."""
        keys = await self._inner.reap(idle)
        for key in keys:
            self._known.pop(key, None)
        live = {one.folder for one in self._known.values() if one.machine and not one.machine.gone}
        await self._images.release(keep=live)
        return keys

    async def destroy(self, key: str) -> None:
        """See `SandboxProvider.destroy`."""
        self._known.pop(key, None)
        await self._inner.destroy(key)

    async def close(self) -> None:
        """See `SandboxProvider.close`."""
        await self._inner.close()
        await self._images.release(0)

    @asynccontextmanager
    async def dial(self, key: str, folder: Path, port: int) -> AsyncIterator[Ends]:
        """See `Dials`."""
        if not isinstance(self._inner, Dials):
            raise SandboxUnavailable("This kind of sandbox cannot show its ports.")
        async with self._images.open(folder), self._inner.dial(key, folder, port) as ends:
            yield ends

    async def watch(self) -> None:
        """Keep everybody within the bound, for ever."""
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(self._tick)
                await file_work(_look, list(self._known.values()))
                for key, one in list(self._known.items()):
                    if one.machine and one.machine.gone and not one.note:
                        del self._known[key]
                    elif not one.lock.locked() and self._suspect(one):
                        group.create_task(self._guard(key, one), name=f"disk:{key}")

    def _suspect(self, one: _Conversation) -> bool:
        if one.image:
            return False
        if one.usage is None:
            return True
        if one.commands and time.monotonic() - one.measured >= max(OFTEN, SHARE * one.cost):
            return True
        left = (max(0, self._most.size - one.usage.size), max(0, self._most.files - one.usage.files))
        return any(lost and lost >= room / 2 for lost, room in zip(one.lost, left, strict=True))

    async def _guard(self, key: str, one: _Conversation) -> None:
        try:
            before, usage = one.usage, await self.measure(one)
            if one.over:
                await self._stop(key, one, before, usage)
        except (OSError, TimeoutError, ValueError, SandboxError) as error:
            log.warning("disk.unmeasured sandbox=%s reason=%r", key, error)

    async def _stop(self, key: str, one: _Conversation, before: Usage | None, usage: Usage) -> None:
        """End what grew although it is over the bound: commands, or else the machine with whatever is in it."""
        growing = [command for command in one.commands if command.base and _grown(command.base, usage)]
        for command in growing:
            log.warning("disk.full sandbox=%s bytes=%d files=%d — its command is stopped", key, usage.size, usage.files)
            command.scope.reschedule(asyncio.get_running_loop().time())
        # Twice: between a measurement and the end of a command that it stopped, some more is written.
        one.strikes = one.strikes + 1 if not growing and before and _grown(before, usage) else 0
        if one.strikes == 2:
            log.warning("disk.full sandbox=%s bytes=%d files=%d — it is stopped", key, usage.size, usage.files)
            one.note = f"[The sandbox was stopped, with all that ran in it: {self.words(usage)}]\n"
            await self._inner.destroy(key)

    async def measure(self, one: _Conversation) -> Usage:
        """What the folders hold now. Raises OSError, TimeoutError, ValueError."""
        async with one.lock:
            begun, one.lost = time.monotonic(), (0, 0)
            one.usage = await measure([one.folder / name for name in FOLDERS])
            one.measured = time.monotonic()
            one.cost = one.measured - begun
            one.over = one.usage.size > self._most.size or one.usage.files > self._most.files
            for command in one.commands:
                command.base = command.base or one.usage
            return one.usage

    def words(self, usage: Usage) -> str:
        """Which bound it is, and what helps."""
        if usage.size > self._most.size:
            what = f"take {usage.size >> 20:,} MB of the disk, and {self._most.size >> 20:,} MB are allowed"
        else:
            what = f"are {usage.files:,}, and {self._most.files:,} are allowed"
        return f"the files of this conversation {what} (sandbox.disk_mb). Delete some before you go on."


class Metered:
    """A `Sandbox` whose commands and writes stay within the bound of `disk`."""

    def __init__(self, inner: Sandbox, disk: Disk, key: str, one: _Conversation) -> None:
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
    ) -> Result:
        """See `Sandbox.run`. Raises SandboxError with the reason when the command filled the disk."""
        one = self._one
        running = _Command(one.usage)
        one.commands.append(running)
        try:
            async with running.scope:
                result = await self._inner.run(
                    command, cwd=cwd, env=env, timeout=timeout, max_output=max_output, on_output=on_output
                )
        except TimeoutError:
            if not running.scope.expired():
                raise
            raise SandboxError(f"The command was stopped: {self._disk.words(one.usage or Usage())}") from None
        finally:
            one.commands.remove(running)
        note, one.note = one.note, ""
        if result.exit_code != 0 and _no_space(result.output):
            note += f"[{await file_work(_room, one.folder)}]\n"
        return replace(result, output=result.output + note) if note else result

    @asynccontextmanager
    async def dial(self, port: int) -> AsyncIterator[Ends]:
        """A connection to a port of this very machine, not of one that came after it. See `Dials`."""
        if self.gone:
            raise Gone("The sandbox has stopped, and its servers with it.")
        async with self._disk.dial(self._key, self._one.folder, port) as ends:
            yield ends

    async def write(self, path: str, data: bytes, *, append: bool = False) -> None:
        """See `Sandbox.write`."""
        if self._one.over:
            usage = await self._disk.measure(self._one)
            if self._one.over:
                raise FileFault(f"{path}: nothing can be written: {self._disk.words(usage)}")
        try:
            await self._inner.write(path, data, append=append)
        except FileFault as fault:
            if not _no_space(str(fault)):
                raise
            raise FileFault(f"{fault}: {await file_work(_room, self._one.folder)}") from fault


def _no_space(said: str) -> bool:
    return any(mark in said for mark in NO_SPACE)


def _room(folder: Path) -> str:
    """What can still be written to a conversation's folders."""
    disk = os.statvfs(folder)
    left = f"{disk.f_bavail * disk.f_frsize >> 20:,} MB and {disk.f_favail:,} files"
    if os.path.ismount(folder):
        return f"the conversation has room for {left} more (sandbox.disk_mb); delete what is not needed"
    return f"the disk of this machine has room for {left} more"


def _grown(before: Usage, now: Usage) -> bool:
    return now.size > before.size + SLACK or now.files > before.files + 100


def _look(known: list[_Conversation]) -> None:
    """How much of the free space went since the last look, whoever took it."""
    for one in known:
        try:
            found = os.statvfs(one.folder)
        except OSError:
            continue  # deleted meanwhile
        free = (found.f_bavail * found.f_frsize, found.f_favail)
        one.lost = (one.lost[0] + max(0, one.low[0] - free[0]), one.lost[1] + max(0, one.low[1] - free[1]))
        one.low = free


async def measure(folders: list[Path]) -> Usage:
    """What `folders` hold. Raises OSError, TimeoutError, ValueError."""
    size, refused = await _du("-skx", folders)
    if refused and os.geteuid() != 0:
        # Somebody hides what he wrote from a service that is no root; his folders are ours to open again.
        await _ran("find", *map(str, folders), "-xdev", "-type", "d", "!", "-perm", "-700",
                   "-exec", "chmod", "u+rwx", "{}", ";")  # fmt: skip
        size, _ = await _du("-skx", folders)
    files, _ = await _du("-sx", folders, "--inodes")
    return Usage(size << 10, files)


async def _du(option: str, folders: list[Path], *more: str) -> tuple[int, bool]:
    """The sum that `du` gives, and whether it could not look everywhere."""
    said, complaint = await _ran("du", option, *more, "--", *map(str, folders))
    return sum(int(line.split(b"\t")[0]) for line in said.splitlines()), b"Permission denied" in complaint


async def _ran(*argv: str) -> tuple[bytes, bytes]:
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env={"PATH": os.defpath, "LC_ALL": "C"}
    )
    try:
        async with asyncio.timeout(MEASURE_SECONDS):
            return await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
