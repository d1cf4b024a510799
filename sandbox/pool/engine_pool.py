"""Pools whose sandboxes have a proxy of their own, and those that an engine keeps when the service has died."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sandbox.base import OUTPUTS, UPLOADS, SandboxError, StreamPair
from sandbox.disk import safe_files
from sandbox.disk.file_threads import run_file_work
from sandbox.disk.removal import remove_tree
from sandbox.network.service import EgressService
from sandbox.pool.pool import S, SandboxPool

log = logging.getLogger(__name__)


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
            log.warning("sandbox.reap %s", error)
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
