"""`fawn restore` puts a backup into an empty data_dir: whole or not at all, and nothing outside of it."""

from __future__ import annotations

import gzip
import io
import os
import random
import sqlite3
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from bot.admin.operations import Operations
from bot.admin.restore import RestoreRefused, restore_backup
from bot.base.exit_codes import FAULT, OK, TAKEN
from bot.database.data_lock import DataLock
from bot.database.database import Database
from bot.database.migrate import DatabaseFault, NewerSchema, prepare_databases
from sandbox.disk.folders import ConversationFolders
from sandbox.disk.safe_files import make_folders
from sandbox.disk.sealing import NO_SEAL
from sandbox.disk.unpacking import UnpackRefused, unpack_backup
from tests.support.forked_services import program, python
from tests.support.rehearsed_database import make_empty_database

KILLS = 20


@pytest.fixture
async def archive(tmp_path: Path) -> Path:
    """A backup of a data_dir with a conversation, files of all kinds, and a skill."""
    data, skills = tmp_path / "old", tmp_path / "mine"
    make_empty_database(data_with_files(data) / "fawn.db")
    (skills / "minutes").mkdir(parents=True)
    (skills / "minutes" / "SKILL.md").write_text("---\nname: minutes\n---\n")
    async with Database(data / "fawn.db") as store:
        sql = "INSERT INTO outbox(key, kind, thread, payload, created) VALUES ('kept', 'say', 't', 'x', 0)"
        await store.run(lambda execute: execute(sql, {}))
        operations = Operations(store, data, ConversationFolders(data / "threads", 0), lambda: skills)
        await operations.backup(str(tmp_path / "saved.tar.gz"))
    return tmp_path / "saved.tar.gz"


def data_with_files(data: Path) -> Path:
    data.mkdir()
    make_folders(data / "threads" / "one")
    work = data / "threads" / "one" / "workspace"
    (work / "report.txt").write_text("all of it")
    (work / "tool").write_text("#!/bin/sh\n")
    (work / "tool").chmod(0o755)
    (work / "same").hardlink_to(work / "report.txt")
    (work / "outside").symlink_to("/etc/passwd")
    (work / "closed").mkdir()
    (work / "closed" / "file").write_text("in it")
    (work / "closed").chmod(0o500)
    return data


def assert_whole(data: Path) -> None:
    """Assert that everything of the backup is in its place, and nothing else."""
    assert {each.name for each in data.iterdir()} <= {"fawn.db", "threads", "custom-skills", "lock"}
    work = data / "threads" / "one" / "workspace"
    assert (work / "report.txt").read_text() == (work / "same").read_text() == "all of it"
    assert (work / "same").stat().st_ino == (work / "report.txt").stat().st_ino
    assert os.readlink(work / "outside") == "/etc/passwd"
    assert (work / "tool").stat().st_mode & 0o777 == 0o755
    assert (work / "closed").stat().st_mode & 0o777 == 0o500
    with closing(sqlite3.connect(data / "fawn.db")) as connection:
        assert connection.execute("SELECT key FROM outbox").fetchall() == [("kept",)]
        [(body,)] = connection.execute("SELECT body FROM audit ORDER BY seq DESC LIMIT 1")
        assert b'"kind":"restore"' in body


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "new").mkdir()
    return tmp_path / "new"


async def test_everything_is_back_and_a_start_finds_it(archive: Path, data: Path, tmp_path: Path) -> None:
    restored = await restore_backup(archive, data, tmp_path / "skills", NO_SEAL)
    assert restored.files == 5, "database, three files, a skill; a hard link is none of its own"
    assert_whole(data)
    assert (tmp_path / "skills" / "minutes" / "SKILL.md").exists()
    assert restored.skills is None
    assert prepare_databases(data) is None


async def test_own_skills_that_are_there_already_stay(archive: Path, data: Path, tmp_path: Path) -> None:
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "newer").write_text("")
    restored = await restore_backup(archive, data, tmp_path / "skills", NO_SEAL)
    assert restored.skills == data / "custom-skills"
    assert [each.name for each in (tmp_path / "skills").iterdir()] == ["newer"]


