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
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

VARIABLE = "FAWN_TEST_RUN"


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
