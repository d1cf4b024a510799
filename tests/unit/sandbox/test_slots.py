"""Folders of ready pods: a conversation's files move into them, whole, whenever the service is killed."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sandbox.base import FOLDERS, SandboxFileError
from sandbox.disk import safe_files
from sandbox.disk.slots import MAX_ENTRIES, RECORD, STALE_SECONDS, Slots

ADOPT = """
import sys
from pathlib import Path
from sandbox.disk.slots import Slots
root = Path(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
Slots(root / "state/ready", root, None).adopt("slot", root / "threads/a")
"""


def slots_of(root: Path) -> Slots:
    return Slots(root / "state/ready", root, None)


def contents(folder: Path) -> dict[str, str]:
    return {str(each.relative_to(folder)): each.read_text() for each in folder.rglob("*") if each.is_file()}


def fill(folder: Path, count: int) -> dict[str, str]:
    safe_files.make_folders(folder)
    for name, i in itertools.product(FOLDERS, range(count)):
        (folder / name / f"{i}").write_text(f"{name} {i}")
    (folder / "workspace" / "deep" / "er").mkdir(parents=True)
    (folder / "workspace" / "deep" / "er" / "file").write_text("deep")
    (folder / "outputs" / "link").symlink_to("/etc/passwd")
    return contents(folder)


def test_files_move_into_the_slots_folders_and_those_to_their_place(tmp_path: Path) -> None:
    slots, folder = slots_of(tmp_path), tmp_path / "threads/a"
    before = fill(folder, 20)
    slot = slots.make("slot")
    mounted = {name: (slot / name).stat().st_ino for name in FOLDERS}  # what a pod has mounted
    slots.adopt("slot", folder)
    assert contents(folder) == before
    assert {name: (folder / name).stat().st_ino for name in FOLDERS} == mounted
    assert os.readlink(folder / "outputs" / "link") == "/etc/passwd"
    assert not slot.exists()
    assert slots.recover() == []


def test_a_new_conversation_gets_the_slots_folders(tmp_path: Path) -> None:
    slots = slots_of(tmp_path)
    mounted = (slots.make("slot") / "outputs").stat().st_ino
    slots.adopt("slot", tmp_path / "threads/new")
    assert (tmp_path / "threads/new/outputs").stat().st_ino == mounted


def test_a_conversation_with_many_entries_does_not_move(tmp_path: Path) -> None:
    folder = tmp_path / "threads/a"
    assert Slots.fits(folder)
    fill(folder, MAX_ENTRIES // 3 - 1)
    assert Slots.fits(folder)
    for i in range(9):
        (folder / "uploads" / f"more {i}").touch()
    assert not Slots.fits(folder)


@pytest.mark.slow
def test_a_kill_at_any_moment_loses_no_file(tmp_path: Path) -> None:
    chance, split = random.Random(32), 0
    for i in range(12):
        root = tmp_path / str(i)
        folder = root / "threads/a"
        before = fill(folder, 300)
        slots = slots_of(root)
        slots.make("slot")
        mover = subprocess.Popen(
            [sys.executable, "-c", ADOPT, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert mover.stdin
        assert mover.stdout
        mover.stdout.readline()
        print(file=mover.stdin, flush=True)
        time.sleep(chance.uniform(0.0, 0.02))
        mover.kill()
        mover.communicate()
        split += contents(folder) != before
        slots.recover()
        assert contents(folder) == before
        assert not (root / "state/ready/slot" / RECORD).exists()
    assert split, "some of the kills came in the middle"


def test_what_was_half_moved_is_moved_back_and_what_was_written_since_is_kept(tmp_path: Path) -> None:
    slots, folder = slots_of(tmp_path), tmp_path / "threads/a"
    fill(folder, 3)
    slot = slots.make("slot")
    for name in ("0", "1"):
        (folder / "uploads" / name).rename(slot / "uploads" / name)
    (folder / "uploads" / "0").write_text("written after the restart")
    (slot / RECORD).write_text('{"folder": "threads/a"}')
    assert slots.recover() == ["slot"]
    found = contents(folder)
    assert found["uploads/0"] == "written after the restart"
    assert found["uploads/0-2"] == "uploads 0"
    assert found["uploads/1"] == "uploads 1"
    assert not slot.exists()


def test_a_move_that_another_process_is_making_is_left_alone(tmp_path: Path) -> None:
    slots, folder = slots_of(tmp_path), tmp_path / "threads/a"
    fill(folder, 1)
    slot = slots.make("slot")
    with slots._record(slot) as record:  # as `adopt` holds it
        os.write(record, b'{"folder": "threads/a"}')
        assert slots_of(tmp_path).recover() == []
    assert slots_of(tmp_path).recover() == ["slot"]


@pytest.mark.parametrize("text", ["", "{", '{"folder": "../elsewhere"}', '{"folder": "/etc"}'])
def test_a_record_that_cannot_be_right_moves_nothing(tmp_path: Path, text: str) -> None:
    root = tmp_path / "claim"
    slots = slots_of(root)
    slot = slots.make("slot")
    (slot / RECORD).write_text(text)
    if "folder" in text:
        with pytest.raises(OSError, match="another place"):
            slots.recover()
        assert slot.exists()
    else:
        assert slots.recover() == ["slot"]
        assert not slot.exists()
    assert not (tmp_path / "elsewhere").exists()


def test_a_move_that_fails_leaves_all_where_it_was(tmp_path: Path) -> None:
    slots, folder = slots_of(tmp_path), tmp_path / "threads/a"
    before = fill(folder, 3)
    slot = slots.make("slot")
    (slot / "outputs").rmdir()  # the last of the three
    with pytest.raises(SandboxFileError, match="No such file"):
        slots.adopt("slot", folder)
    assert contents(folder) == before
    slots.discard("slot")
    assert not slot.exists()


def test_uploads_that_arrive_during_the_move_are_kept(tmp_path: Path) -> None:
    slots, folder, stop = slots_of(tmp_path), tmp_path / "threads/a", threading.Event()
    safe_files.make_folders(folder)
    written: list[str] = []

    def upload(writer: int) -> None:
        for i in itertools.count():
            if stop.wait(0.01):
                return
            safe_files.write_file(folder / "uploads", f"{writer}-{i}", b"x" * 2000)
            written.append(f"{writer}-{i}")

    threads = [threading.Thread(target=upload, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    try:
        for i in range(100_000):  # moves, until many were beside an upload
            slots.make(f"slot{i}")
            slots.adopt(f"slot{i}", folder)
            if i >= 40 and len(written) > 60:
                break
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert len(written) > 60
    assert sorted(os.listdir(folder / "uploads")) == sorted(written)


def test_slots_of_a_killed_service_are_removed_later(tmp_path: Path) -> None:
    slots = slots_of(tmp_path)
    old, used, fresh = (slots.make(name) for name in ("old", "used", "fresh"))
    for slot in (old, used):
        os.utime(slot, (0, time.time() - STALE_SECONDS - 1))
    slots.discard_stale({"used"})
    assert (old.exists(), used.exists(), fresh.exists()) == (False, True, True)