@pytest.mark.parametrize("name", ["fawn.db", "threads", "spool", "skills"])
async def test_a_data_dir_that_is_in_use_stays_as_it_is(archive: Path, data: Path, tmp_path: Path, name: str) -> None:
    (data / name).mkdir()
    with pytest.raises(RestoreRefused, match=f"is in use: it contains {name}"):
        await restore_backup(archive, data, tmp_path / "skills", NO_SEAL)
    assert [each.name for each in data.iterdir()] == [name]


async def test_the_database_of_a_newer_version_is_refused(archive: Path, data: Path, tmp_path: Path) -> None:
    with tarfile.open(archive) as source:
        source.extract("fawn.db", tmp_path)
    with closing(sqlite3.connect(tmp_path / "fawn.db")) as connection:
        connection.execute("UPDATE alembic_version SET version_num='9999'")
        connection.commit()
    with tarfile.open(tmp_path / "newer.tar.gz", "w:gz") as target:
        target.add(tmp_path / "fawn.db", "fawn.db")
    with pytest.raises(NewerSchema):
        await restore_backup(tmp_path / "newer.tar.gz", data, tmp_path / "skills", NO_SEAL)
    assert [*data.iterdir()] == []


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([entry("../escaped")], "its entry ../escaped"),
        ([entry("/tmp/escaped")], "its entry /tmp/escaped"),
        ([entry("threads/../../escaped")], "its entry threads/../../escaped"),
        ([entry("fawn.db-wal")], "its entry fawn.db-wal"),
        ([entry("config.yaml")], "its entry config.yaml"),
        ([entry("threads/x", tarfile.SYMTYPE, ".."), entry("threads/x/escaped")], "its entry threads/x/escaped"),
        ([entry("threads/x", tarfile.SYMTYPE, ".."), entry("threads/y", tarfile.LNKTYPE, "threads/x")], "threads/y"),
        ([entry("threads/x", tarfile.SYMTYPE, "../../escaped"), entry("threads/x")], "its entry threads/x"),
        ([entry("threads/x", tarfile.SYMTYPE, ".."), entry("threads/./x", tarfile.DIRTYPE)], "its entry threads/./x"),
        ([entry("threads/x"), entry("threads/x", tarfile.SYMTYPE, "../../escaped")], "its entry threads/x"),
        ([entry("threads/x", tarfile.LNKTYPE, "/etc/passwd")], "its entry threads/x"),
        ([entry("threads", tarfile.SYMTYPE, "/tmp")], "its entry threads does"),
        ([entry("skills")], "its entry skills does"),
        ([entry("threads/x", tarfile.FIFOTYPE)], "its entry threads/x"),
        ([entry("threads/x", tarfile.CHRTYPE)], "its entry threads/x"),
        ([entry("threads/\x1b[2Jx", tarfile.FIFOTYPE)], r"threads/\S*x does not belong"),
    ],
)
async def test_an_entry_that_leaves_the_data_dir_is_refused(
    archive: Path, data: Path, tmp_path: Path, entries: list[tarfile.TarInfo], said: str
) -> None:
    with tarfile.open(archive) as source, tarfile.open(tmp_path / "bad.tar.gz", "w:gz") as target:
        target.addfile(source.getmember("fawn.db"), source.extractfile("fawn.db"))
        for each in entries:
            target.addfile(each)
    before = {*tmp_path.iterdir()}
    with pytest.raises(UnpackRefused, match=said):
        await restore_backup(tmp_path / "bad.tar.gz", data, tmp_path / "skills", NO_SEAL)
    assert [*data.iterdir()] == []
    assert {*tmp_path.iterdir()} == before


def header(kind: bytes, size: int) -> bytes:
    made = entry("././@PaxHeader", kind)
    made.size = size
    return made.tobuf(tarfile.GNU_FORMAT)


