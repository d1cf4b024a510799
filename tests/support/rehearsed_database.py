"""A database whose units of work are rehearsed: each runs, is undone, and runs again.

So whatever a unit keeps outside of its transaction shows in the tests: it happens twice. A unit that computes for long
holds up everybody's transactions, and fails.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from bot.database.database import Database, Execute
from bot.database.migrate import create_schema
from tests.support.explained import EXPLAINS, OnlySQLite, begin_to_explain, explain
from tests.support.postgres import ENGINE, database_of, files_of

T = TypeVar("T")
TABLES = "SELECT name FROM sqlite_master WHERE type='table'"  # what reads the names of all tables
if ENGINE == "postgresql":
    TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema='public'"
PAYLOAD_TEXT = "convert_from(payload, 'UTF8')" if ENGINE == "postgresql" else "CAST(payload AS TEXT)"
BODY_TEXT = "CAST(body AS TEXT)"
MAX_UNIT_SECONDS = 1.0  # CPU of a unit beside its statements; most take less than 0.001, a first import 0.3


class SlowUnit(AssertionError):
    """A unit of work computes for too long on the database's thread: do it before or after the transaction."""


class RehearsedDatabase(Database):
    """See the module: SQLite."""

    async def run(self, work: Callable[[Execute], T], *, durable: bool = True, first: bool = False) -> T:
        return await super().run(partial(_run_rehearsed, work), durable=durable, first=first)


def rehearsed_database(path: Path) -> Database:
    """Return the database at a path: in the file itself or, where the tests run on PostgreSQL, one named after it.

    That one is not rehearsed: a number that was counted stays counted there, and tests name the first row.
    """
    if EXPLAINS:
        begin_to_explain()
    if ENGINE != "postgresql":
        return RehearsedDatabase(path)
    from bot.database.postgres import DatabaseServer, PostgresDatabase

    made = PostgresDatabase(DatabaseServer(database_of(path)))
    made._path = path  # for `stored_rows`
    return made


@cache
def _empty_database() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        create_schema(Path(folder) / "fawn.db")
        return (Path(folder) / "fawn.db").read_bytes()


def make_empty_database(path: Path) -> None:
    """Make a database without rows, unless one is there: a copy of the first one, which took 15 ms of CPU to build."""
    if not path.exists():
        path.write_bytes(_empty_database())


def stored_rows(path: Path, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows that are in `rehearsed_database(path)`, as another process reads them.

    What has bytes of a text is read as that text on both engines, where it is cast to TEXT.
    """
    if ENGINE != "postgresql":
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            return connection.execute(sql).fetchall()
    from bot.database.postgres_session import reading

    with reading(database_of(path), snapshot=False) as execute:
        return [tuple(row) for row in execute(sql.replace(BODY_TEXT, "convert_from(body, 'UTF8')"), {})]


def change_rows(path: Path, sql: str, values: Mapping[str, Any]) -> None:
    """Run a statement in `rehearsed_database(path)`, as another process does."""
    if ENGINE != "postgresql":
        with closing(sqlite3.connect(path, timeout=30)) as database, database:
            database.execute(sql, values)
        return
    from bot.database.postgres_session import connect, execute_on

    with closing(connect(database_of(path))) as connection:
        execute_on(connection, sql, values)


def files_with_rows(path: Path) -> list[Path]:
    """Return the files beside `path` in which the rows of `rehearsed_database(path)` are."""
    return files_of(database_of(path)) if ENGINE == "postgresql" else []


def _run_rehearsed(work: Callable[[Execute], T], execute: Execute) -> T:
    execute("SAVEPOINT rehearsal", {})
    try:
        _run_timed(work, execute)  # also what it imports
    except (SlowUnit, OnlySQLite):
        raise
    except Exception:  # noqa: BLE001, S110 — it comes again
        pass
    finally:
        execute("ROLLBACK TO rehearsal", {})
        execute("RELEASE rehearsal", {})
    return _run_timed(work, execute)


def _run_timed(work: Callable[[Execute], T], execute: Execute) -> T:
    in_statements = 0.0

    def timed(sql: str, values: Mapping[str, Any] = {}) -> Sequence[Any]:
        nonlocal in_statements
        begun = time.thread_time()
        try:
            if EXPLAINS:
                explain(sql, values)
            return execute(sql, values)
        finally:
            in_statements += time.thread_time() - begun

    begun = time.thread_time()
    value = work(timed)
    if (seconds := time.thread_time() - begun - in_statements) > MAX_UNIT_SECONDS:
        raise SlowUnit(f"{work!r} took {seconds:.2f} s")
    return value
