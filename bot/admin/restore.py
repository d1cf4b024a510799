"""`fawn restore`: unpack an archive of `fawn backup` into a data_dir, whole or not at all.

Everything is unpacked, checked and upgraded in the folder `restoring`; then each part is renamed into place, `fawn.db`
last, or its rows are copied into PostgreSQL last. A data_dir with `restoring` and without a database is therefore an
interrupted restore: a start refuses it, and another restore begins again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from bot.base.stored_files import SPOOL, WEB_FILES
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Database
from bot.database.migrate import RESTORING, prepare_databases, sync_path
from bot.database.progress import CopyProgress
from bot.database.upkeep import find_damage
from bot.service.backup import CUSTOM_SKILLS
from catalogue import N_, LocalizedError
from sandbox.disk.file_threads import run_file_work
from sandbox.disk.folders import remove_tree
from sandbox.disk.sealing import Sealer
from sandbox.disk.unpacking import DAMAGED, MAX_ENTRIES, UnpackRefused, unpack_backup

DATABASE = "fawn.db"
FOLDERS = ("threads", SPOOL, WEB_FILES, "skills", CUSTOM_SKILLS)


class RestoreRefused(LocalizedError):
    """Nothing was restored; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did. `skills` is where the operator's own skills lie if they could not be put in their place."""

    files: int
    bytes: int
    skills: Path | None


class RestoreTarget(Protocol):
    """The database where it is not a file of data_dir."""

    def check_empty(self) -> None:
        """Raises DatabaseFault."""

    def fill(self, file: Path, record: None = None, progress: CopyProgress | None = None) -> object:
        """Copy everything from a file into it, or nothing. Raises DatabaseFault."""


async def restore_backup(
    file: Path,
    data_dir: Path,
    custom_skills: Path,
    sealer: Sealer,
    entries: int = MAX_ENTRIES,
    server: RestoreTarget | None = None,
    progress: CopyProgress | None = None,
) -> Restored:
    """Restore an archive of so many entries at most into a data_dir whose lock the caller holds, and a `server`.

    Raises RestoreRefused, UnpackRefused, and DatabaseFault for a database that this version cannot use, or a server.
    """
    if server:
        await run_file_work(server.check_empty)
    await run_file_work(_make_room, data_dir)
    staging = data_dir / RESTORING
    try:
        unpack = partial(unpack_backup, first=DATABASE, folders=FOLDERS, sealer=sealer, most=entries, meter=progress)
        files, size = await run_file_work(unpack, file, staging)
        await run_file_work(_check_database, file, staging / DATABASE)
        await run_file_work(prepare_databases, staging)
        async with Database(staging / DATABASE) as store:
            event = AuditEvent(AuditKind.RESTORE, what=audit.command_line() | {"bytes": size})
            await store.run(partial(audit.record, event=event))
    except BaseException:
        await run_file_work(remove_tree, staging)  # the data_dir is as it was
        raise
    await run_file_work(_put_in_place, data_dir, server, progress)
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


def _check_database(file: Path, path: Path) -> None:
    """Raise UnpackRefused for a database whose pages do not fit together."""
    if damage := find_damage(path):
        raise UnpackRefused(DAMAGED, file=file, error=damage)


def _put_in_place(data_dir: Path, server: RestoreTarget | None, progress: CopyProgress | None) -> None:
    """Rename what was unpacked into the data_dir, the database last: with it the restore is complete.

    A server that fails leaves an interrupted restore: nobody knows at once whether it has committed.
    """
    staging = data_dir / RESTORING
    for name in ("backups", "migrating"):  # of the upgrade: the archive itself is the backup
        remove_tree(staging / name)
    os.sync()
    for name in FOLDERS if server else (*FOLDERS, DATABASE):
        if (staging / name).exists():
            os.rename(staging / name, data_dir / name)
            sync_path(data_dir)
    if server:
        server.fill(staging / DATABASE, progress=progress)
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