def pax(**values: str) -> bytes:
    """Return a header that overrides fields of the entry after it."""
    text = b"".join(_record(f"{name}={value}\n".encode()) for name, value in values.items())
    return header(tarfile.XHDTYPE, len(text)) + text.ljust(-(-len(text) // 512) * 512, b"\0")


def _record(text: bytes) -> bytes:
    length = next(n for n in range(len(text), len(text) + 9) if n == len(text) + len(f"{n} "))
    return b"%d %b" % (length, text)


@pytest.mark.parametrize(
    "blocks",
    [
        header(tarfile.XHDTYPE, 1 << 33),
        header(tarfile.GNUTYPE_LONGNAME, 1 << 33),
        pax(size="-1024") + entry("threads/x").tobuf(),
        pax(size="-1048576") + entry("threads/x").tobuf(),
        pax(mtime="1e400") + entry("threads/x").tobuf(),
        pax(mtime="nan") + entry("threads/x").tobuf(),
        pax(**{"GNU.sparse.map": "1,x"}) + entry("threads/x").tobuf(),
        pax(**{"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}) + entry("threads/x").tobuf(),
        header(tarfile.GNUTYPE_LONGNAME, 0) * 5000,
        pax(path="threads/x\0y") + entry("threads/x").tobuf(),
        pax(linkpath="y\0z") + entry("threads/x", tarfile.SYMTYPE, "y").tobuf(),
    ],
    ids=[
        "long pax",
        "long name",
        "back",
        "far back",
        "never",
        "no time",
        "no map",
        "no holes",
        "names of names",
        "zero in a name",
        "zero in a link",
    ],
)
def test_an_archive_whose_headers_lie_is_refused_within_bounds(archive: Path, tmp_path: Path, blocks: bytes) -> None:
    """In a process of its own, which may have 300 MB: a loop or eight gigabytes would end it."""
    with tarfile.open(archive) as source, tarfile.open(tmp_path / "bad.tar", "w") as target:
        target.addfile(source.getmember("fawn.db"), source.extractfile("fawn.db"))
        end = target.offset
    whole = (tmp_path / "bad.tar").read_bytes()[:end] + blocks
    with gzip.open(tmp_path / "bad.tar.gz", "wb", 1) as packed:
        packed.write(whole)
        for _ in range(400 if len(blocks) == 512 else 1):  # what a long header claims to have
            packed.write(bytes(1 << 20))
    program = (
        "import pathlib, resource, sys; from sandbox.disk.unpacking import *\n"
        "resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (60, 60))\n"
        "file, target = map(pathlib.Path, sys.argv[1:])\n"
        "try: unpack_backup(file, target, 'fawn.db', ('threads',))\n"
        "except UnpackRefused as error: print('refused:', error)\n"
    )
    (tmp_path / "target").mkdir()
    argv: list[str | Path] = [sys.executable, "-c", program, tmp_path / "bad.tar.gz", tmp_path / "target"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("refused: "), done.stderr[-2000:]


def test_more_entries_than_the_bound_or_the_disk_takes_are_refused(archive: Path, tmp_path: Path) -> None:
    """Empty files need no room by their sizes: only their number shows what they take."""
    many = tmp_path / "many.tar.gz"
    with tarfile.open(archive) as source, tarfile.open(many, "w:gz") as target:
        source.extract("fawn.db", tmp_path)
        target.add(tmp_path / "fawn.db", "fawn.db")
        for number in range(9):
            target.addfile(tarfile.TarInfo(f"threads/{number}"))
    (tmp_path / "new").mkdir()
    assert unpack_backup(many, tmp_path / "new", "fawn.db", ("threads",), most=10)[0] == 10
    (tmp_path / "small").mkdir()
    with pytest.raises(UnpackRefused, match="more than 9 entries, the most that a restore takes"):
        unpack_backup(many, tmp_path / "small", "fawn.db", ("threads",), most=9)
    assert [*(tmp_path / "small").iterdir()] == []
    config = tmp_path / "small.yaml"
    config.write_text(f"config_version: 1\ndata_dir: {tmp_path / 'by-command'}\n")
    done = fawn("restore", str(many), "--entries", "9", config=config)
    assert (done.returncode, "give --entries" in done.stderr) == (FAULT, True), done.stderr


def test_modes_are_those_of_archived_files(archive: Path, tmp_path: Path) -> None:
    with tarfile.open(archive) as source, tarfile.open(tmp_path / "bad.tar.gz", "w:gz") as target:
        target.addfile(source.getmember("fawn.db"), source.extractfile("fawn.db"))
        program = entry("threads/x")
        program.mode = 0o6755
        target.addfile(program)
    (tmp_path / "target").mkdir()
    unpack_backup(tmp_path / "bad.tar.gz", tmp_path / "target", "fawn.db", ("threads",))
    assert stat.S_IMODE((tmp_path / "target/threads/x").stat().st_mode) == 0o755


def cut(whole: bytes) -> bytes:
    return whole[: len(whole) // 2]


def flip(whole: bytes) -> bytes:
    middle = len(whole) // 2
    return whole[:middle] + bytes(255 - each for each in whole[middle : middle + 64]) + whole[middle + 64 :]


@pytest.mark.parametrize("damage", [cut, flip, lambda _: b"", lambda _: b"PK\x03\x04 no archive of this kind"])
async def test_a_damaged_archive_restores_nothing(
    archive: Path, data: Path, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    archive.write_bytes(damage(archive.read_bytes()))
    with pytest.raises(UnpackRefused, match=r"saved.tar.gz (is damaged or no backup|cannot be unpacked|is no backup)"):
        await restore_backup(archive, data, tmp_path / "skills", NO_SEAL)
    assert [*data.iterdir()] == []


async def test_a_damaged_database_restores_nothing(data: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "bad.tar.gz", "w:gz") as target:
        made = entry("fawn.db")
        made.size = 8192
        target.addfile(made, io.BytesIO(b"SQLite format 3\0" + b"x" * 8176))
    with pytest.raises(UnpackRefused, match="is damaged"):
        await restore_backup(tmp_path / "bad.tar.gz", data, tmp_path / "skills", NO_SEAL)
    assert [*data.iterdir()] == []


@pytest.mark.slow
async def test_a_restore_that_is_killed_leaves_nothing_half(archive: Path, tmp_path: Path) -> None:
    """At twenty random moments: a start refuses what is not whole, and the same command again makes it whole."""

    def kill(step: int, data: Path) -> int:
        words = (str(step), str(archive), str(data), str(tmp_path / "skills"))
        return subprocess.run([*python(), "-m", "tests.support.killed_restore", *words], check=False).returncode

    last = 32
    (tmp_path / "32").mkdir()
    while kill(last, tmp_path / str(last)):
        last *= 2
        (tmp_path / str(last)).mkdir()
    assert_whole(tmp_path / str(last))
    interrupted = 0
    for step in sorted(random.sample(range(1, last), KILLS)):
        data = tmp_path / f"killed-{step}"
        data.mkdir()
        if not kill(step, data):  # it had fewer steps
            assert_whole(data)
            continue
        if not (data / "fawn.db").exists() and [*data.iterdir()]:
            interrupted += 1
            with pytest.raises(DatabaseFault, match="was interrupted"):
                prepare_databases(data)
        if not (data / "fawn.db").exists():
            await restore_backup(archive, data, tmp_path / "skills", NO_SEAL)
        assert_whole_or_cleaning(data)
    assert interrupted


def assert_whole_or_cleaning(data: Path) -> None:
    """Assert that all is there; what the last step had not removed yet is empty."""
    if (data / "restoring").exists():
        assert [*(data / "restoring").iterdir()] == []
        (data / "restoring").rmdir()
    assert_whole(data)


def fawn(*words: str, config: Path) -> subprocess.CompletedProcess[str]:
    command = [*program(), *words, "--config", str(config)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


async def test_the_command_restores_and_says_what_to_do(archive: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"config_version: 1\ndata_dir: {tmp_path / 'new'}\nskills: {{custom: {tmp_path / 'skills'}}}\n")
    done = fawn("restore", str(archive), config=config)
    assert done.returncode == OK, done.stderr
    assert "Start Fawn now" in done.stdout
    assert_whole(tmp_path / "new")
    again = fawn("restore", str(archive), config=config)
    assert again.returncode == FAULT
    assert "is in use: it contains fawn.db" in again.stderr
    with DataLock(tmp_path / "new"):
        assert fawn("restore", str(archive), config=config).returncode == TAKEN
