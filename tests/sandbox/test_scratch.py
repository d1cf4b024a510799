"""Short folders for sockets, and those that a killed process left."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from sandbox.bubblewrap.socket_dir import scratch


def test_what_a_killed_process_left_goes_with_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    gone = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True, check=True).stdout.strip()
    left, other = tmp_path / f"fawn-{gone}-abc", tmp_path / "fawn-notes"
    for folder in (left, other):
        folder.mkdir()
        (folder / "x").write_text("x")
    mine = scratch()
    assert mine.name.startswith(f"fawn-{os.getpid()}-")
    assert mine.stat().st_mode & 0o777 == 0o700
    assert not left.exists()
    assert other.exists()
    assert scratch() != mine
    assert mine.exists()
