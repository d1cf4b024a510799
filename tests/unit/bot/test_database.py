"""Faults of connection, disk or a unit of work reach their caller and no other."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.storage.database import Database, Execute, StatementError, StorageError


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    async with Database(tmp_path / "some.db", patience=0.1) as made:
        await made.run(lambda execute: execute("CREATE TABLE kept(word TEXT UNIQUE NOT NULL)", {}))
        yield made


async def kept(store: Database) -> list[str]:
    rows = await store.run(lambda execute: execute("SELECT word FROM kept ORDER BY word", {}))
    return [row["word"] for row in rows]


def put(execute: Execute, word: str | None) -> None:
    execute("INSERT INTO kept VALUES (:word)", {"word": word})


async def test_a_broken_connection_is_replaced(store: Database) -> None:
    connection = store._connection
    await asyncio.get_running_loop().run_in_executor(None, connection.close)
    async with asyncio.timeout(5):
        with pytest.raises(StorageError):
            await store.run(lambda execute: put(execute, "lost"))
        await store.run(lambda execute: put(execute, "after"))
        assert await kept(store) == ["after"]


@pytest.mark.parametrize("error", [SystemExit(), KeyboardInterrupt(), MemoryError(), ValueError("mine")])
async def test_any_exception_of_a_unit_of_work_reaches_its_caller(store: Database, error: BaseException) -> None:
    def work(execute: Execute) -> None:
        put(execute, "undone")
        raise error

    async with asyncio.timeout(5):
        with pytest.raises((StorageError, MemoryError, ValueError)):
            await store.run(work)
        await store.run(lambda execute: put(execute, "after"))
        assert await kept(store) == ["after"]


async def test_nothing_is_written_after_sqlite_rolled_the_transaction_back(store: Database) -> None:
    """SQLite rolls back the whole transaction on some errors; a unit of work that swallows one cannot write anymore."""

    def work(execute: Execute) -> None:
        put(execute, "before")
        with contextlib.suppress(sqlite3.Error):
            execute("INSERT OR ROLLBACK INTO kept VALUES (NULL)", {})
        with contextlib.suppress(sqlite3.Error):
            put(execute, "outside")

    with pytest.raises(StorageError):
        await store.run(work)
    assert await kept(store) == []


async def test_an_invalid_statement_raises_statement_error_to_its_caller_only(store: Database) -> None:
    """Callers do not retry it, and other units of the transaction are kept."""
    outcomes = await asyncio.gather(
        store.run(lambda execute: put(execute, "first")),
        store.run(lambda execute: put(execute, None)),
        store.run(lambda execute: put(execute, "half a pair \ud83d")),
        store.run(lambda execute: put(execute, "last")),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes[1:3]] == [StatementError, UnicodeEncodeError]
    assert await kept(store) == ["first", "last"]


async def test_a_locked_database_raises_a_temporary_error(store: Database, tmp_path: Path) -> None:
    holder = sqlite3.connect(tmp_path / "some.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageError):
        await store.run(lambda execute: put(execute, "lost"))
    holder.execute("ROLLBACK")
    holder.close()
    await store.run(lambda execute: put(execute, "after"))
    assert await kept(store) == ["after"]
