"""Keep the bytes of files on the channel `web`: `data_dir/web/ID`, complete or not there."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator, Collection
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from bot.database.database import Database
from bot.database.migrate import sync_path
from bot.storage import web_files
from catalogue import N_, _
from channels.base import Refused
from channels.shared.file_limits import CHUNK
from sandbox.disk.file_threads import run_file_work

WEB_FILES = "web"
YOUNG_SECONDS = 3600.0  # a file that is not complete yet may still be written for so long
GONE = N_("is not kept any more; please send it again")


class WebFiles:
    """The files below `data_dir`."""

    def __init__(self, data_dir: Path) -> None:
        self.folder = data_dir / WEB_FILES

    def path(self, id: str) -> Path:
        """Return where a file is."""
        return self.folder / id

    async def draft(self) -> Draft:
        """Begin a file that comes in pieces. Raises OSError."""
        return Draft(await run_file_work(open_draft, self.folder), self)

    async def adopt(self, id: str, source: Path) -> int:
        """Keep a copy of a finished file; return its size. Raises OSError."""
        return await run_file_work(_adopt, source, self.path(id))

    async def read(self, id: str) -> AsyncGenerator[bytes, None]:
        """Yield a file in chunks. Raises Refused where it is gone."""
        try:
            file = await run_file_work(open, self.path(id), "rb")
        except FileNotFoundError:
            raise Refused(_(GONE)) from None
        try:
            while chunk := cast(bytes, await run_file_work(file.read, CHUNK)):
                yield chunk
        finally:
            await run_file_work(file.close)

    async def sweep(self, store: Database) -> int:
        """Remove the files that no row names, which is there before its file; return how many."""
        old = await run_file_work(_kept_files, self.folder, time.time() - YOUNG_SECONDS)
        gone = await store.run(partial(web_files.unknown_ids, ids=old), durable=False) if old else set[str]()
        await run_file_work(_remove, [self.path(id) for id in gone])
        return len(gone)


class Draft:
    """A file that is not complete yet, without a name: what is left of it needs no cleanup."""

    def __init__(self, file: BinaryIO, files: WebFiles) -> None:
        self._file = file
        self._files = files
        self.size = 0

    async def write(self, chunk: bytes) -> None:
        """Add bytes. Raises OSError."""
        self.size += len(chunk)
        await run_file_work(self._file.write, chunk)

    async def keep(self, id: str) -> None:
        """Let it be the file `id`; it is on the disk when this returns. Raises OSError."""
        await run_file_work(_keep, self._file, self._files.path(id))

    async def close(self) -> None:
        """Drop what was not kept."""
        await asyncio.shield(run_file_work(self._file.close))


def open_draft(folder: Path) -> BinaryIO:
    """Open a new file, which is gone once it is closed. Blocks. Raises OSError."""
    folder.mkdir(mode=0o700, exist_ok=True)
    return cast(BinaryIO, tempfile.NamedTemporaryFile(dir=folder, prefix=".draft-"))


def _keep(file: BinaryIO, path: Path) -> None:
    file.flush()
    os.fsync(file.fileno())
    part = path.with_name(f".{path.name}")
    part.unlink(missing_ok=True)
    os.link(file.name, part)
    _put_in_place(part, path)


def _adopt(source: Path, path: Path) -> int:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    part = path.with_name(f".{path.name}")
    part.unlink(missing_ok=True)
    try:
        os.link(source, part)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, part)
    return _put_in_place(part, path)


def _put_in_place(part: Path, path: Path) -> int:
    part.replace(path)
    sync_path(path.parent)
    return path.stat().st_size


def _kept_files(folder: Path, before: float) -> list[str]:
    """Return the names of all files but those that are not complete yet."""
    found = [*folder.glob("*")] if folder.is_dir() else []
    return [path.name for path in found if not path.name.startswith(".") or path.lstat().st_mtime < before]


def _remove(paths: Collection[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
