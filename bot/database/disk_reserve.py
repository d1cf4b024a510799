"""Reserve disk space that only the databases can use.

Every commit goes to the write-ahead log of its database, and what SQLite cannot carry on into the database itself waits
there until it can. So blocks are set aside behind the end of these logs (and of their index): nobody can take
them, not even between the moment in which the disk is filled and the one in which somebody finds out.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from bot.database.database import Database, StorageError
from sandbox.processes import start_process

log = logging.getLogger(__name__)

RESERVE = {"-wal": 32 << 20, "-shm": 256 << 10}  # the index has 32 KB for each 4,096 pages of 4 KB
RETRY_SECONDS = 600.0


async def set_aside(databases: Mapping[Path, Database]) -> None:
    """Set it aside for these databases; tried until there is room. Nothing has to be done again: SQLite begins a log
    anew from its start, and gives nothing back before it is closed."""
    while missing := [name for each in databases.items() for name in await _missing(*each)]:
        log.warning("reserve.missing files=%s — when the disk is full, the service cannot write", ",".join(missing))
        await asyncio.sleep(RETRY_SECONDS)


async def _missing(database: Path, store: Database) -> list[str]:
    """The files for which there was no room."""
    try:
        await store.run(lambda execute: None)  # a transaction opens the log
    except StorageError:
        return [database.name]
    files = [(database.with_name(database.name + end), size) for end, size in RESERVE.items()]
    return [file.name for file, size in files if not await _allocated(file, size)]


async def _allocated(file: Path, size: int) -> bool:
    """Whether that worked. In another process: to close a file of SQLite's would drop its locks in this one."""
    try:
        process = await start_process(
            "fallocate", "--keep-size", "--length", str(size), str(file),
            stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL, env={"PATH": os.defpath},
        )  # fmt: skip
    except FileNotFoundError:  # a machine without util-linux
        return False
    return await process.wait() == 0
