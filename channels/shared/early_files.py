"""Files that a platform keeps for minutes only: fetched early when their turn is late, and kept until it comes."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path

from agent.messages import Attachment
from channels.base import ChannelError
from channels.shared import file_limits
from channels.shared.http_client import opened_file

log = logging.getLogger(__name__)

KEPT_SECONDS = 3600.0  # for so long a fetched file waits for its turn
MAX_KEPT_FILES = 200
MAX_KEPT_BYTES = 2 << 30


class EarlyFiles:
    """The files of messages that wait for their turn, in a folder that lasts as long as the channel.

    `download` begins to download one, and raises ChannelError; `limit` is in bytes.
    """

    def __init__(self, download: Callable[[Attachment], AsyncGenerator[bytes, None]], limit: int) -> None:
        self._download = download
        self._limit = limit
        self._folder: asyncio.Future[str] | None = None  # its path, once it is made
        self._fetching: dict[str, asyncio.Task[None]] = {}
        self._kept: dict[str, tuple[float, int]] = {}  # name → time.monotonic() of its end, bytes

    async def fetch_early(self, attachment: Attachment) -> None:
        """Fetch a file now, while the platform has it. A failure is left to the turn, which tries again."""
        await self._drop_old()
        size = sum(size for _end, size in self._kept.values())
        if len(self._kept) + len(self._fetching) >= MAX_KEPT_FILES or size > MAX_KEPT_BYTES:
            log.warning("file.not_fetched_early reason=%s", "too many files wait")
            return
        name = _name_of(attachment)
        if name not in self._kept and name not in self._fetching:
            task = self._fetching[name] = asyncio.create_task(self._keep(attachment, name), name=f"early file {name}")
            task.add_done_callback(lambda _task: self._fetching.pop(name, None))
            await asyncio.wait({task})

    async def open_file(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        """Return the chunks of a file, fetched early or now."""
        name = _name_of(attachment)
        if task := self._fetching.get(name):
            await asyncio.wait({task})
        await self._drop_old()
        kept = self._kept.get(name)
        return _read(await self._path(name)) if kept else self._download(attachment)

    async def close(self) -> None:
        """Stop fetching, and delete what is kept: the platform has it for some minutes still."""
        tasks = {*self._fetching.values()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        folder, self._folder = self._folder, None
        self._kept.clear()
        if folder:
            await asyncio.to_thread(shutil.rmtree, await folder, ignore_errors=True)

    async def _path(self, name: str) -> Path:
        """Return where a file is kept. The first one makes the folder."""
        if self._folder is None:
            self._folder = asyncio.ensure_future(asyncio.to_thread(tempfile.mkdtemp, prefix="fawn-files-"))
        return Path(await self._folder) / name

    async def _drop_old(self) -> None:
        now = time.monotonic()
        for name in [name for name, (end, _size) in self._kept.items() if end < now]:
            del self._kept[name]
            await asyncio.to_thread((await self._path(name)).unlink, missing_ok=True)

    async def _keep(self, attachment: Attachment, name: str) -> None:
        path = await self._path(name)
        try:
            size = await self._fetch(attachment, path)
        except (ChannelError, OSError) as error:
            log.warning("file.not_fetched_early reason=%s", error)
            await asyncio.to_thread(path.unlink, missing_ok=True)
        else:
            self._kept[name] = time.monotonic() + KEPT_SECONDS, size

    async def _fetch(self, attachment: Attachment, path: Path) -> int:
        """Write a file and return its size. Raises ChannelError and OSError."""
        size = 0
        async with opened_file(path, "wb") as file, aclosing(self._download(attachment)) as chunks:
            async for chunk in chunks:
                size += len(chunk)
                if size > self._limit:
                    raise file_limits.too_large(self._limit)
                await asyncio.to_thread(file.write, chunk)
        return size


async def _read(path: Path) -> AsyncGenerator[bytes, None]:
    async with opened_file(path) as file:
        while chunk := await asyncio.to_thread(file.read, file_limits.CHUNK):
            yield chunk


def _name_of(attachment: Attachment) -> str:
    return hashlib.blake2b(attachment.ref.encode(), digest_size=16).hexdigest()
