"""The private copies of files that wait for delivery: a folder `data_dir/spool/KIND-ID` for each row of the outbox.

All writers name their folders here. A folder is needed while an open row names it or its run is open; the rest is
swept.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection
from pathlib import Path

from bot.database.database import Database
from bot.storage import retention
from bot.storage.outbox import folder_names
from sandbox.disk.file_threads import run_file_work
from sandbox.disk.removal import remove_tree

SPOOL = "spool"
YOUNG_SECONDS = 600.0  # the row of a copy that was made since then may still be written


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
    old = await run_file_work(_old_folders, data_dir / SPOOL, time.time() - YOUNG_SECONDS)
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
    return [name for name, changed in found if changed < before or changed > now + YOUNG_SECONDS]


def _needed_names(open_: retention.OpenCopies) -> set[str]:
    names = {_run_name(run) for run in open_.runs}
    for row, payload in open_.rows.items():
        names |= {f"row-{row}", *folder_names(payload)}
    return names


def _run_name(run: int) -> str:
    return f"run-{run}"
