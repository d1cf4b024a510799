"""`fawn migrate` copies everything between SQLite and PostgreSQL: whole or not at all, and back to the same rows."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from bot.__main__ import main
from bot.admin.engine_change import POSTGRESQL, SQLITE, change_engine
from bot.base.exit_codes import CONFIG, FAULT, OK, TAKEN
from bot.config.database import DatabaseConfig
from bot.config.operations import AuditConfig
from bot.config.schema import Config
from bot.database.audit_check import verify_chain
from bot.database.migrate import COPYING, DatabaseFault, create_schema, head_revision, prepare_databases
from bot.service.audit_upkeep import pruning_rules
from bot.service.store import open_store, read_store, store_revision
from tests.support.filled_store import FACTS, dump, facts_found, fill
from tests.support.killed_copy import copy_until
from tests.support.postgres import empty_database, need_postgres, sql_on_server

KILLS = 6


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A configuration with an empty data_dir, and an empty database on a server."""
    need_postgres()
    data = tmp_path / "data"
    data.mkdir()
    return Config(data_dir=data, database=DatabaseConfig(empty_database(f"t{uuid4().hex[:20]}")))


def rows_of(config: Config, sql: str) -> list[tuple[Any, ...]]:
    with read_store(config, snapshot=False) as execute:
        return [tuple(row) for row in execute(sql, {})]


def file_of(config: Config) -> Path:
    return config.data_dir / "fawn.db"


async def test_there_and_back_every_row_is_the_same(config: Config) -> None:
    await fill(file_of(config))
    before, bytes_before = dump(file_of(config)), file_of(config).read_bytes()
    copied = await asyncio.to_thread(change_engine, config, POSTGRESQL)
    assert file_of(config).read_bytes() == bytes_before
    assert copied.audit
    assert (copied.replaced, copied.audit.fault) == (0, None)
    assert {name: len(rows) for name, rows in before.items() if name in copied.counts} == copied.counts
    os.rename(file_of(config), config.data_dir / "old.db")
    back = await asyncio.to_thread(change_engine, config, SQLITE)
    assert back.counts == copied.counts | {"audit": copied.counts["audit"] + 1}
    after = dump(file_of(config))
    added = {"audit", "sqlite_sequence"}
    assert {name: rows for name, rows in after.items() if name not in added} == {
        name: rows for name, rows in before.items() if name not in added
    }
    assert dict(after["sqlite_sequence"]) == dict(before["sqlite_sequence"])
    assert len(after["audit"]) == len(before["audit"]) + 2
    with closing(sqlite3.connect(file_of(config))) as connection:
        blank = connection.execute("SELECT id FROM inbox WHERE payload=''").fetchall()
    assert blank == [(1,)], "the words of somebody who is forgotten are a text, as statements compare them"
    assert sorted(each.name for each in config.data_dir.iterdir()) == ["fawn.db", "old.db"]


async def test_the_copy_goes_on_where_the_file_was(config: Config) -> None:
    await fill(file_of(config))
    await asyncio.to_thread(change_engine, config, POSTGRESQL)
    async with open_store(config) as store:
        assert await facts_found(store, "which cafe on friday?") == [FACTS[0]]
        assert await facts_found(store, "门吊") == [FACTS[1]]
        insert = (
            "INSERT INTO outbox(key, kind, thread, payload, created) VALUES ('new', 'say', 't', 'x', 0) RETURNING id"
        )
        [row] = await store.run(lambda execute: execute(insert, {}))
        assert row["id"] == 4, "3 is used, though its row is gone"
    with read_store(config, snapshot=True) as execute:
        assert verify_chain(execute, {}, pruning_rules(AuditConfig())).fault is None
    [(body,)] = rows_of(config, "SELECT body FROM audit ORDER BY seq DESC LIMIT 1")
    assert b'"kind":"database.copied"' in bytes(body)
    assert b'"to":"postgresql"' in bytes(body)
    [(index,)] = rows_of(config, "SELECT indexdef FROM pg_indexes WHERE indexname='memory_words'")
    assert "fastupdate=off" in index, "it is dropped while the rows come"


@contextmanager
def changed(file: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(file)) as connection:
        yield connection
        connection.commit()


async def test_what_no_text_can_be_is_replaced_and_counted(config: Config) -> None:
    await fill(file_of(config))
    with changed(file_of(config)) as connection:
        connection.execute("UPDATE languages SET language='a' || char(0) || 'b' WHERE rowid=1")
        connection.execute("UPDATE languages SET language=CAST(x'41ff42' AS TEXT) WHERE rowid=2")
        connection.execute("UPDATE conversations SET pending=2.5 WHERE rowid=1")
    copied = await asyncio.to_thread(change_engine, config, POSTGRESQL)
    assert copied.replaced == 2
    found = [language for (language,) in rows_of(config, "SELECT language FROM languages ORDER BY reader")]
    assert found[:2] == ["a\ufffdb", "A\ufffdB"]
    assert (2,) in rows_of(config, "SELECT pending FROM conversations")


