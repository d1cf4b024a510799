"""Faults of connection, disk or a unit of work reach their caller and no other."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import aiosqlite
import pytest

from bot.database.database import Database, Execute, StatementError, StorageError


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    async with Database(tmp_path / "some.db", busy_timeout_seconds=0.1) as made:
        await made.run(lambda execute: execute("CREATE TABLE kept(word TEXT UNIQUE NOT NULL)", {}))
        yield made


async def kept(store: Database) -> list[str]:
    rows = await store.run(lambda execute: execute("SELECT word FROM kept ORDER BY word", {}))
    return [row["word"] for row in rows]


def put(execute: Execute, word: str | None) -> None:
    execute("INSERT INTO kept VALUES (:word)", {"word": word})


async def break_handle(connection: aiosqlite.Connection) -> None:
    await connection._execute(connection._conn.close)  # type: ignore[no-untyped-call]  # SQLite's handle alone


@pytest.mark.parametrize("break_connection", [break_handle, aiosqlite.Connection.close])
async def test_a_broken_connection_is_replaced(
    store: Database, break_connection: Callable[[aiosqlite.Connection], Awaitable[None]]
) -> None:
    assert isinstance(store._connection, aiosqlite.Connection)
    await break_connection(store._connection)
    async with asyncio.timeout(60):
        with pytest.raises(StorageError):
            await store.run(lambda execute: put(execute, "lost"))
        await store.run(lambda execute: put(execute, "after"))
        assert await kept(store) == ["after"]


async def test_closing_commits_what_waits_and_ends_the_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    async with Database(tmp_path / "some.db") as store:
        await store.run(lambda execute: execute("CREATE TABLE kept(word TEXT)", {}))
        works = [partial(put, word=word) for word in ("a", "b", "c")]
        calls = [asyncio.create_task(store.run(work)) for work in works]
        await asyncio.sleep(0)
        cancelled = asyncio.create_task(store.run(partial(put, word="d")))
        await asyncio.sleep(0)
        cancelled.cancel()
    await asyncio.gather(*calls)
    _join_all(set(threading.enumerate()) - before)
    with pytest.raises(StorageError):
        await store.run(works[0])
    async with Database(tmp_path / "some.db") as again:
        assert await kept(again) == ["a", "b", "c", "d"]


async def test_a_transaction_is_synced_if_one_of_its_units_is_durable(store: Database) -> None:
    def is_synced(execute: Execute) -> bool:
        return bool(execute("PRAGMA synchronous", {})[0]["synchronous"] == 2)  # FULL

    assert not await store.run(is_synced, durable=False)
    assert await store.run(is_synced)
    assert not await store.run(is_synced, durable=False)
    assert all(await asyncio.gather(store.run(is_synced, durable=False), store.run(is_synced)))


async def test_a_file_that_is_no_database_leaves_no_thread(tmp_path: Path) -> None:
    (tmp_path / "some.db").write_bytes(b"this is no database" * 1000)
    before = set(threading.enumerate())
    with pytest.raises(sqlite3.DatabaseError):
        async with Database(tmp_path / "some.db"):
            pass
    _join_all(set(threading.enumerate()) - before)


@pytest.mark.parametrize("end", ["raise RuntimeError", "raise SystemExit", "asyncio.current_task().cancel()"])
def test_the_process_ends_however_its_main_task_ends(tmp_path: Path, end: str) -> None:
    """Also while a unit of work still waits."""
    program = (
        "import asyncio, pathlib, uvloop\nfrom bot.database.database import Database\n"
        "async def main():\n"
        f"    async with Database(pathlib.Path({str(tmp_path / 'some.db')!r})) as store:\n"
        "        waiting = asyncio.create_task(store.run(lambda execute: execute('CREATE TABLE kept(word)', {})))\n"
        f"        await asyncio.sleep(0)\n        {end}\n        await asyncio.Event().wait()\n"
        "with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:\n    runner.run(main())\n"
    )
    subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, timeout=180)
    connection = sqlite3.connect(tmp_path / "some.db")
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("kept",)]
    connection.close()


def _join_all(threads: set[threading.Thread]) -> None:
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize("error", [SystemExit(), KeyboardInterrupt(), MemoryError(), ValueError("mine")])
async def test_any_exception_of_a_unit_of_work_reaches_its_caller(store: Database, error: BaseException) -> None:
    def work(execute: Execute) -> None:
        put(execute, "undone")
        raise error

    async with asyncio.timeout(60):
        with pytest.raises((StorageError, MemoryError, ValueError)):
            await store.run(work)
        await store.run(lambda execute: put(execute, "after"))
        assert await kept(store) == ["after"]


async def test_nothing_is_written_after_sqlite_rolled_the_transaction_back(store: Database) -> None:
    """SQLite rolls back the whole transaction on some errors; a unit of work that swallows one cannot write anymore."""

    def work(execute: Execute) -> None:
        put(execute, "before")
        with contextlib.suppress(StatementError, StorageError):
            execute("INSERT OR ROLLBACK INTO kept VALUES (NULL)", {})
        with contextlib.suppress(StatementError, StorageError):
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
