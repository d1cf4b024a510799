"""`fawn restore`: unpack an archive of `fawn backup` into a data_dir, whole or not at all.

Everything is unpacked, checked and upgraded in the folder `restoring`; then each part is renamed into place, `fawn.db`
last. A data_dir with `restoring` and without `fawn.db` is therefore an interrupted restore: a start refuses it, and
another restore begins again.
"""

from __future__ import annotations

import gzip
import os
import shutil
import sqlite3
import tarfile
import zlib
from collections.abc import Iterator, Set
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from agent.foreign_text import printable_text
from bot.admin.backup import CUSTOM_SKILLS
from bot.service.spool import SPOOL
from bot.storage import audit
from bot.storage.audit import AuditEvent, AuditKind
from bot.storage.database import Database
from bot.storage.migrate import RESTORING, prepare_databases, sync_path
from catalogue import N_, LocalizedError
from sandbox.disk.file_threads import run_file_work
from sandbox.disk.removal import remove_tree

DATABASE = "fawn.db"
FOLDERS = ("threads", SPOOL, "skills", CUSTOM_SKILLS)
_MARGIN_BYTES = 64 << 20  # for the upgrade of an older database, and its log
_DAMAGED = N_("{file} is damaged or no backup: {error}. Nothing was restored; try an older backup")


class RestoreRefused(LocalizedError):
    """Nothing was restored; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did. `skills` is where the operator's own skills lie if they could not be put in their place."""

    files: int
    bytes: int
    skills: Path | None


async def restore_backup(file: Path, data_dir: Path, custom_skills: Path) -> Restored:
    """Restore an archive into a data_dir whose lock the caller holds.

    Raises RestoreRefused, and DatabaseFault for a database that this version cannot use.
    """
    await run_file_work(_make_room, data_dir)
    staging = data_dir / RESTORING
    try:
        files, size = await run_file_work(_unpack, file, staging)
        await run_file_work(_check_database, file, staging / DATABASE)
        await run_file_work(prepare_databases, staging)
        async with Database(staging / DATABASE) as store:
            event = AuditEvent(AuditKind.RESTORE, what=audit.COMMAND_LINE | {"bytes": size})
            await store.run(partial(audit.record, event=event))
    except BaseException:
        await run_file_work(remove_tree, staging)  # the data_dir is as it was
        raise
    await run_file_work(_put_in_place, data_dir)
    return Restored(files, size, await run_file_work(_place_skills, data_dir / CUSTOM_SKILLS, custom_skills))


def _make_room(data_dir: Path) -> None:
    """Remove what an interrupted restore left. Raises RestoreRefused if there is anything else to lose."""
    taken = [name for name in (DATABASE, f"{DATABASE}-wal", *FOLDERS) if (data_dir / name).exists()]
    if (data_dir / RESTORING).exists() and DATABASE not in taken:
        for name in (*FOLDERS, RESTORING):
            remove_tree(data_dir / name)
    elif taken:
        text = N_(
            "{data_dir} is in use: it contains {name}. Restore into an empty folder: move this one away, or set"
            " data_dir"
        )
        raise RestoreRefused(text, data_dir=data_dir, name=taken[0])
    (data_dir / RESTORING).mkdir(mode=0o700)


def _unpack(file: Path, staging: Path) -> tuple[int, int]:
    """Unpack the archive; return how many files and bytes it has."""
    try:
        files, size = _check_entries(file)
        free = shutil.disk_usage(staging).free
        if size + _MARGIN_BYTES > free:
            text = N_("the disk is too full: {file} needs {needed} MB, {free} MB are free. Nothing was restored")
            raise RestoreRefused(text, file=file, needed=(size + _MARGIN_BYTES) >> 20, free=free >> 20)
        with tarfile.open(file, "r:gz") as archive:
            if hasattr(tarfile, "fully_trusted_filter"):  # what entries may be is checked already
                archive.extraction_filter = tarfile.fully_trusted_filter
            archive.extractall(staging, _entries(archive), numeric_owner=True)  # noqa: S202 — checked above
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise RestoreRefused(_DAMAGED, file=file, error=printable_text(str(error))) from error
    except OSError as error:
        text = N_("{file} cannot be unpacked: {error}. Nothing was restored")
        raise RestoreRefused(text, file=file, error=printable_text(str(error))) from error
    return files, size


def _check_entries(file: Path) -> tuple[int, int]:
    """Return how many files and bytes the archive has. Raises RestoreRefused for what does not belong into a backup."""
    size, links, files = 0, set[PurePosixPath](), set[str]()
    with tarfile.open(file, "r:gz") as archive:
        for entry in _entries(archive):
            if not files and (entry.name != DATABASE or not entry.isfile()):
                raise RestoreRefused(N_("{file} is no backup of Fawn: it does not begin with its database"), file=file)
            if not _belongs(entry, links, files):
                text = N_("{file} is no backup of Fawn: its entry {name} does not belong there. Nothing was restored")
                raise RestoreRefused(text, file=file, name=printable_text(entry.name[:200]))
            if entry.issym():
                links.add(PurePosixPath(entry.name))
            elif entry.isfile():
                files.add(entry.name)
            size += entry.size
    if not files:
        raise RestoreRefused(N_("{file} is no backup of Fawn: it is empty"), file=file)
    return len(files), size


def _belongs(entry: tarfile.TarInfo, links: Set[PurePosixPath], files: Set[str]) -> bool:
    """Return whether an entry lies in a folder of the backup, below no link, and is a file, a folder or a link."""
    path = PurePosixPath(entry.name)
    inside = path.parts[:1] and path.parts[0] in (*FOLDERS, DATABASE) and ".." not in path.parts
    if entry.islnk():
        return bool(inside) and entry.linkname in files
    known = entry.isfile() or entry.isdir() or entry.issym()
    return bool(inside) and known and not any(parent in links for parent in path.parents)


def _entries(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the entries in order, without keeping them: there can be millions."""
    while entry := archive.next():
        archive.members = []  # type: ignore[attr-defined]  # not in typeshed; public in tarfile since Python 2
        yield entry


def _check_database(file: Path, path: Path) -> None:
    """Raise RestoreRefused for a database whose pages do not fit together."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            [(said,), *_] = connection.execute("PRAGMA quick_check(1)").fetchall()
    except sqlite3.Error as error:
        said = str(error)
    if said != "ok":
        raise RestoreRefused(_DAMAGED, file=file, error=said)


def _put_in_place(data_dir: Path) -> None:
    """Rename what was unpacked into the data_dir, the database last: with it the restore is complete."""
    staging = data_dir / RESTORING
    for name in ("backups", "migrating"):  # of the upgrade: the archive itself is the backup
        remove_tree(staging / name)
    os.sync()
    for name in (*FOLDERS, DATABASE):
        if (staging / name).exists():
            os.rename(staging / name, data_dir / name)
            sync_path(data_dir)
    remove_tree(staging)


def _place_skills(found: Path, wanted: Path) -> Path | None:
    """Move the operator's own skills to their folder. Returns where they stay if something is there already."""
    if not found.is_dir():
        return None
    try:
        wanted.parent.mkdir(parents=True, exist_ok=True)
        os.rename(found, wanted)  # also onto an empty folder
    except OSError:
        return found
    return None
