"""Contract of every store, for all statements of Fawn. Add another engine to `STORES`."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from bot.storage.database import Database, Execute, StatementError, StorageError
from bot.storage.migrate import migrate_database

Make = Callable[[Path], AbstractAsyncContextManager[Database]]
INSERT = "INSERT INTO addresses(thread, conversation) VALUES (:thread, 'c')"


def sqlite(folder: Path) -> AbstractAsyncContextManager[Database]:
    migrate_database(folder / "fawn.db")
    return Database(folder / "fawn.db")


STORES: dict[str, Make] = {"sqlite": sqlite}


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async with STORES[request.param](tmp_path) as made:
        yield made


def threads(execute: Execute) -> list[str]:
    return [row["thread"] for row in execute("SELECT thread FROM addresses ORDER BY thread", {})]


async def test_committed_rows_can_be_read(store: Database) -> None:
    def work(execute: Execute) -> str:
        execute(INSERT, {"thread": "a"})
        return "value"

    assert await store.run(work) == "value"
    assert await store.run(threads) == ["a"]


async def test_rows_are_read_by_name_and_returning_gives_them(store: Database) -> None:
    rows = await store.run(lambda execute: execute(INSERT + " RETURNING thread, count", {"thread": "a"}))
    assert rows[0]["thread"] == "a"
    assert rows[0]["count"] == 1


async def test_a_failing_unit_of_work_is_rolled_back_alone(store: Database) -> None:
    """Also when it shares its commit with others."""

    def good(name: str) -> Callable[[Execute], None]:
        return lambda execute: [execute(INSERT, {"thread": name}), None][1]  # type: ignore[return-value]  # one expression

    def bad(execute: Execute) -> None:
        execute(INSERT, {"thread": "never"})
        raise LookupError("mine")

    outcomes = await asyncio.gather(
        store.run(good("a")), store.run(bad), store.run(good("b")), store.run(bad), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [type(None), LookupError, type(None), LookupError]
    assert await store.run(threads) == ["a", "b"]
    with pytest.raises(LookupError):
        await store.run(bad)
    assert await store.run(threads) == ["a", "b"]


async def test_a_constraint_violation_is_raised_to_its_own_unit_of_work(store: Database) -> None:
    await store.run(lambda execute: execute(INSERT, {"thread": "a"}))
    again = store.run(lambda execute: execute(INSERT, {"thread": "a"}))
    other = store.run(lambda execute: execute(INSERT, {"thread": "b"}))
    first, second = await asyncio.gather(again, other, return_exceptions=True)
    assert isinstance(first, StatementError)
    assert not isinstance(second, BaseException)
    assert await store.run(threads) == ["a", "b"]


async def test_concurrent_units_of_work_are_committed_in_call_order(store: Database) -> None:
    def note(number: int) -> Callable[[Execute], int]:
        def work(execute: Execute) -> int:
            execute(INSERT, {"thread": f"{number:04}"})
            return len(execute("SELECT 1 FROM addresses", {}))

        return work

    seen = await asyncio.gather(*(store.run(note(number)) for number in range(500)))
    assert seen == list(range(1, 501))


async def test_a_cancelled_caller_neither_rolls_back_nor_blocks(store: Database) -> None:
    task = asyncio.create_task(store.run(lambda execute: execute(INSERT, {"thread": "a"})))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await store.run(threads) == ["a"]


async def test_committed_rows_survive_without_a_close(tmp_path: Path) -> None:
    migrate_database(tmp_path / "fawn.db")
    async with Database(tmp_path / "fawn.db") as store:
        await store.run(lambda execute: execute(INSERT, {"thread": "a"}))
        other = sqlite3.connect(tmp_path / "fawn.db")
        assert other.execute("SELECT thread FROM addresses").fetchall() == [("a",)]
        other.close()


async def test_a_locked_database_raises_and_then_works_again(tmp_path: Path) -> None:
    migrate_database(tmp_path / "fawn.db")
    async with Database(tmp_path / "fawn.db", busy_timeout_seconds=0.05) as store:
        holder = sqlite3.connect(tmp_path / "fawn.db", isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="locked"):
            await store.run(lambda execute: execute(INSERT, {"thread": "a"}))
        holder.execute("ROLLBACK")
        holder.close()
        await store.run(lambda execute: execute(INSERT, {"thread": "a"}))
        assert await store.run(threads) == ["a"]
