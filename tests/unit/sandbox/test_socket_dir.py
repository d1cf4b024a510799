"""Short folders for sockets, and the removal of leftover ones."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from sandbox.bubblewrap.socket_dir import make_socket_dir
from tests.support.folder_trees import create_deep_tree, remove_afterwards


def test_folders_of_killed_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    gone = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True, check=True).stdout.strip()
    left, other = tmp_path / f"fawn-{gone}-abc", tmp_path / "fawn-notes"
    for folder in (left, other):
        folder.mkdir()
        (folder / "x").write_text("x")
    mine = make_socket_dir()
    assert mine.name.startswith(f"fawn-{os.getpid()}-")
    assert mine.stat().st_mode & 0o777 == 0o700
    assert not left.exists()
    assert other.exists()
    assert make_socket_dir() != mine
    assert mine.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder of somebody else: run the tests as root")
def test_folders_of_other_users_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    gone = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True, check=True).stdout.strip()
    ours, theirs = tmp_path / f"fawn-{gone}-ours", tmp_path / f"fawn-{gone}-theirs"
    with remove_afterwards(ours), remove_afterwards(theirs):
        for folder in (ours, theirs):
            folder.mkdir()
            create_deep_tree(folder, 1_500)
        os.chown(theirs, 65534, 65534)
        make_socket_dir()
        assert not ours.exists()
        assert theirs.exists()
