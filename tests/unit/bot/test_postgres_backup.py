"""Backups of a PostgreSQL database: the same archive as that of SQLite, restored into either; and pg_dump's own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from bot.admin.engine_change import POSTGRESQL, change_engine
from bot.admin.operations import Operations
from bot.admin.restore import RestoreRefused, restore_backup
from bot.backups.writing import BACKUP_JOB, BackupJobs
from bot.config.database import DatabaseConfig
from bot.config.operations import AuditConfig, BackupConfig
from bot.config.schema import Config
from bot.database.audit_check import verify_chain
from bot.database.database import Database, Execute
from bot.database.migrate import DatabaseFault, prepare_databases
from bot.rights.current import Current
from bot.service.audit_upkeep import pruning_rules
from bot.service.store import PostgresCopies, open_store, read_store, store_revision
from bot.storage.jobs import BackgroundJob
from sandbox.disk.folders import ConversationFolders
from sandbox.disk.safe_files import make_folders
from sandbox.disk.sealing import NO_SEAL
from sandbox.disk.unpacking import UnpackRefused
from tests.support.filled_store import FACTS, dump, facts_found, fill
from tests.support.postgres import PROGRAMS, empty_database, need_postgres, sql_on_server


def new_place(folder: Path) -> Config:
    """Return a configuration with an empty data_dir and an empty database on a server."""
    need_postgres()
    folder.mkdir()
    return Config(data_dir=folder, database=DatabaseConfig(empty_database(f"t{uuid4().hex[:20]}")))


def server_of(config: Config) -> PostgresCopies:
    return PostgresCopies(config)


async def filled(config: Config, rows: int = 3) -> Config:
    """Fill the database on the server; the file from which it came is gone. A conversation has a file."""
    await fill(config.data_dir / "fawn.db", rows)
    await asyncio.to_thread(change_engine, config, POSTGRESQL)
    for each in config.data_dir.glob("fawn.db*"):
        each.unlink()
    make_folders(config.data_dir / "threads" / "one")
    (config.data_dir / "threads" / "one" / "workspace" / "report.txt").write_text("all of it")
    return config


async def back_up(config: Config, target: Path) -> dict[str, Any]:
    async with open_store(config) as store:
        folders = ConversationFolders(config.data_dir / "threads", 0)
        return await Operations(store, config.data_dir, folders, lambda: Path("none")).backup(str(target))


@pytest.fixture
async def archive(tmp_path: Path) -> Path:
    """A backup of a database on a server, and of data_dir."""
    await back_up(await filled(new_place(tmp_path / "old")), tmp_path / "saved.tar.gz")
    return tmp_path / "saved.tar.gz"


def audit_fault(config: Config) -> str | None:
    with read_store(config, snapshot=True) as execute:
        return verify_chain(execute, {}, pruning_rules(AuditConfig())).fault


async def test_the_archive_is_restored_into_sqlite(archive: Path, tmp_path: Path) -> None:
    data = tmp_path / "new"
    data.mkdir()
    await restore_backup(archive, data, tmp_path / "skills", NO_SEAL)
    assert prepare_databases(data) is None
    assert (data / "threads" / "one" / "workspace" / "report.txt").read_text() == "all of it"
    async with Database(data / "fawn.db") as store:
        assert await facts_found(store, "which cafe on friday?") == [FACTS[0]]
    assert len(dump(data / "fawn.db")["transcript"]) == 3
    assert audit_fault(Config(data_dir=data)) is None


async def test_the_archive_is_restored_into_another_server(archive: Path, tmp_path: Path) -> None:
    config = new_place(tmp_path / "new")
    await restore_backup(archive, config.data_dir, tmp_path / "skills", NO_SEAL, server=server_of(config))
    assert sorted(each.name for each in config.data_dir.iterdir()) == ["threads"]
    async with open_store(config) as store:
        assert await facts_found(store, "which cafe on friday?") == [FACTS[0]]
        found = await store.run(lambda execute: execute("SELECT count(*) AS n FROM transcript", {}))
        assert found[0]["n"] == 3
    assert audit_fault(config) is None


async def test_an_archive_of_sqlite_is_restored_into_a_server(tmp_path: Path) -> None:
    old = Config(data_dir=tmp_path / "old")
    old.data_dir.mkdir()
    await fill(old.data_dir / "fawn.db")
    await back_up(old, tmp_path / "saved.tar.gz")
    config = new_place(tmp_path / "new")
    await restore_backup(
        tmp_path / "saved.tar.gz", config.data_dir, tmp_path / "skills", NO_SEAL, server=server_of(config)
    )
    async with open_store(config) as store:
        assert await facts_found(store, "which cafe on friday?") == [FACTS[0]]


async def test_no_secret_is_in_the_archive(tmp_path: Path) -> None:
    config = await filled(new_place(tmp_path / "old"))
    sql_on_server(config.database.url, "UPDATE people SET push_url='https://bark.example/KEY-OF-JANE'")
    sql_on_server(config.database.url, "UPDATE reply_handles SET token='TOKEN-OF-A-REPLY'")
    written = await back_up(config, tmp_path / "saved.tar.gz")
    assert any("Bark" in line for line in written["left_out"])
    with tarfile.open(tmp_path / "saved.tar.gz") as archive:
        archive.extract("fawn.db", tmp_path)
    content = (tmp_path / "fawn.db").read_bytes()
    assert b"KEY-OF-JANE" not in content
    assert b"TOKEN-OF-A-REPLY" not in content
    assert b"Jane prefers" in content


def insert_pair(execute: Execute, key: str) -> None:
    """Insert a row into two tables, in one transaction."""
    execute("INSERT INTO addresses(thread, conversation) VALUES (:key, 'c')", {"key": key})
    execute("INSERT INTO waiting_numbers(subject, listed) VALUES (:key, 0)", {"key": key})


async def test_the_archive_is_one_moment_while_the_service_writes(tmp_path: Path) -> None:
    config = await filled(new_place(tmp_path / "old"), rows=300)

    async with open_store(config) as store:
        numbers = iter(range(10**6))

        async def write() -> None:
            while True:
                await store.run(partial(insert_pair, key=f"n{next(numbers)}"))

        writing = asyncio.create_task(write())
        while next(numbers) < 5:
            await asyncio.sleep(0)
        await asyncio.to_thread(store.copy_to, tmp_path / "copy.db")
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
    rows = dump(tmp_path / "copy.db")
    assert len(rows["addresses"]) == len(rows["waiting_numbers"])


async def test_set_times_write_archives_too(tmp_path: Path) -> None:
    config = await filled(new_place(tmp_path / "old"))
    current = Current(replace(config, backup=BackupConfig(to=str(tmp_path / "archives"))))
    async with open_store(config) as store:
        jobs = BackupJobs(store, current, ConversationFolders(config.data_dir / "threads", 0))
        effect = await jobs.write(BackgroundJob("k", BACKUP_JOB, time.time(), b"{}", 1, "o", ""))
        assert effect
        await store.run(effect)
    [made] = (tmp_path / "archives").iterdir()
    fresh = new_place(tmp_path / "new")
    await restore_backup(made, fresh.data_dir, tmp_path / "skills", NO_SEAL, server=server_of(fresh))


async def test_a_copy_and_the_overwriting_of_what_is_forgotten_do_not_meet(tmp_path: Path) -> None:
    """A snapshot would keep the rows that VACUUM FULL is to remove."""
    config = await filled(new_place(tmp_path / "old"), rows=300)
    async with open_store(config) as store:
        copying = asyncio.create_task(asyncio.to_thread(store.copy_to, tmp_path / "copy.db"))
        while not (tmp_path / "copy.db").exists():
            await asyncio.sleep(0)
        assert await store.overwrite_deleted() is copying.done() is False
        await copying
        assert await store.overwrite_deleted()


# ------------------------------------------------------------ what a restore refuses


async def test_a_server_with_tables_and_a_data_dir_in_use_stay_as_they_are(archive: Path, tmp_path: Path) -> None:
    config = new_place(tmp_path / "new")
    (config.data_dir / "threads").mkdir()
    with pytest.raises(RestoreRefused, match="contains threads"):
        await restore_backup(archive, config.data_dir, tmp_path / "skills", NO_SEAL, server=server_of(config))
    assert store_revision(config) == ""
    (config.data_dir / "threads").rmdir()
    async with open_store(config):
        pass
    with pytest.raises(DatabaseFault, match="not empty"):
        await restore_backup(archive, config.data_dir, tmp_path / "skills", NO_SEAL, server=server_of(config))
    assert [*config.data_dir.iterdir()] == []


async def test_a_hostile_archive_leaves_nothing(tmp_path: Path) -> None:
    config = new_place(tmp_path / "new")
    (tmp_path / "fawn.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 8000)
    await fill(tmp_path / "other.db")
    for database, outside in (("fawn.db", ""), ("other.db", "../outside")):
        with tarfile.open(tmp_path / "bad.tar.gz", "w:gz") as target:
            target.add(tmp_path / database, "fawn.db")
            if outside:
                target.add(tmp_path / "fawn.db", outside)
        with pytest.raises((UnpackRefused, DatabaseFault)):
            await restore_backup(
                tmp_path / "bad.tar.gz", config.data_dir, tmp_path / "skills", NO_SEAL, server=server_of(config)
            )
    assert [*config.data_dir.iterdir()] == []
    assert store_revision(config) == ""


async def test_killed_at_any_step_a_start_refuses_and_the_same_restore_begins_again(
    archive: Path, tmp_path: Path
) -> None:
    refused = 0
    for number, step in enumerate((9, 25, 40, 46, 55, 90)):
        config = new_place(tmp_path / f"new{number}")
        paths = (archive, config.data_dir, tmp_path / f"skills{number}")
        command = [
            sys.executable,
            "-m",
            "tests.support.killed_restore",
            str(step),
            *map(str, paths),
            config.database.url,
        ]
        status = await asyncio.to_thread(subprocess.call, command)
        if not store_revision(config):
            assert status
            if (config.data_dir / "restoring").exists():
                refused += 1
                with pytest.raises(DatabaseFault, match="was interrupted"):
                    async with open_store(config):
                        pass
            await restore_backup(
                archive, config.data_dir, tmp_path / f"skills{number}", NO_SEAL, server=server_of(config)
            )
        async with open_store(config) as store:
            assert await facts_found(store, "which cafe on friday?") == [FACTS[0]]
        assert (config.data_dir / "threads" / "one" / "workspace" / "report.txt").read_text() == "all of it"
    assert refused


# ------------------------------------------------------------ PostgreSQL's own programs


@pytest.mark.parametrize("form", ["custom", "plain"])
async def test_what_pg_dump_wrote_is_restored_with_its_search(tmp_path: Path, form: str) -> None:
    config, fresh = await filled(new_place(tmp_path / "old")), new_place(tmp_path / "new")
    dumped = tmp_path / "dump"
    subprocess.run([PROGRAMS[-1] / "pg_dump", f"--format={form}", "-f", dumped, "-d", config.database.url], check=True)
    tool = ["pg_restore", "--exit-on-error"] if form == "custom" else ["psql", "-q", "-v", "ON_ERROR_STOP=1", "-f"]
    subprocess.run(
        [PROGRAMS[-1] / tool[0], *tool[1:], dumped, "-d", fresh.database.url], check=True, stdout=subprocess.DEVNULL
    )
    async with open_store(fresh) as store:
        assert await facts_found(store, "which cafe on friday?") == [FACTS[0]]
        assert await facts_found(store, "门吊") == [FACTS[1]]
        assert await facts_found(store, "release") == [FACTS[2]]
        insert = "INSERT INTO outbox(key, kind, thread, payload, created) VALUES ('n', 'say', 't', 'x', 0) RETURNING id"
        [row] = await store.run(lambda execute: execute(insert, {}))
        assert row["id"] == 4
    assert audit_fault(fresh) is None
