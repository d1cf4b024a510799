"""Folders of ready pods, and how a conversation's folders move into them.

A running pod gets no further mount. A ready pod has mounted the three empty folders of a slot, and a mount follows its
folder when that is renamed. So a conversation claims a pod by moving its files into the slot's folders, and those to
its own place. A record is written before, and what a killed service left half-moved is moved back by the next one. All
functions block. No command runs in the pod before.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import time
from collections.abc import Container, Iterator
from pathlib import Path

import orjson

from sandbox.base import FOLDERS, SandboxFileError
from sandbox.disk import safe_files

RECORD = "claim.json"
MAX_ENTRIES = 1000  # a conversation with more in its folders gets a new pod, which moves nothing
STALE_SECONDS = 600.0  # then a slot is that of a killed service
DRAFT_SECONDS = 2.0  # for the writer of a file to end; what is left then, a killed one left


class Slots:
    """The slots below `place`. `root` is where the claim is mounted, `owner` whom the folders belong to."""

    def __init__(self, place: Path, root: Path, owner: int | None) -> None:
        self._place, self._root, self._owner = place, root, owner

    def make(self, name: str) -> Path:
        """Make the folders of a slot."""
        folder = self._place / name
        safe_files.make_folders(folder, self._owner)
        return folder

    def adopt(self, name: str, folder: Path) -> None:
        """Move what the conversation's folders have into the slot's, and those to their place.

        Raises OSError, BlockingIOError if files are written all the time, SandboxFileError; then everything is where
        it was.
        """
        slot = self._place / name
        safe_files.make_folders(folder, self._owner)
        with self._record(slot) as record:
            os.write(record, orjson.dumps({"folder": str(folder.resolve().relative_to(self._root))}))
            os.fsync(record)
            try:
                for each in FOLDERS:
                    _exchange(slot, folder, each)
            except (OSError, SandboxFileError):
                self._move_back(slot, folder)
                os.unlink(slot / RECORD)
                raise
            os.unlink(slot / RECORD)
        os.rmdir(slot)

    @staticmethod
    def fits(folder: Path) -> bool:
        """Return whether so little is in a conversation's folders that moving it is fast. Raises SandboxFileError."""
        room = MAX_ENTRIES
        for each in FOLDERS:
            if (folder / each).is_dir():
                with safe_files.open_below(folder, each) as place, os.scandir(place) as entries:
                    room -= sum(1 for _ in itertools.islice(entries, room + 1))
        return room >= 0

    def discard(self, name: str) -> None:
        """Remove a slot that nobody claimed. What is in use, or not empty, stays."""
        slot = self._place / name
        if not (slot / RECORD).exists():
            for each in (*(slot / folder for folder in FOLDERS), slot):
                with contextlib.suppress(OSError):
                    os.rmdir(each)

    def recover(self) -> list[str]:
        """Move back what a killed service left half-moved. Returns the names of those slots. Raises OSError."""
        return [slot.name for slot in self._all() if (slot / RECORD).exists() and self._recover_one(slot)]

    def discard_stale(self, keep: Container[str]) -> None:
        """Remove the slots that a killed service left; `keep` are in use."""
        for slot in self._all():
            with contextlib.suppress(FileNotFoundError):  # claimed just then
                if slot.name not in keep and time.time() - slot.stat().st_mtime > STALE_SECONDS:
                    self.discard(slot.name)

    def _all(self) -> list[Path]:
        return sorted(self._place.iterdir()) if self._place.is_dir() else []

    def _recover_one(self, slot: Path) -> bool:
        with contextlib.suppress(BlockingIOError, FileNotFoundError), self._record(slot, os.O_RDWR) as record:
            if folder := self._recorded_folder(os.pread(record, 8192, 0)):
                if not folder.is_relative_to(self._root):
                    raise OSError(errno.EXDEV, f"{slot.name} is of another place")
                safe_files.make_folders(folder, self._owner)
                self._move_back(slot, folder)
            os.unlink(slot / RECORD)
            self.discard(slot.name)
            return True
        return False  # a service that runs is moving it

    def _recorded_folder(self, content: bytes) -> Path | None:
        """Return the conversation's folder; None if the service was killed before it moved anything."""
        try:
            return (self._root / str(orjson.loads(content)["folder"])).resolve()
        except orjson.JSONDecodeError:
            return None

    @contextlib.contextmanager
    def _record(self, slot: Path, flags: int = os.O_RDWR | os.O_CREAT | os.O_EXCL) -> Iterator[int]:
        """Open the record of a claim, and hold it: it is free again if this process is killed."""
        record = os.open(slot / RECORD, flags | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(record, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield record
        finally:
            os.close(record)

    @staticmethod
    def _move_back(slot: Path, folder: Path) -> None:
        """Move entries of the slot's folders back. One that was written again meanwhile wins, and both are kept."""
        for each in FOLDERS:
            if not (slot / each).is_dir():
                continue  # it is in its place
            (folder / each).mkdir(mode=0o700, exist_ok=True)
            with safe_files.open_below(slot, each) as source, safe_files.open_below(folder, each) as place:
                for entry in os.listdir(source):
                    name = safe_files.free_name(folder / each, entry) if entry in os.listdir(place) else entry
                    os.rename(entry, name, src_dir_fd=source, dst_dir_fd=place)


def _exchange(slot: Path, folder: Path, each: str) -> None:
    """Move the entries of a folder into that of the slot, and this one to its place, where one is all the time.

    A file that is being written has a draft, which is waited for: its writer renames it.
    """
    patience = time.monotonic() + DRAFT_SECONDS
    with safe_files.open_below(slot, each) as new, safe_files.open_below(folder, each) as place:
        while time.monotonic() < patience + DRAFT_SECONDS:
            try:
                os.rename(slot / each, folder / each)  # onto an empty folder only
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            waits = False
            for entry in os.listdir(place):  # again, if one was written meanwhile
                if entry.endswith(safe_files.DRAFT_SUFFIX) and time.monotonic() < patience:
                    waits = True
                    continue
                with contextlib.suppress(FileNotFoundError):
                    os.rename(entry, entry, src_dir_fd=place, dst_dir_fd=new)
            if waits:
                time.sleep(0.005)
    raise BlockingIOError(errno.EAGAIN, "files are written all the time")
