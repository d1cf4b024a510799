"""What was deleted is overwritten in the file, in the log and in the copies that SQLite leaves when it moves rows."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from bot.database.database import Database, Execute, StorageError
from bot.database.migrate import prepare_databases
from bot.database.upkeep import INCREMENTAL

MARK = b"walrus"
TABLES = (
    "CREATE TABLE said(id INTEGER PRIMARY KEY, word TEXT UNIQUE, author TEXT, text TEXT)",
    "CREATE INDEX said_author ON said(author, text)",
    "CREATE TABLE named(name TEXT PRIMARY KEY, text TEXT) WITHOUT ROWID",
    "CREATE VIRTUAL TABLE found USING fts5(text)",
)


def write_rows(seed: int) -> Callable[[Execute], None]:
    """Write rows in any order, a third of them with the mark; let some grow and shrink, so that pages are split."""

    def work(execute: Execute) -> None:
        dice = random.Random(seed)
        numbers = [*range(1500)]
        dice.shuffle(numbers)
        for number in numbers:
            word = "walrus" if number % 3 == 0 else "other"
            text = f"{word} " * dice.choice((1, 3, 40, 200, 1500))
            values = {"id": number, "word": f"{dice.random()}{word}", "author": word, "text": text}
            execute("INSERT INTO said VALUES (:id, :word, :author, :text)", values)
            execute("INSERT INTO named VALUES (:word, :text)", values)
            execute("INSERT INTO found(rowid, text) VALUES (:id, :text)", values)
        for number in dice.sample(numbers, 500):
            grown = {"id": number, "times": dice.randint(1, 300)}
            execute("UPDATE said SET text=replace(hex(zeroblob(:times)), '00', author) WHERE id=:id", grown)

    return work


def delete_marked(execute: Execute) -> None:
    execute("DELETE FROM found WHERE rowid IN (SELECT id FROM said WHERE author='walrus')", {})
    execute("DELETE FROM named WHERE name IN (SELECT word FROM said WHERE author='walrus')", {})
    execute("DELETE FROM said WHERE author='walrus'", {})
    execute("INSERT INTO found(found) VALUES ('optimize')", {})


def count_marks(folder: Path) -> int:
    return sum(path.read_bytes().count(MARK) for path in folder.iterdir())


def check(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA auto_vacuum").fetchone() == (INCREMENTAL,)


async def make_tables(store: Database) -> None:
    for table in TABLES:
        await store.run(lambda execute, sql=table: execute(sql, {}))  # type: ignore[misc]  # a lambda's default


@pytest.mark.parametrize("seed", range(4))
async def test_nothing_of_deleted_rows_is_left_in_the_file_or_its_log(tmp_path: Path, seed: int) -> None:
    async with Database(tmp_path / "x.db") as store:
        await make_tables(store)
        await store.run(write_rows(seed))
        assert count_marks(tmp_path)
        await store.run(delete_marked)
        assert await store.overwrite_deleted()
        assert count_marks(tmp_path) == 0
        await store.run(lambda execute: execute("UPDATE said SET text=text||'!', word=word||'!'", {}))
        assert await store.overwrite_deleted()
        assert count_marks(tmp_path) == 0, "no page in memory still has the old bytes"
    check(tmp_path / "x.db")


async def test_copies_of_moved_rows_are_what_secure_delete_leaves(tmp_path: Path) -> None:
    """If this fails, SQLite overwrites moved rows by itself, and the scrubber is not needed any more."""
    left = 0
    for seed in range(4):
        folder = tmp_path / str(seed)
        folder.mkdir()
        async with Database(folder / "x.db") as store:
            await make_tables(store)
            await store.run(write_rows(seed))
            await store.run(delete_marked)
        left += count_marks(folder)
    assert left


async def test_others_write_between_the_steps(tmp_path: Path) -> None:
    async with Database(tmp_path / "x.db") as store:
        await make_tables(store)
        await store.run(write_rows(7))
        await store.run(lambda execute: execute("DELETE FROM named", {}))
        await store.run(delete_marked)
        done = asyncio.create_task(store.overwrite_deleted())
        number = 2000
        while not done.done():
            number += 1
            values = {"id": number, "word": str(number), "text": "other " * (number % 900)}
            sql = "INSERT INTO said VALUES (:id, :word, 'other', :text)"
            await store.run(lambda execute, sql=sql, values=values: execute(sql, values))  # type: ignore[misc]  # as above
        assert await done
        [row] = await store.run(lambda execute: execute("SELECT count(*) AS n FROM said WHERE id>2000", {}))
        assert row["n"] == number - 2000
        assert await store.overwrite_deleted()
        assert count_marks(tmp_path) == 0
    check(tmp_path / "x.db")


async def test_a_reader_elsewhere_delays_the_end_and_nobody_else(tmp_path: Path) -> None:
    async with Database(tmp_path / "x.db") as store:
        await make_tables(store)
        await store.run(write_rows(1))
        with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM said").fetchall()
            await store.run(delete_marked)
            assert not await store.overwrite_deleted()
            await store.run(lambda execute: execute("DELETE FROM named", {}))
            reader.execute("COMMIT")
        assert await store.overwrite_deleted()
        assert count_marks(tmp_path) == 0


async def test_locks_of_the_connection_survive_the_scrubber(tmp_path: Path) -> None:
    async with Database(tmp_path / "x.db") as store:
        await make_tables(store)
        await store.run(write_rows(1))
        assert await store.overwrite_deleted()
        with closing(sqlite3.connect(tmp_path / "x.db")) as last:
            assert last.execute("SELECT count(*) FROM said").fetchone() == (1500,)
        assert (tmp_path / "x.db-wal").exists(), "it was not the last connection, so that it deletes no log"
        await store.run(delete_marked)
    check(tmp_path / "x.db")


async def test_free_pages_are_given_back(tmp_path: Path) -> None:
    async with Database(tmp_path / "x.db") as store:
        await make_tables(store)
        await store.run(write_rows(1))
        await store.overwrite_deleted()
        before = await store.size()
        await store.run(lambda execute: execute("DELETE FROM said", {}))
        await store.run(lambda execute: execute("DELETE FROM named", {}))
        await store.free_pages()
        await store.overwrite_deleted()
        assert await store.size() < before / 2
        assert await store.size() > 4096 * 200, "some stay free for what comes next"
    check(tmp_path / "x.db")


@pytest.fixture
def old_data_dir(tmp_path: Path) -> Path:
    """Return a data_dir of an earlier version: free pages keep their bytes and stay."""
    prepare_databases(tmp_path)
    for name in ("fawn.db",):
        with closing(sqlite3.connect(tmp_path / name, isolation_level=None)) as connection:
            for sql in ("PRAGMA auto_vacuum=NONE", "VACUUM", "PRAGMA journal_mode=WAL", "PRAGMA secure_delete=OFF"):
                connection.execute(sql).fetchall()
            connection.execute("CREATE TABLE old(text)")
            connection.executemany("INSERT INTO old VALUES (?)", [("walrus " * 90,)] * 900)
            connection.execute("DELETE FROM old")
    return tmp_path


async def test_a_database_without_a_pointer_map_is_not_overwritten(old_data_dir: Path) -> None:
    async with Database(old_data_dir / "fawn.db") as store:
        with pytest.raises(StorageError, match="pointer map"):
            await store.overwrite_deleted()


async def test_a_database_without_pages_to_describe_has_nothing_to_overwrite(tmp_path: Path) -> None:
    async with Database(tmp_path / "x.db") as store:
        await store.run(lambda execute: execute("CREATE TABLE one(text)", {}))
        assert await store.overwrite_deleted()
    check(tmp_path / "x.db")


async def test_steps_grow_and_shrink_and_end(tmp_path: Path) -> None:
    asked = list[int]()

    def work(execute: Execute, *, limit: int) -> int:
        asked.append(limit)
        execute("DELETE FROM numbers WHERE n IN (SELECT n FROM numbers LIMIT :limit)", {"limit": limit})
        return min(limit, 300 - sum(asked[:-1])) if sum(asked[:-1]) < 300 else 0

    async with Database(tmp_path / "x.db") as store:
        await store.run(lambda execute: execute("CREATE TABLE numbers(n INTEGER PRIMARY KEY)", {}))
        rows = "WITH RECURSIVE a(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM a LIMIT 300)"
        sql = f"{rows} INSERT INTO numbers SELECT n FROM a"  # noqa: S608 — own words
        await store.run(lambda execute: execute(sql, {}))
        assert await store.run_steps(work) == 300
        assert await store.run(lambda execute: execute("SELECT * FROM numbers", {})) == []
    assert max(asked) <= 100
    assert min(asked) >= 1
