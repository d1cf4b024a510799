"""Pods that run before a conversation needs one. Each serves one conversation, and is never given to another."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from sandbox.base import SandboxError
from sandbox.kubernetes.spec import LIFE_SECONDS

log = logging.getLogger(__name__)

MAX_AGE_SECONDS = LIFE_SECONDS / 4  # so that a conversation has most of a pod's life, and new images arrive
LOOK_SECONDS = 60.0
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 2.0, 300.0


class Endable(Protocol):
    """A sandbox that may have ended."""

    @property
    def gone(self) -> bool: ...


P = TypeVar("P", bound=Endable)


class ReadyPods(Generic[P]):
    """Keep `count` pods ready. `start` starts one and returns it when it runs, `end` deletes one."""

    def __init__(
        self,
        count: int,
        start: Callable[[], Awaitable[P]],
        end: Callable[[P], Awaitable[None]],
    ) -> None:
        self._count, self._start, self._end = count, start, end
        self._ready: list[tuple[float, P]] = []  # when they began, the oldest first
        self._missing = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self.unusable = ""  # why this volume or cluster cannot use them

    def __len__(self) -> int:
        return len(self._ready)

    def begin(self) -> None:
        """Start to keep pods ready, once."""
        if self._count and not self.unusable and self._keeper is None:
            self._keeper = asyncio.create_task(self._keep(), name="ready-pods")

    def take(self) -> P | None:
        """Take the oldest pod that runs; None without one."""
        for began, pod in self._ready:
            if not pod.gone:
                self._ready.remove((began, pod))
                self._missing.set()
                return pod
        return None

    async def fill(self, count: int) -> None:
        """Start what is missing of so many. Raises SandboxError, OSError."""
        await self._end_old()
        while len(self._ready) < count:
            self._ready.append((time.monotonic(), await self._start()))

    def give_up(self, reason: str) -> None:
        """Keep none any more."""
        log.warning("sandbox.ready_pods_unusable reason=%s", reason)
        self.unusable = reason
        self._missing.set()

    async def close(self) -> None:
        """Delete all that nobody has taken."""
        if self._keeper:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        await self._end_all()

    async def _keep(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while not self.unusable:
            self._missing.clear()
            try:
                await self.fill(self._count)
                pause = FIRST_PAUSE_SECONDS
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._missing.wait()
            except (SandboxError, OSError) as error:  # no room, no quota, a full disk, the API is away
                log.warning("sandbox.ready_pods reason=%s", error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
        await self._end_all()

    async def _end_all(self) -> None:
        pods, self._ready = [pod for _, pod in self._ready], []
        await asyncio.gather(*(self._end(pod) for pod in pods))

    async def _end_old(self) -> None:
        """Delete the pods that have ended, or are old."""
        before = time.monotonic() - MAX_AGE_SECONDS
        for began, pod in list(self._ready):
            if pod.gone or began < before:
                self._ready.remove((began, pod))
                await self._end(pod)
