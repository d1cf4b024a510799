"""`fawn migrate`: copy everything between SQLite's file in data_dir and the configured PostgreSQL database.

The source stays as it is, and a service uses neither meanwhile. A file is made in the folder `copying` and renamed when
it is whole; PostgreSQL gets everything in one transaction. So a process that is killed leaves no half, and the same
command begins again.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path

from bot.config.schema import Config
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Database, Execute
from bot.database.migrate import COPYING, RESTORING, DatabaseFault, InterruptedRestore, sync_path
from bot.database.progress import CopyProgress
from bot.database.row_copy import Copied
from bot.service.store import FILE, PostgresCopies
from catalogue import N_
from sandbox.disk.folders import remove_tree

POSTGRESQL, SQLITE = "postgresql", "sqlite"


def change_engine(config: Config, engine: str, progress: CopyProgress | None = None) -> Copied:
    """Copy everything to this engine, with a row of the audit about it. The caller holds the lock of data_dir.

    Raises DatabaseFault and DatabaseInUse. It blocks.
    """
    if (config.data_dir / RESTORING).exists():
        raise InterruptedRestore(config.data_dir)
    return _to_server(config, progress) if engine == POSTGRESQL else _to_file(config, progress)


def _event(engine: str) -> AuditEvent:
    return AuditEvent(AuditKind.DATABASE_COPIED, what=audit.command_line() | {"to": engine})


def _to_server(config: Config, progress: CopyProgress | None) -> Copied:
    file = config.data_dir / FILE
    if not file.exists():
        raise DatabaseFault(N_("{file} is not there: there is nothing to copy"), file=file)
    return PostgresCopies(config).fill(file, partial(audit.record, event=_event(POSTGRESQL)), progress)


def _to_file(config: Config, progress: CopyProgress | None) -> Copied:
    file, draft = config.data_dir / FILE, config.data_dir / COPYING
    logs = [file.with_name(f"{FILE}-{name}") for name in ("wal", "shm")]
    if file.exists() or (logs[0].exists() and logs[0].stat().st_size):
        raise DatabaseFault(N_("{file} is there already: move it away, and nothing of it is lost"), file=file)
    try:
        for each in logs:  # of a file that was read, and has another name now
            each.unlink(missing_ok=True)
        remove_tree(draft)
        draft.mkdir(mode=0o700)
        copied = PostgresCopies(config).read_into(draft / FILE, progress)
        asyncio.run(_record(draft / FILE, _event(SQLITE)))
        sync_path(draft / FILE)
        os.rename(draft / FILE, file)
        sync_path(config.data_dir)
    except OSError as error:
        raise DatabaseFault.from_error(error) from error
    finally:
        remove_tree(draft)
    return copied


async def _record(file: Path, event: AuditEvent) -> None:
    async with Database(file) as store:

        def record(execute: Execute) -> None:
            audit.record(execute, event)

        await store.run(record)
