"""`fawn backup`: the database, the folders of conversations, the spool, web files and the skills in one archive."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from agent.skills.library import VIEW_FOLDER
from bot.base.stored_files import SPOOL, WEB_FILES
from bot.database import upkeep
from bot.database.database import Database
from bot.storage import channels, people
from catalogue import _, ngettext
from sandbox.disk.archive import Archive
from sandbox.disk.file_threads import run_file_work
from sandbox.disk.folders import ConversationFolders
from sandbox.disk.safe_files import shown_path
from sandbox.disk.sealing import Sealer

CUSTOM_SKILLS = "custom-skills"  # in the archive: the folder itself may be anywhere
LINES = 60  # about what is left out, of all conversations


async def back_up(
    store: Database, data_dir: Path, folders: ConversationFolders, custom_skills: Path, target: Path, sealer: Sealer
) -> dict[str, Any]:
    """Write `target`. A conversation that cannot be copied is named in `left_out`; it stops nobody else's.

    The archive has the database as an SQLite file, whichever engine it is from. Raises StorageError and OSError.
    """
    left_out: list[str] = []
    archive = await run_file_work(Archive, target, sealer)
    try:
        if removed := await run_file_work(_add_database, store, data_dir, archive):
            left_out.append(
                ngettext(
                    "the Bark address of {n} person, which contains their key: after a restore they set it again",
                    "the Bark addresses of {n} people, which contain their keys: after a restore they set them again",
                    removed,
                )
            )
        left_out += [
            _("{name}: a link, which is not followed", name=f"threads/{shown_path(link.name)}")
            for link in await run_file_work(folders.list_links)
        ]
        for folder in await run_file_work(folders.list_folders):
            name = f"threads/{folder.name}"
            left_out += await run_file_work(archive.add_folder, folder, name)
        # The database came first: a copy that is gone by now was delivered after them.
        parts = {name: data_dir / name for name in (SPOOL, WEB_FILES, "skills")} | {CUSTOM_SKILLS: custom_skills}
        for name, folder in parts.items():
            if folder.is_dir():
                derived = VIEW_FOLDER if name == "skills" else ""
                left_out += await run_file_work(archive.add_folder, folder, name, derived)
        size = await run_file_work(archive.finish)
    except BaseException:
        await run_file_work(archive.abandon)
        raise
    if len(left_out) > LINES:
        left_out[LINES:] = [_("{n:,} lines more", n=len(left_out) - LINES)]
    return {"file": str(target), "bytes": size, "left_out": left_out}


def _add_database(store: Database, data_dir: Path, archive: Archive) -> int:
    """Add a copy of the database; return how many secrets are left out."""
    with tempfile.TemporaryDirectory(dir=data_dir) as scratch:
        copy = Path(scratch) / "fawn.db"
        store.copy_to(copy)
        with closing(sqlite3.connect(copy, isolation_level=None)) as mirror:
            removed = _remove_secrets(copy, mirror)
        archive.add_file(copy, copy.name)
    return removed


def _remove_secrets(copy: Path, mirror: sqlite3.Connection) -> int:
    """Remove people's secrets from a copy of the store, with their bytes; return how many."""
    upkeep.overwrite_deletions(mirror)
    mirror.row_factory = sqlite3.Row

    def execute(sql: str, values: Mapping[str, Any] = {}) -> Sequence[Any]:
        return mirror.execute(sql, values).fetchall()

    removed = people.remove_push_secrets(execute)
    if channels.remove_handles(execute) or removed:
        upkeep.overwrite_copy(copy, mirror)
    return removed
