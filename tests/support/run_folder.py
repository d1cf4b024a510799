"""Share among the processes of one run of the tests: a folder, and servers that one of them starts for all.

The process that was started first makes the folder; its workers and their children know it by FAWN_TEST_RUN. A server
ends when that process has ended, by whatever: it looks with `await_owner`, or polls `owner_descriptor`.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
VARIABLE = "FAWN_TEST_RUN"
_STARTED: list[subprocess.Popen[bytes]] = []  # a server that this process started for all lives on without a warning


@cache
def run_folder() -> Path:
    """Return the folder of this run, which is removed when its owner ends."""
    if (name := os.environ.get(VARIABLE)) and Path(name, "owner").exists():
        return Path(name)
    folder, owner = Path(tempfile.mkdtemp(prefix="fawn-test-")), os.getpid()
    (folder / "owner").write_text(str(owner))

    def remove() -> None:
        if os.getpid() == owner:  # not in a fork of it
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    os.environ[VARIABLE] = str(folder)
    return folder


def shared(name: str, start: Callable[[], str]) -> str:
    """Return what the first process of this run got from `start`: it starts a server and says where it is."""
    said = run_folder() / f"{name}.address"
    with (run_folder() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not said.exists():
            said.write_text(start())
    return said.read_text()


def start_for_run(module: str, argument: str, log: Path) -> str:
    """Start a program of `tests/support` that serves this run, and return the first line that it prints.

    It outlives this process, since workers end before the run does: it ends with the owner of the run.
    """
    with log.open("ab") as errors:  # not the caller's: who reads a pipe to its end would wait for the server
        process = subprocess.Popen(  # ctrl-C is for the tests: the starter of a service ends it
            [sys.executable, "-m", module, argument],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    assert process.stdout
    said = process.stdout.readline().decode()
    process.stdout.close()
    _STARTED.append(process)
    assert said, log.read_text("utf-8", "replace")
    return said


def owner_descriptor() -> int:
    """Return a descriptor that is readable once the owner of this run has ended; ProcessLookupError after that."""
    return os.pidfd_open(int((run_folder() / "owner").read_text()))


def await_owner() -> None:
    """Wait for the end of the owner of this run."""
    try:
        ended = owner_descriptor()
    except (ProcessLookupError, FileNotFoundError):
        return
    select.select([ended], [], [])
