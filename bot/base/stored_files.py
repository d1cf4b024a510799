"""Keep files on the disk: those that wait for delivery, and those of the channel `web`.

All writers name their folders here. A folder is needed while an open row names it or its run is open; the rest is
swept.
"""

from __future__ import annotations

import asyncio
import hashlib
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
from bot.storage import retention, web
from bot.storage.outbox import folder_names
from catalogue import N_, _
from channels.base import Refused
from channels.shared.files import CHUNK
from sandbox.disk.file_threads import run_file_work
from sandbox.disk.folders import remove_tree

SPOOL = "spool"
YOUNG_COPY_SECONDS = 600.0  # the row of a copy that was made since then may still be written


def run_folder(data_dir: Path, run: int) -> Path:
    """Return the folder for the files of a run."""
    return data_dir / SPOOL / _run_name(run)


def row_folder(data_dir: Path, row: int) -> Path:
    """Return the folder for the texts of a row of the outbox, which are written when it is delivered."""
    return data_dir / SPOOL / f"row-{row}"


def command_folder(data_dir: Path, kind: str, key: str) -> Path:
    """Return the folder for the file that answers the message `key`."""
    return data_dir / SPOOL / f"{kind}-{hashlib.sha256(key.encode()).hexdigest()[:24]}"


def copy_path(data_dir: Path, path: str) -> Path:
    """Return where a copy is that was stored under `path`: data_dir may have been restored elsewhere."""
    stored = Path(path)
    return data_dir / SPOOL / stored.parent.name / stored.name if stored.parent.parent.name == SPOOL else stored


async def sweep_spool(store: Database, data_dir: Path) -> int:
    """Remove the folders that no open row names, which a crash left; return how many."""
    old = await run_file_work(_old_folders, data_dir / SPOOL, time.time() - YOUNG_COPY_SECONDS)
    needed = _needed_names(await store.run(retention.open_copies)) if old else set()
    await remove_copies(data_dir, {*old} - needed)
    return len({*old} - needed)


async def remove_copies(data_dir: Path, names: Collection[str]) -> None:
    """Remove these folders."""
    for name in names:
        await run_file_work(remove_tree, data_dir / SPOOL / name)


def _old_folders(spool: Path, before: float) -> list[str]:
    now = time.time()
    found = [(path.name, path.lstat().st_mtime) for path in spool.glob("*")]
    return [name for name, changed in found if changed < before or changed > now + YOUNG_COPY_SECONDS]


def _needed_names(open_: retention.OpenCopies) -> set[str]:
    names = {_run_name(run) for run in open_.runs}
    for row, payload in open_.rows.items():
        names |= {f"row-{row}", *folder_names(payload)}
    return names


def _run_name(run: int) -> str:
    return f"run-{run}"


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
        gone = await store.run(partial(web.unknown_ids, ids=old), durable=False) if old else set[str]()
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
