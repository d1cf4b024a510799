"""Backups at set times: when one is due, which stay, and the operator's program after it."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import sys
import tarfile
import time
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from bot.backups.feature import check_folder
from bot.backups.writing import BACKUP_JOB, COPY_JOB, NAME, BackupJobs, CopyFailed
from bot.base.background import JobWorker
from bot.config.operations import BackupConfig
from bot.config.schema import Config
from bot.database import audit
from bot.database.database import Database
from bot.rights.current import Current
from bot.storage.jobs import BackgroundJob
from sandbox.disk.folders import ConversationFolders
from tests.fakes.server import until
from tests.support.rehearsed_database import make_empty_database, rehearsed_database

JOB = BackgroundJob(BACKUP_JOB, BACKUP_JOB, 0.0, b"{}", 1, "", "")
COPY = """
import os, shutil, sys
shutil.copy(sys.argv[1], sys.argv[2] + "~")
os.replace(sys.argv[2] + "~", sys.argv[2])
"""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    (tmp_path / "data").mkdir()
    make_empty_database(tmp_path / "data" / "fawn.db")
    async with rehearsed_database(tmp_path / "data" / "fawn.db") as made:
        yield made


def jobs_with(store: Database, tmp_path: Path, **settings: object) -> BackupJobs:
    backup = replace(BackupConfig(to=str(tmp_path / "kept" / "here")), **settings)  # type: ignore[arg-type]  # of the dataclass
    current = Current(replace(Config(), data_dir=tmp_path / "data", backup=backup))
    return BackupJobs(store, current, ConversationFolders(tmp_path / "data" / "threads", 0))


def kept(tmp_path: Path) -> list[str]:
    return sorted(each.name for each in (tmp_path / "kept" / "here").iterdir())


def put_archive(tmp_path: Path, hours_ago: float) -> str:
    folder = tmp_path / "kept" / "here"
    folder.mkdir(parents=True, exist_ok=True)
    name = time.strftime(NAME, time.gmtime(time.time() - hours_ago * 3600))
    (folder / name).write_bytes(b"")
    return name


def last_error(tmp_path: Path) -> str:
    with closing(sqlite3.connect(f"file:{tmp_path}/data/fawn.db?mode=ro", uri=True)) as connection:
        return str(connection.execute("SELECT max(error) FROM jobs").fetchone()[0])


async def written(jobs: BackupJobs, store: Database) -> bool:
    if (effect := await jobs.write(JOB)) is not None:
        await store.run(effect)
    return effect is not None


async def test_the_first_backup_is_written_at_once_and_is_a_whole_one(store: Database, tmp_path: Path) -> None:
    assert await written(jobs_with(store, tmp_path), store)
    [name] = kept(tmp_path)
    with tarfile.open(tmp_path / "kept" / "here" / name) as archive:
        assert archive.getnames() == ["fawn.db"]
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) & 0o077 == 0o055, "parents as usual"
    assert stat.S_IMODE((tmp_path / "kept" / "here").stat().st_mode) == 0o700
    [row] = await store.run(lambda execute: audit.read_newest(execute, 1))
    assert b'"kind":"backup"' in row.body


@pytest.mark.parametrize(("hours_ago", "due"), [(1.0, False), (23.9, False), (24.1, True), (9000.0, True)])
async def test_the_next_one_is_due_when_the_latest_is_old_enough(
    store: Database, tmp_path: Path, hours_ago: float, *, due: bool
) -> None:
    """Also after a restart: nothing but the folder is asked."""
    put_archive(tmp_path, hours_ago)
    assert await written(jobs_with(store, tmp_path), store) is due


async def test_the_oldest_go_when_a_newer_one_is_there_and_other_files_stay(store: Database, tmp_path: Path) -> None:
    old = [put_archive(tmp_path, hours) for hours in (96, 72, 48)]
    for foreign in ("notes.txt", "fawn-before-upgrade.tar.gz", "fawn-20261399-000000.tar.gz"):
        (tmp_path / "kept" / "here" / foreign).write_text("")
    assert await written(jobs_with(store, tmp_path, keep=2), store)
    names = kept(tmp_path)
    assert old[2] in names
    assert not {*old[:2]} & {*names}
    assert {"notes.txt", "fawn-before-upgrade.tar.gz", "fawn-20261399-000000.tar.gz"} < {*names}
    assert len(names) == 5


async def test_a_backup_that_fails_deletes_no_older_one(store: Database, tmp_path: Path) -> None:
    old = [put_archive(tmp_path, hours) for hours in (96, 72)]
    (tmp_path / "data" / "fawn.db").rename(tmp_path / "data" / "gone.db")
    (tmp_path / "data" / "fawn.db").mkdir()
    with pytest.raises(Exception, match="unable to open"):
        await jobs_with(store, tmp_path, keep=1).write(JOB)
    assert kept(tmp_path) == old


async def test_without_a_folder_there_are_no_backups(store: Database, tmp_path: Path) -> None:
    assert not await written(jobs_with(store, tmp_path, to=""), store)


async def test_the_program_gets_the_archive_and_is_tried_again(store: Database, tmp_path: Path) -> None:
    """Through the real worker: it fails while its target is missing, and the archive is written once only."""
    target = tmp_path / "elsewhere" / "copy"
    jobs = jobs_with(store, tmp_path, then=(sys.executable, "-c", COPY, "{file}", str(target)))
    worker = JobWorker(store)
    worker.register(BACKUP_JOB, jobs.write, 3600.0)
    worker.register(COPY_JOB, jobs.copy)
    task = asyncio.create_task(worker.serve(), name="jobs")
    try:
        await until(lambda: "ended with 1" in last_error(tmp_path), what="the failure")
        target.parent.mkdir()
        await store.run(lambda execute: execute(f"UPDATE jobs SET due=0 WHERE kind='{COPY_JOB}'", {}))  # noqa: S608 — a constant
        await until(target.exists, what="the copy")
    finally:
        task.cancel()
        await asyncio.wait([task])
    [name] = kept(tmp_path)
    assert target.read_bytes() == (tmp_path / "kept" / "here" / name).read_bytes()


async def test_a_crash_after_the_archive_loses_no_copy(store: Database, tmp_path: Path) -> None:
    """The job of the copy is stored before the archive is written; the effect only makes it due."""
    await jobs_with(store, tmp_path, then=("true",)).write(JOB)  # its effect is never executed
    [name] = kept(tmp_path)
    rows = await store.run(lambda execute: execute("SELECT key, due FROM jobs", {}))
    assert [row["key"] for row in rows] == [f"{COPY_JOB}:{name}"]
    assert rows[0]["due"] > time.time()


async def test_what_the_program_says_is_bounded_and_printable(store: Database, tmp_path: Path) -> None:
    code = "import sys; print('x' * 9000 + '\\x1b[2J no bucket'); sys.exit(3)"
    jobs = jobs_with(store, tmp_path, then=(sys.executable, "-c", code))
    await jobs.write(JOB)
    [name] = kept(tmp_path)
    payload = f'{{"file": "{tmp_path}/kept/here/{name}"}}'.encode()
    with pytest.raises(CopyFailed, match=r"ended with 3: x+.* no bucket") as failed:
        await jobs.copy(replace(JOB, payload=payload))
    assert len(str(failed.value)) < 400
    assert "\x1b" not in str(failed.value)


async def test_a_check_says_what_is_wrong_with_folder_and_program(tmp_path: Path) -> None:
    good = await check_folder(BackupConfig(to=str(tmp_path / "new" / "folder"), then=("true", "{file}")))
    assert good.ok
    (tmp_path / "file").write_text("")
    assert not (await check_folder(BackupConfig(to=str(tmp_path / "file" / "below")))).ok
    missing = await check_folder(BackupConfig(to=str(tmp_path), then=("no-such-program",)))
    assert "no-such-program" in missing.text
    if os.geteuid():  # root may write everywhere
        assert not (await check_folder(BackupConfig(to="/proc/1"))).ok
