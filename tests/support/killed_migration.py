"""Migrate a database of an earlier version and kill the process before every step, or every sixth one.

    python -m tests.support.killed_migration FOLDER SCHEMA

After each kill, an undisturbed start follows.

A step is a call that changes something: a statement, a commit, a renamed file. A profiler counts them. Each attempt is
a forked process with Alembic already loaded. SCHEMA makes the database of the earlier version, which also has a file of
checkpoints. Prints the number of steps.
"""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import sqlite3
import sys
from contextlib import closing
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

from agent.turn.checkpointer import CREATE_TABLES_SQL
from bot.database import migrate
from bot.database.early_data import CHECKPOINTS_FILE
from tests.support.costs import THOROUGH

STEPS = {"execute", "commit", "backup", "replace", "mkdir", "rmdir", "unlink", "fsync"}
ROWS = 20


def main(folder: Path, schema: Path) -> int:
    """Try every step. Raises AssertionError."""
    for name in ("alembic.command", "alembic.config", "sqlalchemy.dialects.sqlite.pysqlite"):
        importlib.import_module(name)
    first = folder / "first"
    first.mkdir()
    _make(first, schema)
    for step in count(1, 1 if THOROUGH else 6):
        data = folder / "data"
        shutil.copytree(first, data)
        if _end(data, step) == 0:
            return step - 1
        assert _end(data) == 0, f"the start after a death before step {step} failed"
        _check(data)
        shutil.rmtree(data)
    raise AssertionError


def _make(folder: Path, schema: Path) -> None:
    """Create a database of the earlier version with its last rows only in the WAL, as a killed service leaves it."""
    path = folder / "fawn.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(schema.read_text("utf-8"))
    pid = os.fork()
    if pid == 0:
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA journal_mode=WAL")
        sql = "INSERT INTO outbox(key, kind, thread, payload, created) VALUES (?, 'say', 't', 'x', 0)"
        connection.executemany(sql, [(str(number),) for number in range(ROWS)])
        connection.commit()
        states = sqlite3.connect(folder / CHECKPOINTS_FILE)
        states.execute("PRAGMA journal_mode=WAL")
        for statement in CREATE_TABLES_SQL:
            states.execute(statement)
        sql = "INSERT INTO checkpoints VALUES (?, '', '1', 'k', x'00', 'k', x'00')"
        states.executemany(sql, [(str(number),) for number in range(ROWS)])
        states.commit()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert (folder / "fawn.db-wal").stat().st_size


def _end(data: Path, step: int = 0) -> int:
    """Run a migration that dies before its `step`th step; return how the process ended."""
    pid = os.fork()
    if pid == 0:
        left = step

        def watch(frame: FrameType, event: str, called: Any) -> None:
            nonlocal left
            if event == "c_call" and called.__name__ in STEPS:
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.setprofile(watch)
        migrate.prepare_databases(data)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _check(data: Path) -> None:
    """Check that no data is lost, no temporary file is left, and the last backup is complete."""
    assert migrate.schema_revision(data / "fawn.db") == migrate.head_revision()
    rows = "SELECT key FROM outbox ORDER BY id"
    for path in (data / "fawn.db", *(data / "backups").glob("fawn-*.db")):
        connection = sqlite3.connect(path)
        assert connection.execute(rows).fetchall() == [(str(number),) for number in range(ROWS)]
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()
    with closing(sqlite3.connect(data / "fawn.db")) as connection:
        assert connection.execute("SELECT count(*) FROM checkpoints").fetchall() == [(ROWS,)]
    assert list((data / "backups").glob("fawn-*.db"))
    assert list((data / "backups").glob("checkpoints-*.db"))
    assert {path.name for path in data.iterdir()} <= {"fawn.db", "backups", "migrating"}
    assert {path.suffix for path in (data / "backups").iterdir()} == {".db"}


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), Path(sys.argv[2])))
