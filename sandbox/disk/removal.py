"""Delete folders that tenants filled: however deep, following nothing, with few descriptors."""

from __future__ import annotations

import logging
import os
import secrets
import stat
import time
from collections.abc import Callable
from pathlib import Path

from sandbox.disk.safe_files import shown_path
from sandbox.inside.search import WalkBounds, walk_folder

log = logging.getLogger(__name__)

LIMIT_SECONDS = 300.0  # ext4 took 0.8 ms for each folder on a busy machine
DEPTH = 8  # folders inside each other in one sweep; so many descriptors it needs
TOLD = 5  # of the paths that stay


def remove_tree(folder: Path, seconds: float = LIMIT_SECONDS) -> list[str]:
    """Delete `folder` with everything in it; gives some of the paths that stay, with the reason. Empty: it is gone.

    Whoever wants it gone tries again later: what could be deleted is.
    """
    try:
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    except OSError as error:
        return _told(folder, [f"{folder.name}: {error.strerror}"])
    try:
        left = _empty(top, seconds)
    finally:
        os.close(top)
    if not left:
        try:
            os.rmdir(folder)
        except OSError as error:
            left = [f"{folder.name}: {error.strerror}"]
    return _told(folder, left)


def _told(folder: Path, left: list[str]) -> list[str]:
    if left:
        log.warning("files.not_removed folder=%s reason=%s", folder.name, "; ".join(left))
    return left


def _empty(top: int, seconds: float) -> list[str]:
    """Sweep until nothing is left, or a sweep changes nothing."""
    until = time.monotonic() + seconds
    while (room := until - time.monotonic()) > 0:
        sweep = _Sweep(top)
        sweep.run(room)
        if not sweep.left or not sweep.changed:
            return sweep.left
    return [f"it was not empty after {seconds:g} seconds"]


class _Sweep:
    """One walk that deletes what it meets. Folders that lie too deep for it are moved up, for the next one."""

    def __init__(self, top: int) -> None:
        self._top = top
        self.changed = False
        self.left: list[str] = []

    def run(self, seconds: float) -> None:
        bounds = WalkBounds(depth=DEPTH, path_bytes=1 << 20, seconds=seconds)
        for rel, status, folder in walk_folder(self._top, bounds, self._stays, self._leave):
            name = os.path.basename(rel)
            if not stat.S_ISDIR(status.st_mode):
                self._change(rel, lambda: os.unlink(name, dir_fd=folder))  # noqa: B023  called at once
                continue
            if status.st_mode & 0o700 != 0o700:
                self._change(rel, lambda: _open_up(name, folder))  # noqa: B023  called at once
            if rel.count("/") == DEPTH - 1:
                up = secrets.token_hex(8)
                self._change(rel, lambda: os.rename(name, up, src_dir_fd=folder, dst_dir_fd=self._top))  # noqa: B023  called at once

    def _leave(self, rel: str, folder: int) -> None:
        self._change(rel, lambda: os.rmdir(os.path.basename(rel), dir_fd=folder))

    def _change(self, rel: str, action: Callable[[], None]) -> None:
        try:
            action()
            self.changed = True
        except FileNotFoundError:
            self.changed = True  # somebody else did
        except OSError as error:
            self._stays(rel, str(error.strerror))

    def _stays(self, rel: str, why: str) -> None:
        if len(self.left) < TOLD:
            self.left.append(f"{shown_path(rel)}: {why}")


def _open_up(name: str, folder: int) -> None:
    """Let its owner list and change a folder; a link in its place is not followed."""
    fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.chmod(f"/proc/self/fd/{fd}", 0o700)
    finally:
        os.close(fd)