async def test_rows_that_fit_no_column_are_named_and_nothing_is_kept(config: Config) -> None:
    await fill(file_of(config))
    with changed(file_of(config)) as connection:
        connection.execute("UPDATE conversations SET pending='many' WHERE rowid=2")
        connection.execute("UPDATE usage SET at='never'")
        connection.execute("UPDATE heard SET time='late' WHERE rowid=3")
    with pytest.raises(DatabaseFault) as caught:
        await asyncio.to_thread(change_engine, config, POSTGRESQL)
    assert "conversations, rowid 2, pending: b'many' (bigint)" in str(caught.value)
    assert "heard, rowid 3, time: b'late' (double precision)" in str(caught.value)
    assert store_revision(config) == ""
    with changed(file_of(config)) as connection:
        connection.execute("UPDATE conversations SET pending=0")
        connection.execute("UPDATE heard SET time=0")
    await asyncio.to_thread(change_engine, config, POSTGRESQL)


async def test_an_audit_that_was_not_valid_before_is_copied_and_said(config: Config) -> None:
    await fill(file_of(config))
    with changed(file_of(config)) as connection:
        connection.execute("DELETE FROM audit WHERE seq=2")
    copied = await asyncio.to_thread(change_engine, config, POSTGRESQL)
    assert copied.audit
    assert copied.audit.fault == "row 2 was cut"


@pytest.mark.parametrize(
    ("made", "named"),
    [
        ("CREATE TABLE people (name text)", "people"),
        ("CREATE VIEW numbers AS SELECT 1 AS one", "numbers"),
        ("CREATE FUNCTION fawn_plain(text, text) RETURNS text RETURN $1", "fawn_plain"),
    ],
)
async def test_a_database_with_anything_in_it_is_refused(config: Config, made: str, named: str) -> None:
    create_schema(file_of(config))
    sql_on_server(config.database.url, made)
    with pytest.raises(DatabaseFault, match=f"not empty: it contains {named}"):
        await asyncio.to_thread(change_engine, config, POSTGRESQL)


async def test_what_the_host_has_put_into_every_database_is_nobodys(config: Config) -> None:
    create_schema(file_of(config))
    sql_on_server(config.database.url, "CREATE EXTENSION pg_stat_statements")
    await asyncio.to_thread(change_engine, config, POSTGRESQL)
    with pytest.raises(DatabaseFault, match="not empty"):
        await asyncio.to_thread(change_engine, config, POSTGRESQL)


async def test_a_file_of_an_earlier_version_or_a_later_one_is_refused(config: Config) -> None:
    create_schema(file_of(config))
    for version, words in (("0127", "earlier version"), ("9999", "newer version")):
        with changed(file_of(config)) as connection:
            connection.execute("UPDATE alembic_version SET version_num=?", (version,))
        with pytest.raises(DatabaseFault, match=words):
            await asyncio.to_thread(change_engine, config, POSTGRESQL)
    with changed(file_of(config)) as connection:
        connection.execute("UPDATE alembic_version SET version_num=?", (head_revision(),))
    (config.data_dir / "checkpoints.db").touch()
    with pytest.raises(DatabaseFault, match="earlier version"):
        await asyncio.to_thread(change_engine, config, POSTGRESQL)


async def test_a_file_that_is_none_is_said(config: Config) -> None:
    with pytest.raises(DatabaseFault, match="nothing to copy"):
        await asyncio.to_thread(change_engine, config, POSTGRESQL)
    file_of(config).write_bytes(b"\x00" * 5000)
    with pytest.raises(DatabaseFault, match="not a database"):
        await asyncio.to_thread(change_engine, config, POSTGRESQL)
    assert store_revision(config) == ""


# ------------------------------------------------------------ who else is there


def written(config: Config, folder: Path, **more: str) -> Path:
    path = folder / "config.yaml"
    lines = [f"{name}: {value}" for name, value in more.items()]
    database = f"database: {{url: '{config.database.url}'}}"
    path.write_text("\n".join(["config_version: 1", f"data_dir: {config.data_dir}", database, *lines]))
    return path


