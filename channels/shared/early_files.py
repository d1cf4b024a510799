"""Files that a platform keeps for minutes only: fetched early when their turn is late, and kept until it comes.

What waits is in the channel's `StateStore`, and what was fetched in its folder, so that a process after a kill goes on.
Both are the person's who sent the file, and end with what else is stored of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterable, MutableMapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

import orjson

from agent.messages import Attachment
from channels.base import FILE_ITEM, ChannelError, NotStored, StateStore
from channels.shared.files import CHUNK, too_large
from channels.shared.http_client import opened_file

log = logging.getLogger(__name__)

KEPT_SECONDS = 3600.0  # for so long a fetched file waits for its turn
MAX_KEPT_FILES = 200
MAX_KEPT_BYTES = 2 << 30
_PART = ".part"  # behind the name of a file that is being fetched


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A file that waits for its turn: `bytes` is its size once it is fetched, until then -1."""

    file: Attachment
    until: float  # Unix time
    bytes: int = -1
    name: str = ""  # that came with it

    def dump(self) -> str:
        return orjson.dumps(asdict(self)).decode()


class EarlyFiles:
    """The files of messages that wait for their turn.

    `download` begins to download one, and raises ChannelError; `limit` is in bytes. The platform has a file for
    `seconds`. `names` are those that came with fetched files, by `Attachment.ref`.
    """

    def __init__(
        self,
        download: Callable[[Attachment], AsyncGenerator[bytes, None]],
        limit: int,
        seconds: float,
        names: MutableMapping[str, str],
    ) -> None:
        self.state: StateStore
        self._download = download
        self._limit = limit
        self._seconds = seconds
        self._names = names
        self._fetching: dict[str, asyncio.Task[None]] = {}
        self._waiting: dict[str, _Waiting] = {}  # by the name of the file in the folder

    async def restore(self) -> Sequence[Attachment]:
        """Learn what earlier processes fetched, and return what they could not fetch any more. Raises NotStored."""
        stored = {name: text for name, text in (await self.state.load()).items() if name.startswith(FILE_ITEM)}
        known = {name.removeprefix(FILE_ITEM): _load(text) for name, text in stored.items()}
        sizes = await asyncio.to_thread(_clear_folder, self.state.folder, known)
        now = time.time()
        for name, each in known.items():
            if each.until > now and each.bytes in (-1, sizes.get(name, -1)):
                self._waiting[name] = each
                if each.bytes >= 0:
                    self._names[each.file.ref] = each.name
        if over := known.keys() - self._waiting.keys():
            await self._drop(over)
        return [each.file for each in self._waiting.values() if each.bytes < 0]

    async def expect(self, files: Iterable[Attachment], person: str) -> None:
        """Note files that wait for their turn, which this person sent."""
        until = time.time() + self._seconds
        new = {name_of(file): _Waiting(file, until) for file in files if name_of(file) not in self._waiting}
        await self._drop_old()
        if new:
            self._waiting |= new
            await self._store({name: each.dump() for name, each in new.items()}, of=person, until=until)

    async def fetch_early(self, attachment: Attachment) -> None:
        """Fetch a file now, while the platform has it. A failure is left to the turn, which tries again."""
        await self._drop_old()
        kept = [each.bytes for each in self._waiting.values() if each.bytes >= 0]
        if len(kept) + len(self._fetching) >= MAX_KEPT_FILES or sum(kept) > MAX_KEPT_BYTES:
            log.warning("file.not_fetched_early reason=%s", "too many files wait")
            return
        name = name_of(attachment)
        if not self._is_kept(name) and name not in self._fetching:
            task = self._fetching[name] = asyncio.create_task(self._keep(attachment, name), name=f"early file {name}")
            task.add_done_callback(lambda _task: self._fetching.pop(name, None))
            await asyncio.wait({task})

    async def open_file(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        """Return the chunks of a file, fetched early or now."""
        name = name_of(attachment)
        if task := self._fetching.get(name):
            await asyncio.wait({task})
        await self._drop_old()
        if self._is_kept(name) and await asyncio.to_thread((path := self.state.folder / name).exists):
            return _read(path)
        return self._download(attachment)

    async def close(self) -> None:
        """Stop fetching. What was fetched stays for the next process."""
        tasks = {*self._fetching.values()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _is_kept(self, name: str) -> bool:
        return name in self._waiting and self._waiting[name].bytes >= 0

    async def _drop_old(self) -> None:
        now = time.time()
        await self._drop({name for name, each in self._waiting.items() if each.until < now})

    async def _drop(self, names: Iterable[str]) -> None:
        for name in (over := [*names]):
            self._waiting.pop(name, None)
            await asyncio.to_thread((self.state.folder / name).unlink, missing_ok=True)
        if over:
            await self._store(dict.fromkeys(over))

    async def _store(
        self, changes: dict[str, str] | dict[str, str | None], *, of: str = "", until: float | None = None
    ) -> None:
        try:
            await self.state.save({f"{FILE_ITEM}{name}": text for name, text in changes.items()}, of=of, until=until)
        except NotStored as error:  # only a kill would make a difference
            log.warning("file.not_noted reason=%s", error)

    async def _keep(self, attachment: Attachment, name: str) -> None:
        path = self.state.folder / f"{name}{_PART}"
        try:
            await asyncio.to_thread(self.state.folder.mkdir, mode=0o700, parents=True, exist_ok=True)
            size = await self._fetch(attachment, path)
            await asyncio.to_thread(path.replace, self.state.folder / name)
        except (ChannelError, OSError) as error:
            log.warning("file.not_fetched_early reason=%s", error)
            await asyncio.to_thread(path.unlink, missing_ok=True)
            return
        given, until = self._names.get(attachment.ref, ""), time.time() + KEPT_SECONDS
        kept = self._waiting[name] = _Waiting(attachment, until, size, given)
        try:
            is_wanted = await self.state.renew(f"{FILE_ITEM}{name}", kept.dump(), until=until)
        except NotStored as error:  # only a kill would make a difference
            log.warning("file.not_noted reason=%s", error)
            return
        if not is_wanted:  # its person was forgotten while it came
            await self._drop({name})

    async def _fetch(self, attachment: Attachment, path: Path) -> int:
        """Write a file to the disk and return its size. Raises ChannelError and OSError."""
        size = 0
        async with opened_file(path, "wb") as file, aclosing(self._download(attachment)) as chunks:
            async for chunk in chunks:
                size += len(chunk)
                if size > self._limit:
                    raise too_large(self._limit)
                await asyncio.to_thread(file.write, chunk)
            await asyncio.to_thread(_flush, file)
        return size


async def _read(path: Path) -> AsyncGenerator[bytes, None]:
    async with opened_file(path) as file:
        while chunk := await asyncio.to_thread(file.read, CHUNK):
            yield chunk


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _load(text: str) -> _Waiting:
    raw = orjson.loads(text)
    return _Waiting(**{**raw, "file": Attachment(**raw["file"])})


def _clear_folder(folder: Path, known: Iterable[str]) -> dict[str, int]:
    """Remove what a kill left half-fetched; return the sizes of the other files by their names."""
    names, found = {*known}, {}
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name in names:
            found[path.name] = path.stat().st_size
        else:
            path.unlink()
    return found


def name_of(attachment: Attachment) -> str:
    """Return the name under which a file is kept."""
    return hashlib.blake2b(attachment.ref.encode(), digest_size=16).hexdigest()
