"""`fawn backup` archives every tenant file and no foreign one, whatever tenants create."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from agent.skills.library import SkillFolders, SkillLibrary
from bot.admin.operations import Answer, Operations
from bot.base.stored_files import command_folder, copy_path
from bot.database.database import Database
from sandbox.disk.folders import ConversationFolders
from sandbox.disk.safe_files import make_folders
from tests.support.folder_trees import create_deep_tree, remove_afterwards
from tests.support.rehearsed_database import make_empty_database

Backup = Callable[..., Awaitable[Answer]]


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    with remove_afterwards(tmp_path / "data") as folder:
        folder.mkdir()
        make_empty_database(folder / "fawn.db")
        yield folder


@pytest.fixture
def work(data: Path) -> Path:
    """The workspace of one conversation; another conversation has a file in its own."""
    make_folders(data / "threads" / "other")
    (data / "threads" / "other" / "workspace" / "file").write_text("theirs")
    make_folders(data / "threads" / "one")
    return data / "threads" / "one" / "workspace"


@pytest.fixture
async def backup(data: Path, tmp_path: Path) -> AsyncIterator[Backup]:
    async with Database(data / "fawn.db") as store:
        operations = Operations(store, data, ConversationFolders(data / "threads", 0), lambda: tmp_path / "mine")
        yield lambda name="saved.tar.gz": operations.backup(str(tmp_path / name))


def restored(tmp_path: Path) -> Path:
    """Unpack the archive as documented."""
    (tmp_path / "restored").mkdir()
    subprocess.run(["tar", "-xzf", tmp_path / "saved.tar.gz", "-C", tmp_path / "restored"], check=True)
    return tmp_path / "restored"


async def test_a_backup_contains_the_skills_and_what_operators_decided_about_them(
    backup: Backup, data: Path, tmp_path: Path
) -> None:
    for folder in (data / "skills", tmp_path / "mine" / "minutes"):
        folder.mkdir(parents=True)
    (data / "skills" / "pins.json").write_text("{}")
    (data / "skills" / "viewpoint").write_text("kept")
    (tmp_path / "mine" / "minutes" / "SKILL.md").write_text("---\nname: minutes\ndescription: Write them.\n---\n")
    library = SkillLibrary(SkillFolders(custom=tmp_path / "mine"), data / "skills")
    await library.refresh()
    assert (library.view / "minutes" / "SKILL.md").exists()
    assert (await backup())["left_out"] == []
    back = restored(tmp_path)
    assert (back / "skills" / "pins.json").read_text() == "{}"
    assert (back / "skills" / "viewpoint").read_text() == "kept"
    assert not (back / "skills" / "view").exists(), "it is made from the others"
    again = SkillLibrary(SkillFolders(custom=back / "custom-skills"), back / "skills")
    await again.refresh()
    assert (again.view / "minutes" / "SKILL.md").exists()
    assert (back / "custom-skills" / "minutes" / "SKILL.md").read_text().startswith("---")


async def test_a_backup_contains_the_files_that_wait_for_delivery(backup: Backup, data: Path, tmp_path: Path) -> None:
    copy = command_folder(data, "export", "key") / "my-data.jsonl"
    copy.parent.mkdir(parents=True)
    copy.write_text("mine")
    assert (await backup())["left_out"] == []
    back = restored(tmp_path)
    assert copy_path(back, str(copy)).read_text() == "mine", "also in another data_dir"


async def test_a_backup_has_nothing_of_the_handles_of_events(backup: Backup, data: Path, tmp_path: Path) -> None:
    token = "https://hooks.example/secret"
    with sqlite3.connect(data / "fawn.db") as store:
        store.execute("INSERT INTO reply_handles VALUES ('slack/T/C/', '1', ?, 'slack:U', 9e9)", (token,))
    assert (await backup())["left_out"] == []
    assert token.encode() not in (restored(tmp_path) / "fawn.db").read_bytes()


async def test_a_restored_backup_equals_the_original(backup: Backup, work: Path, tmp_path: Path) -> None:
    (work / "a").write_text("one content")
    os.link(work / "a", work / "b")
    os.link(work / "a", work.parent / "outputs" / "c")
    (work / "bin").mkdir(mode=0o750)
    (work / "bin" / "python").symlink_to("/usr/bin/python3")
    (work / "bin" / "tool").write_text("#!/bin/sh\n")
    (work / "bin" / "tool").chmod(0o755)
    os.utime(work / "bin" / "tool", (1_000_000_000, 1_000_000_000))
    odd = "报告\n" + "x" * 150 + "\udcff"
    (work / odd).write_text("odd")
    (work / "empty").touch()
    answer = await backup()
    assert answer["left_out"] == []
    back = restored(tmp_path) / "threads" / "one" / "workspace"
    for name in ("a", "b", "../outputs/c"):
        assert (back / name).read_text() == "one content"
    assert (back / "a").stat().st_ino == (back / "b").stat().st_ino
    assert os.readlink(back / "bin" / "python") == "/usr/bin/python3"
    tool = (back / "bin" / "tool").stat()
    assert (tool.st_mode & 0o777, tool.st_mtime) == (0o755, 1_000_000_000)
    assert (back / odd).read_text() == "odd"
    assert (back.parent.stat().st_mode & 0o777, back.stat().st_mode & 0o777) == (0o711, 0o700)
    assert (back.parents[1] / "other" / "workspace" / "file").read_text() == "theirs"


async def test_only_the_service_can_read_it(backup: Backup, data: Path, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        await backup()
    finally:
        os.umask(before)
    assert (tmp_path / "saved.tar.gz").stat().st_mode & 0o777 == 0o600
    with tarfile.open(tmp_path / "saved.tar.gz") as tar:
        assert [member.mode & 0o077 for member in tar.getmembers()[:1]] == [0]
    await backup("new/saved.tar.gz")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


@pytest.mark.usefixtures("deep_tree_removed")
async def test_a_too_deep_folder_is_reported_and_the_rest_is_archived(
    backup: Backup, work: Path, tmp_path: Path
) -> None:
    (work / "a").touch()
    create_deep_tree(work, 3_000)
    answer = await backup()
    (line,) = answer["left_out"]
    assert line.startswith("threads/one/workspace/d/d/d")
    assert "folders deep" in line
    assert len(line) < 500
    back = restored(tmp_path)
    assert (back / "threads" / "one" / "workspace" / "a").exists()
    assert (back / "threads" / "other" / "workspace" / "file").exists()


async def test_pipes_and_sockets_are_reported_in_a_few_lines(
    backup: Backup, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        os.mkfifo(work / f"pipe{number:02}")
    monkeypatch.chdir(work)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("sock")
    answer = await backup()
    assert answer["left_out"] == [
        *(f"threads/one/workspace/pipe{number:02}: is a pipe" for number in range(3)),
        "threads/one: 28 more",
    ]


async def test_a_file_under_a_lease_does_not_block_the_backup(backup: Backup, work: Path, tmp_path: Path) -> None:
    """The kernel would block the open for 45 seconds."""
    for number in range(20):
        (work / f"{number}").write_text("x")
    script = (
        "import fcntl, os, signal, sys\nsignal.signal(signal.SIGIO, signal.SIG_IGN)\n"
        "held = [os.open(entry.path, os.O_RDWR) for entry in os.scandir(sys.argv[1])]\n"
        "for fd in held: fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, work], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        answer = await backup()
        assert holder.poll() is None
        assert holder.stdin
        holder.stdin.close()
    assert answer["left_out"][0] == "threads/one/workspace/0: is held by a program (a lease)"
    assert answer["left_out"][-1] == "threads/one: 17 more"
    assert (restored(tmp_path) / "threads" / "other" / "workspace" / "file").exists()


async def test_sparse_files_do_not_fill_the_archive(backup: Backup, work: Path, tmp_path: Path) -> None:
    with open(work / "sparse", "wb") as file:
        file.truncate(1 << 40)
    (work / "small").write_text("x")
    answer = await backup()
    assert answer["left_out"] == ["threads/one/workspace/sparse: has more than 8,192 MB of holes"]
    assert answer["bytes"] < 1 << 20


async def test_a_failed_backup_leaves_no_file_and_keeps_the_previous_one(
    backup: Backup, data: Path, tmp_path: Path
) -> None:
    await backup()
    good = (tmp_path / "saved.tar.gz").read_bytes()
    (data / "fawn.db").write_bytes(b"no database" * 1000)
    with pytest.raises(sqlite3.DatabaseError):
        await backup()
    assert (tmp_path / "saved.tar.gz").read_bytes() == good
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "saved.tar.gz"]
    assert not [path for path in data.iterdir() if path.is_dir()]


async def test_a_target_planted_by_another_user_is_not_written_to(backup: Backup, data: Path, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("untouched")
    for name in ("saved.tar.gz", "saved.tar.gz.partial"):
        (tmp_path / name).symlink_to("victim")
    await backup()
    assert (tmp_path / "victim").read_text() == "untouched"
    assert not (tmp_path / "saved.tar.gz").is_symlink()


async def test_a_link_among_the_folders_of_conversations_is_named_and_not_followed(
    data: Path, work: Path, backup: Backup, tmp_path: Path
) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "secret").write_text("of the host")
    (data / "threads" / "planted").symlink_to(tmp_path / "host")
    (data / "threads" / "disk").symlink_to(tmp_path / "host")
    (data / "threads" / "disk.img").symlink_to("/dev/null")
    answer = await backup()
    assert b"of the host" not in [path.read_bytes() for path in restored(tmp_path).rglob("*") if path.is_file()]
    assert not (tmp_path / "restored" / "threads" / "planted").exists()
    assert (tmp_path / "restored" / "threads" / "other" / "workspace" / "file").read_text() == "theirs"
    assert "threads/planted: a link, which is not followed" in answer["left_out"]