async def test_neither_side_may_be_in_use(config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await fill(file_of(config))
    command = ["migrate", "--to", "postgresql", "--config", str(written(config, tmp_path))]
    text = f"""import sys, pathlib; from bot.database.data_lock import DataLock
with DataLock(pathlib.Path({str(config.data_dir)!r})):
    print('held', flush=True); sys.stdin.read()"""
    with subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as held:
        assert held.stdout
        held.stdout.readline()
        assert await asyncio.to_thread(main, command) == TAKEN
        held.communicate()
    assert "already works on this data_dir" in capsys.readouterr().err
    other = replace(config, data_dir=tmp_path / "other")
    other.data_dir.mkdir()
    async with open_store(other):
        assert await asyncio.to_thread(main, command) == TAKEN
    assert "already works on this PostgreSQL database" in capsys.readouterr().err


async def test_of_two_at_once_one_copies_and_the_other_is_refused(config: Config, tmp_path: Path) -> None:
    await fill(file_of(config), rows=200)
    other = replace(config, data_dir=tmp_path / "other")
    other.data_dir.mkdir()
    await fill(file_of(other), rows=2)
    done = await asyncio.gather(
        *(asyncio.to_thread(change_engine, each, POSTGRESQL) for each in (config, other)), return_exceptions=True
    )
    refused = [each for each in done if isinstance(each, BaseException)]
    assert len(refused) == 1, done
    late = "not empty", "Another process already works on this PostgreSQL database"  # after the copy, or during it
    assert any(words in str(refused[0]) for words in late)


async def test_a_start_neither_forgets_what_is_in_the_file_nor_what_was_half_restored(config: Config) -> None:
    create_schema(file_of(config))
    with pytest.raises(DatabaseFault, match="fawn migrate --to postgresql"):
        async with open_store(config):
            pass
    await asyncio.to_thread(change_engine, config, POSTGRESQL)
    async with open_store(config):
        pass


# ------------------------------------------------------------ the command


async def test_the_command_says_what_to_do(config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await fill(file_of(config))
    path = written(config, tmp_path)
    assert await asyncio.to_thread(main, ["migrate", "--to", "postgresql", "--config", str(path)]) == OK
    said = capsys.readouterr().out
    assert f"Start Fawn now: it works on {config.database.shown}" in said
    assert await asyncio.to_thread(main, ["migrate", "--to", "sqlite", "--config", str(path)]) == FAULT
    assert "is there already" in capsys.readouterr().err
    file_of(config).unlink()
    assert await asyncio.to_thread(main, ["migrate", "--to", "sqlite", "--config", str(path)]) == OK
    assert "Remove the section `database`" in capsys.readouterr().out
    assert prepare_databases(config.data_dir) is None


async def test_an_address_on_the_command_line_is_refused_and_not_repeated(
    config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["migrate", "--to", "postgresql://fawn:hunter2@db/fawn", "--config", str(written(config, tmp_path))]
    assert await asyncio.to_thread(main, command) == CONFIG
    said = capsys.readouterr().err
    assert "database.url" in said
    assert "hunter2" not in said


# ------------------------------------------------------------ kills


async def test_killed_at_any_moment_the_file_is_as_it_was_and_the_copy_can_be_made_again(config: Config) -> None:
    await fill(file_of(config), rows=20)
    before = file_of(config).read_bytes()
    steps = copy_until(0, config, POSTGRESQL)
    dice, whole = random.Random(7), 0
    for step in [*sorted(dice.sample(range(1, steps), KILLS)), steps]:
        fresh = replace(config, database=DatabaseConfig(empty_database(f"t{uuid4().hex[:20]}")))
        copy_until(step, fresh, POSTGRESQL)
        assert file_of(config).read_bytes() == before
        if store_revision(fresh):
            whole += 1
            with read_store(fresh, snapshot=True) as execute:
                assert verify_chain(execute, {}, pruning_rules(AuditConfig())).fault is None
        else:
            await asyncio.to_thread(change_engine, fresh, POSTGRESQL)
        assert rows_of(fresh, "SELECT count(*) FROM languages") == [(20,)]
    assert 0 < whole < KILLS, "some kills were before the end, and one after it"


async def test_killed_on_the_way_back_there_is_no_half_file_and_a_start_refuses(config: Config, tmp_path: Path) -> None:
    await fill(file_of(config), rows=20)
    await asyncio.to_thread(change_engine, config, POSTGRESQL)
    back = replace(config, data_dir=tmp_path / "back")
    back.data_dir.mkdir()
    steps = copy_until(0, back, SQLITE)
    assert file_of(back).exists()
    refused = 0
    for step in sorted(random.Random(7).sample(range(1, steps), KILLS)):
        for each in ("fawn.db", "fawn.db-wal", "fawn.db-shm"):
            (back.data_dir / each).unlink(missing_ok=True)
        copy_until(step, back, SQLITE)
        if not file_of(back).exists():
            if (back.data_dir / COPYING).exists():
                refused += 1
                with pytest.raises(DatabaseFault, match="was interrupted"):
                    prepare_databases(back.data_dir)
            await asyncio.to_thread(change_engine, back, SQLITE)
        assert len(dump(file_of(back))["languages"]) == 20
        assert not (back.data_dir / COPYING).exists() or file_of(back).exists()
    assert refused
