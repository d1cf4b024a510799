"""The folders of conversations on the host.

Delete folders with hostile content: any depth, no links, few descriptors.
"""

from __future__ import annotations

import logging
import os
import secrets
import stat
import time
from collections.abc import Callable
from pathlib import Path

from catalogue import N_, LazyText
from sandbox.disk.file_threads import run_file_work
from sandbox.disk.safe_files import shown_path
from sandbox.inside.search import SkipReason, WalkBounds, walk_folder

log = logging.getLogger(__name__)

REMOVAL_SECONDS = 300.0  # ext4 took 0.8 ms per folder on a busy machine
SWEEP_DEPTH = 8  # nested folders in one sweep, and descriptors it needs
MAX_REPORTED = 5  # remaining paths


def remove_tree(folder: Path, seconds: float = REMOVAL_SECONDS) -> list[str]:
    """Delete `folder` and its content. Returns some of the paths that remain, with the reason; an empty list means that
    all is deleted. A caller can try again later."""
    try:
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    except OSError as error:
        return _log_remaining(folder, [f"{folder.name}: {error.strerror}"])
    try:
        left = _empty_folder(top, seconds)
    finally:
        os.close(top)
    if not left:
        try:
            os.rmdir(folder)
        except OSError as error:
            left = [f"{folder.name}: {error.strerror}"]
    return _log_remaining(folder, left)


def _log_remaining(folder: Path, left: list[str]) -> list[str]:
    if left:
        log.warning("files.not_removed folder=%s reason=%s", folder.name, "; ".join(left))
    return left


def _empty_folder(top: int, seconds: float) -> list[str]:
    """Sweep until nothing is left, or a sweep changes nothing."""
    until = time.monotonic() + seconds
    while (room := until - time.monotonic()) > 0:
        sweep = _Sweep(top)
        sweep.run(room)
        if not sweep.left or not sweep.changed:
            return sweep.left
    return [f"it was not empty after {seconds:g} seconds"]


class _Sweep:
    """One walk that deletes entries, and moves folders that are too deep up for the next sweep."""

    def __init__(self, top: int) -> None:
        self._top = top
        self.changed = False
        self.left: list[str] = []

    def run(self, seconds: float) -> None:
        bounds = WalkBounds(depth=SWEEP_DEPTH, path_bytes=1 << 20, seconds=seconds)

        def remove_folder(rel: str, folder: int) -> None:
            self._change(rel, lambda: os.rmdir(os.path.basename(rel), dir_fd=folder))

        for rel, status, folder in walk_folder(self._top, bounds, self._stays, remove_folder):
            name = os.path.basename(rel)
            if not stat.S_ISDIR(status.st_mode):
                self._change(rel, lambda: os.unlink(name, dir_fd=folder))  # noqa: B023  called at once
                continue
            if status.st_mode & 0o700 != 0o700:
                self._change(rel, lambda: _make_accessible(name, folder))  # noqa: B023  called at once
            if rel.count("/") == SWEEP_DEPTH - 1:
                up = secrets.token_hex(8)
                self._change(rel, lambda: os.rename(name, up, src_dir_fd=folder, dst_dir_fd=self._top))  # noqa: B023  called at once

    def _change(self, rel: str, action: Callable[[], None]) -> None:
        try:
            action()
            self.changed = True
        except FileNotFoundError:
            self.changed = True  # another process removed it
        except OSError as error:
            self._stays(rel, str(error.strerror))

    def _stays(self, rel: str, why: SkipReason | str) -> None:
        if len(self.left) < MAX_REPORTED:
            self.left.append(f"{shown_path(rel)}: {why}")


def _make_accessible(name: str, folder: int) -> None:
    """Let the owner list and change a folder, without following a link."""
    fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.chmod(f"/proc/self/fd/{fd}", 0o700)
    finally:
        os.close(fd)


class ConversationFolders:
    """The folders of all conversations, side by side below `root`. Each may hold `size` bytes, which
    `sandbox.disk.quota` measures."""

    def __init__(self, root: Path, size_mb: int) -> None:
        self.root, self.size = root, size_mb << 20

    @property
    def description(self) -> LazyText:
        """Describe the bound, for people."""
        return LazyText(N_("{size} MB of files each (measured)"), size=self.size >> 20)

    def list_folders(self) -> list[Path]:
        """List the folders of all conversations, but no link: it would lead out of `root`. Blocks."""
        return sorted(path for path in self.root.glob("*") if not path.is_symlink())

    def list_links(self) -> list[Path]:
        """List the links among the folders, which nothing follows. Blocks."""
        return sorted(path for path in self.root.glob("*") if path.is_symlink())

    async def remove_folder(self, folder: Path) -> bool:
        """Delete a folder and its content. Returns whether all of it is deleted. Raises OSError."""
        return not await run_file_work(remove_tree, folder)
