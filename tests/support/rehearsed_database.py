"""A database whose units of work are rehearsed: each runs, is undone, and runs again.

So whatever a unit keeps outside of its transaction shows in the tests: it happens twice. A unit that computes for long
holds up everybody's transactions, and fails.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from bot.storage.database import Database, Execute
from tests.support.postgres import ENGINE, database_of

T = TypeVar("T")
MAX_UNIT_SECONDS = 0.2  # CPU of a unit beside its statements; most take less than 0.001


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
    if ENGINE != "postgresql":
        return RehearsedDatabase(path)
    from bot.storage.postgres import DatabaseServer, PostgresDatabase

    made = PostgresDatabase(DatabaseServer(database_of(path)))
    made._path = path  # for `stored_rows`
    return made


def stored_rows(path: Path, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows that are in `rehearsed_database(path)`, as another process reads them."""
    if ENGINE != "postgresql":
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            return connection.execute(sql).fetchall()
    from bot.storage.postgres_session import reading

    with reading(database_of(path), snapshot=False) as execute:
        return [tuple(row) for row in execute(sql, {})]


def _run_rehearsed(work: Callable[[Execute], T], execute: Execute) -> T:
    execute("SAVEPOINT rehearsal", {})
    try:
        _run_timed(work, execute)  # also what it imports
    except SlowUnit:
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
            return execute(sql, values)
        finally:
            in_statements += time.thread_time() - begun

    begun = time.thread_time()
    value = work(timed)
    if (seconds := time.thread_time() - begun - in_statements) > MAX_UNIT_SECONDS:
        raise SlowUnit(f"{work!r} took {seconds:.2f} s")
    return value
