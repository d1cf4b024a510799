"""Restore a backup in a forked process, and kill it before one of its steps: a call that changes a file or a folder."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

from bot.admin.restore import RestoreTarget, restore_backup
from bot.config.database import DatabaseConfig
from bot.config.schema import Config
from bot.service.store import PostgresCopies
from sandbox.disk.sealing import NO_SEAL

STEPS = {"rename", "mkdir", "rmdir", "unlink", "fsync", "sync", "utime", "chmod", "write", "execute", "commit"}


def restore_until(step: int, archive: Path, data_dir: Path, skills: Path, server: RestoreTarget | None = None) -> int:
    """Restore, and die before this step. Returns 0 if it ended before; otherwise -SIGKILL."""
    if (pid := os.fork()) == 0:
        numbers = count(1)

        def profile(_frame: FrameType, event: str, called: Any) -> None:
            if event == "c_call" and called.__name__ in STEPS and next(numbers) == step:
                os.kill(os.getpid(), signal.SIGKILL)

        threading.setprofile(profile)
        sys.setprofile(profile)
        asyncio.run(restore_backup(archive, data_dir, skills, NO_SEAL, server=server))
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main() -> int:
    """Called as `python -m tests.support.killed_restore STEP ARCHIVE DATA_DIR SKILLS [URL]`, in its own process."""
    step, archive, data_dir, skills, *url = sys.argv[1:]
    config = Config(data_dir=Path(data_dir), database=DatabaseConfig(url[0] if url else ""))
    server = PostgresCopies(config) if url else None
    return -restore_until(int(step), Path(archive), Path(data_dir), Path(skills), server)


if __name__ == "__main__":
    sys.exit(main())
