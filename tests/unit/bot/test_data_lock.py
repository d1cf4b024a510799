"""The lock on data_dir between processes: a service keeps it, commands make way, and a kill releases everything."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bot.database.data_lock import DataDirBusy, DataDirLocked, DataLock, ServiceLock, is_held, is_service_waiting

ROOT = Path(__file__).parents[3]
HOLDER = """
import sys, pathlib
from bot.database import data_lock
with getattr(data_lock, sys.argv[1])(pathlib.Path(sys.argv[2])):
    print("held", flush=True)
    sys.stdin.read()
"""
WHOLE_FILE = """
import fcntl, os, sys
descriptor = os.open(sys.argv[2] + "/lock", os.O_RDWR | os.O_CREAT)
fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("held", flush=True)
sys.stdin.read()
"""
LOOKER = """
import sys, pathlib
from bot.database.data_lock import is_held
print("held", flush=True)
while True:
    is_held(pathlib.Path(sys.argv[2]))
"""


def begin(folder: Path, kind: str, program: str = HOLDER) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", program, kind, str(folder)]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@contextmanager
def held(folder: Path, kind: str, program: str = HOLDER) -> Iterator[subprocess.Popen[str]]:
    """Have another process hold a lock. It is killed at the end."""
    process = begin(folder, kind, program)
    assert process.stdout
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_service_refuses_commands_and_other_services(tmp_path: Path) -> None:
    with held(tmp_path, "ServiceLock"):
        assert (is_held(tmp_path), is_service_waiting(tmp_path)) == (True, False)
        with pytest.raises(DataDirLocked), DataLock(tmp_path):
            pass
        with pytest.raises(DataDirLocked) as refused, ServiceLock(tmp_path):
            pass
        assert not isinstance(refused.value, DataDirBusy)
    assert not is_held(tmp_path)  # killed


def test_a_service_waits_for_a_command_that_is_killed(tmp_path: Path) -> None:
    waits = threading.Event()
    with held(tmp_path, "DataLock") as holder:

        def end() -> None:
            waits.set()
            holder.kill()

        with ServiceLock(tmp_path, end, 30):
            assert waits.is_set()
            _out, errors = begin(tmp_path, "DataLock").communicate("")
            assert "DataDirLocked" in errors


def test_a_wait_has_an_end_after_which_commands_go_on(tmp_path: Path) -> None:
    with held(tmp_path, "DataLock"):
        with pytest.raises(DataDirBusy, match=r"for 0\.2 s"), ServiceLock(tmp_path, seconds=0.2):
            pass
        assert not is_service_waiting(tmp_path)


def test_a_command_sees_a_service_that_waits_and_the_next_command_does_not_begin(tmp_path: Path) -> None:
    own = DataLock(tmp_path)
    with own:
        assert not own.is_wanted()
        service = begin(tmp_path, "ServiceLock")
        while not own.is_wanted():
            assert service.poll() is None
    try:
        with pytest.raises(DataDirLocked), DataLock(tmp_path):
            pass
        assert service.stdout
        assert service.stdout.readline() == "held\n"
        assert not is_service_waiting(tmp_path)
    finally:
        service.kill()
        service.communicate()


def test_looks_of_others_do_not_disturb_a_start(tmp_path: Path) -> None:
    with ServiceLock(tmp_path):
        pass
    with held(tmp_path, "", LOOKER), held(tmp_path, "", LOOKER):
        for _ in range(100):
            with ServiceLock(tmp_path):
                pass
            with DataLock(tmp_path):
                pass


def test_a_service_of_an_earlier_version_is_respected(tmp_path: Path) -> None:
    """It locks the whole file, and is refused while a service or a command of this version works."""
    with held(tmp_path, "", WHOLE_FILE):
        for kind in (DataLock, ServiceLock):
            with pytest.raises(DataDirLocked), kind(tmp_path):
                pass
    for name in ("DataLock", "ServiceLock"):
        with held(tmp_path, name), (tmp_path / "lock").open("r+b") as file, pytest.raises(BlockingIOError):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
