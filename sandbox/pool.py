"""The pool of running sandboxes, shared by all providers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from sandbox.base import SandboxError, SandboxGone
from sandbox.wire.client import StreamSandbox

log = logging.getLogger(__name__)

S = TypeVar("S", bound=StreamSandbox)
ROOM_TIMEOUT_SECONDS = 30.0  # seconds to wait for one of the others to end when all are in use
STOP_SECONDS = 20.0  # after which one that does not stop is left behind, so that its key can be used again


@dataclass(slots=True)
class _PooledSandbox(Generic[S]):
    """A running machine and who uses it."""

    sandbox: S
    folder: Path
    users: int = 0
    idle_since: float = field(default_factory=time.monotonic)


class SandboxPool(Generic[S]):
    """At most `most` machines at once. `start` makes the one of a key, `stop` ends it (its folders stay); told of none,
    it removes what an earlier life of the service may have left of that key."""

    def __init__(
        self,
        start: Callable[[str, Path], Awaitable[S]],
        stop: Callable[[str, S | None], Coroutine[Any, Any, None]],
        most: int,
        patience: float = ROOM_TIMEOUT_SECONDS,
        stop_seconds: float = STOP_SECONDS,
    ) -> None:
        self._start, self._stop, self._most = start, stop, most
        self._patience, self._stop_seconds = patience, stop_seconds
        self._live: dict[str, _PooledSandbox[S]] = {}
        self._starting: dict[str, asyncio.Task[_PooledSandbox[S]]] = {}
        self._stopping: dict[str, asyncio.Task[None]] = {}
        self._begun = 0  # starts that have room already
        self._left = asyncio.Event()

    @property
    def keys(self) -> set[str]:
        """Machines that run, start or stop."""
        return {*self._live, *self._starting, *self._stopping}

    @asynccontextmanager
    async def acquire(self, key: str, folder: Path) -> AsyncIterator[S]:
        """See `SandboxProvider.acquire`. Two who come at once get the same machine, started once."""
        live = await self._get_or_start(key, folder)
        try:
            yield live.sandbox
        finally:
            live.users -= 1
            live.idle_since = time.monotonic()
            self._left.set()

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
                await asyncio.shield(task)  # one who gives up does not take it from the others
            except asyncio.CancelledError:
                if task.cancelled() and not asyncio.current_task().cancelling():  # type: ignore[union-attr]  # in a task
                    raise SandboxGone("The sandbox was stopped while it started.") from None
                raise

    def _started(self, key: str, task: asyncio.Task[_PooledSandbox[S]]) -> None:
        del self._starting[key]
        if not task.cancelled():
            task.exception()  # seen, also when everybody who waited for it has gone

    async def _begin_start(self, key: str, folder: Path) -> _PooledSandbox[S]:
        if key in self._live or key in self._stopping:  # it is dead: the new one may have the same name and places
            await self._stop_sandbox(key)
        await self._make_room()
        self._begun += 1
        try:
            live = self._live[key] = _PooledSandbox(await self._start(key, folder), folder)
            return live
        finally:
            self._begun -= 1
            self._left.set()

    async def _make_room(self) -> None:
        """Stop the idle machine that was used least recently; where all are in use, wait for one. Raises
        SandboxError."""
        try:
            async with asyncio.timeout(self._patience):
                while len(self._live) + self._begun >= self._most:
                    idle = [(live.idle_since, key) for key, live in self._live.items() if not live.users]
                    if idle:
                        log.info("sandbox.evicted", extra={"sandbox": min(idle)[1]})
                        await self.stop_now(min(idle)[1])
                    else:
                        self._left.clear()
                        await self._left.wait()
        except TimeoutError:
            raise SandboxError(
                f"All {self._most} sandboxes are in use by other conversations (`sandbox.live`): try again later."
            ) from None

    async def reap(self, idle: float) -> list[str]:
        """Stop the machines that nobody used for `idle` seconds; their keys."""
        before = time.monotonic() - idle
        keys = [key for key, live in self._live.items() if not live.users and live.idle_since <= before]
        await asyncio.gather(*[self._stop_sandbox(key) for key in keys])
        return keys

    async def stop_now(self, key: str) -> None:
        """Stop this machine, its start, or what is left of it, now."""
        while task := self._starting.get(key):
            task.cancel()
            await asyncio.wait([task])
        await self._stop_sandbox(key)

    def _stop_sandbox(self, key: str) -> Awaitable[None]:
        """Nobody gets this machine any more, from now on; done when it has stopped."""
        if key not in self._stopping:
            live = self._live.pop(key, None)
            task = asyncio.create_task(
                self._stop_bounded(key, live.sandbox if live else None), name=f"sandbox-stop:{key}"
            )
            self._stopping[key] = task
            task.add_done_callback(lambda _: self._stopped(key))
        return asyncio.shield(self._stopping[key])

    async def _stop_bounded(self, key: str, sandbox: S | None) -> None:
        try:
            async with asyncio.timeout(self._stop_seconds):
                await self._stop(key, sandbox)
        except TimeoutError:
            log.warning("sandbox.left_behind", extra={"sandbox": key})

    def _stopped(self, key: str) -> None:
        del self._stopping[key]
        self._left.set()

    async def close(self) -> None:
        """Stop all of them."""
        await asyncio.gather(*(self.stop_now(key) for key in self.keys))
