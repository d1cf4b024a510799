"""The pool of running sandboxes: the base of both providers.

Pools whose sandboxes have a proxy of their own, and those that an engine keeps when the service has died.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from catalogue import N_
from sandbox.base import OUTPUTS, UPLOADS, SandboxError, SandboxGone, StreamPair
from sandbox.disk import safe_files
from sandbox.disk.file_threads import run_file_work
from sandbox.disk.folders import remove_tree
from sandbox.network.service import EgressService
from sandbox.wire.client import StreamSandbox

log = logging.getLogger(__name__)

S = TypeVar("S", bound=StreamSandbox)
ROOM_TIMEOUT_SECONDS = 30.0  # for a sandbox to become idle
STOP_SECONDS = 20.0  # then it is abandoned, so that its key can be used again


@dataclass(slots=True)
class _PooledSandbox(Generic[S]):
    """A running sandbox and the number of its users."""

    sandbox: S
    folder: Path
    users: int = 0
    idle_since: float = field(default_factory=time.monotonic)


class SandboxPool(Generic[S]):
    """Run at most `capacity` sandboxes. `start` starts the one of a key. `stop` stops it; without a sandbox, `stop`
    removes what a previous process left for that key."""

    def __init__(
        self,
        start: Callable[[str, Path], Awaitable[S]],
        stop: Callable[[str, S | None], Coroutine[Any, Any, None]],
        capacity: int,
        room_seconds: float = ROOM_TIMEOUT_SECONDS,
        stop_seconds: float = STOP_SECONDS,
    ) -> None:
        self._start, self._stop, self._capacity = start, stop, capacity
        self._room_seconds, self._stop_seconds = room_seconds, stop_seconds
        self._live: dict[str, _PooledSandbox[S]] = {}
        self._starting: dict[str, asyncio.Task[_PooledSandbox[S]]] = {}
        self._stopping: dict[str, asyncio.Task[None]] = {}
        self._start_count = 0  # starts that have a place
        self._released = asyncio.Event()

    @property
    def keys(self) -> set[str]:
        """The keys of the sandboxes that run, start or stop."""
        return {*self._live, *self._starting, *self._stopping}

    @asynccontextmanager
    async def acquire(self, key: str, folder: Path) -> AsyncIterator[S]:
        """See `SandboxProvider.acquire`. Concurrent callers share one sandbox."""
        live = await self._get_or_start(key, folder)
        try:
            yield live.sandbox
        finally:
            live.users -= 1
            live.idle_since = time.monotonic()
            self._released.set()

    async def _get_or_start(self, key: str, folder: Path) -> _PooledSandbox[S]:
        while True:
            live = self._live.get(key)
            if live and not live.sandbox.gone:
                if live.folder != folder:
                    raise ValueError(f"sandbox {key} is already used with another folder")
                live.users += 1
                return live
            if key not in self._starting:
                task = self._starting[key] = asyncio.create_task(
                    self._begin_start(key, folder), name=f"sandbox-start:{key}"
                )
                task.add_done_callback(lambda task: self._started(key, task))
            task = self._starting[key]
            try:
                await asyncio.shield(task)  # one cancelled caller must not cancel the start for others
            except asyncio.CancelledError:
                if task.cancelled() and not asyncio.current_task().cancelling():  # type: ignore[union-attr]  # this runs in a task
                    raise SandboxGone(N_("The sandbox was stopped while it started.")) from None
                raise

    def _started(self, key: str, task: asyncio.Task[_PooledSandbox[S]]) -> None:
        del self._starting[key]
        if not task.cancelled():
            task.exception()  # retrieve it, in case all callers were cancelled

    async def _begin_start(self, key: str, folder: Path) -> _PooledSandbox[S]:
        if key in self._live or key in self._stopping:  # it has ended; the new one may have the same name and folders
            await self._begin_stop(key)
        await self._make_room()
        self._start_count += 1
        try:
            live = self._live[key] = _PooledSandbox(await self._start(key, folder), folder)
            return live
        finally:
            self._start_count -= 1
            self._released.set()

    async def _make_room(self) -> None:
        """Stop the least recently used idle sandbox, or wait until one is idle. Raises SandboxError."""
        try:
            async with asyncio.timeout(self._room_seconds):
                while len(self._live) + self._start_count >= self._capacity:
                    idle = [(live.idle_since, key) for key, live in self._live.items() if not live.users]
                    if idle:
                        log.info("sandbox.evicted", extra={"sandbox": min(idle)[1]})
                        await self.destroy(min(idle)[1])
                    else:
                        self._released.clear()
                        await self._released.wait()
        except TimeoutError:
            text = N_("All {n} sandboxes are in use by other conversations (`sandbox.live`): try again later.")
            raise SandboxError(text, n=self._capacity) from None

    async def reap(self, idle: float) -> list[str]:
        before = time.monotonic() - idle
        keys = [key for key, live in self._live.items() if not live.users and live.idle_since <= before]
        await asyncio.gather(*[self._begin_stop(key) for key in keys])
        return keys

    async def destroy(self, key: str) -> None:
        """See `SandboxProvider.destroy`. Also cancels a start, and removes what a previous process left."""
        while task := self._starting.get(key):
            task.cancel()
            await asyncio.wait([task])
        await self._begin_stop(key)

    def _begin_stop(self, key: str) -> Awaitable[None]:
        """Remove the sandbox from the pool now. The result is done when it has stopped."""
        if key not in self._stopping:
            live = self._live.pop(key, None)
            stop = self._stop_bounded(key, live.sandbox if live else None)
            self._stopping[key] = asyncio.create_task(stop, name=f"sandbox-stop:{key}")
        return asyncio.shield(self._stopping[key])

    async def _stop_bounded(self, key: str, sandbox: S | None) -> None:
        try:
            async with asyncio.timeout(self._stop_seconds):
                await self._stop(key, sandbox)
        except TimeoutError:
            log.warning("sandbox.left_behind", extra={"sandbox": key})
        finally:
            del self._stopping[key]
            self._released.set()

    async def close(self) -> None:
        await asyncio.gather(*(self.destroy(key) for key in self.keys))


class ConnectedPool(SandboxPool[S]):
    """A pool whose sandboxes reach the network, and are reached, through the proxies of `egress`."""

    def __init__(
        self,
        start: Callable[[str, Path], Awaitable[S]],
        stop: Callable[[str, S | None], Coroutine[Any, Any, None]],
        capacity: int,
        egress: EgressService,
    ) -> None:
        super().__init__(start, stop, capacity)
        self._egress = egress

    @asynccontextmanager
    async def dial(self, key: str, folder: Path, port: int) -> AsyncIterator[StreamPair]:
        """Connect to a port of the sandbox of a key."""
        async with self.acquire(key, folder) as sandbox, self._egress.dial(key, sandbox, port) as ends:
            yield ends

    async def close(self) -> None:
        """Stop the sandboxes, then the proxies."""
        await super().close()
        await self._egress.aclose()


class EnginePool(ConnectedPool[S]):
    """A pool of sandboxes that an engine runs. `_reap_leftovers` removes those that a previous process left idle."""

    async def reap(self, idle: float) -> list[str]:
        """See `SandboxProvider.reap`. The idle time of what a previous process left begins when it is first seen."""
        keys = await super().reap(idle)
        try:
            return keys + await self._reap_leftovers(idle)
        except SandboxError as error:
            log.warning("sandbox.reap reason=%s", error)
            return keys

    async def _reap_leftovers(self, idle: float) -> list[str]:
        """Remove them; return their keys. Raises SandboxError."""
        raise NotImplementedError

    async def _exchange_file(self, state: Path, look: Callable[[S], Awaitable[None]] | None = None) -> bool:
        """Let a sandbox read a file of the service and write it back; return whether it is the same.

        `look` sees the sandbox. Raises SandboxError.
        """
        key = f"check-{secrets.token_hex(8)}"
        folder = state / key
        try:
            await run_file_work(safe_files.make_folders, folder)
            await run_file_work(safe_files.write_file, folder / "uploads", "question", b"seen")
            async with self.acquire(key, folder) as sandbox:
                await sandbox.write(f"{OUTPUTS}/answer", await sandbox.read(f"{UPLOADS}/question"))
                if look:
                    await look(sandbox)
            return await asyncio.to_thread(safe_files.read_file, folder / "outputs", "answer", 100) == b"seen"
        finally:
            await self.destroy(key)
            await run_file_work(remove_tree, folder)
