"""Unpack a backup: every entry is checked before the first one is written, and none leaves the folder.

An archive may come from anywhere, and what is in it was made by tenants. So an entry must lie in a known folder and
below no link of the archive; links themselves are kept, and nothing follows them.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Protocol

from catalogue import N_, LocalizedError
from sandbox.disk.safe_files import shown_path
from sandbox.disk.sealing import NO_SEAL, NotOpened, Sealer

_MARGIN_BYTES = 64 << 20  # for what the caller does with it
MAX_ENTRIES = 10_000_000  # each takes 120 bytes of memory while an archive is checked, and a file of the disk
MAX_READ_BYTES = 1 << 20  # at once: a header has a longest path of 4 KB, content is read in pieces
_BROKEN = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError, OverflowError, RecursionError)
DAMAGED = N_("{file} is damaged or no backup: {error}. Nothing was restored; try an older backup")


class UnpackMeter(Protocol):
    """Counts the bytes of a part: "check" reads the archive, "unpack" writes about `total` bytes."""

    def begin(self, part: str, total: int = 0) -> None:
        """Begin a part."""

    def add(self, count: int) -> None:
        """Add bytes to it."""


class _NoMeter:
    def begin(self, part: str, total: int = 0) -> None:
        pass

    def add(self, count: int) -> None:
        pass


class UnpackRefused(LocalizedError):
    """The archive was not unpacked, or not whole; the text says why, and what to do."""


def unpack_backup(
    file: Path,
    target: Path,
    first: str,
    folders: Sequence[str],
    sealer: Sealer = NO_SEAL,
    most: int = MAX_ENTRIES,
    meter: UnpackMeter | None = None,
) -> tuple[int, int]:
    """Unpack an archive that begins with the file `first` and else has entries in these folders only, `most` in all.

    Returns how many files and bytes it has. Raises UnpackRefused. It blocks.
    """
    meter = meter or _NoMeter()
    try:
        meter.begin("check")
        files, size = _check_entries(
            file, first, folders, partial(_opened, file, sealer, meter), _Room.on(target, most)
        )
        meter.begin("unpack", size)
        with _opened(file, sealer, meter) as archive:
            if hasattr(tarfile, "fully_trusted_filter"):  # what entries may be is checked already
                archive.extraction_filter = tarfile.fully_trusted_filter
            archive.extractall(target, _entries(archive), numeric_owner=True)  # noqa: S202 — checked above
    except NotOpened as error:
        raise UnpackRefused(N_("{file}: {why}. Nothing was restored"), file=file, why=error) from error
    except _BROKEN as error:
        raise UnpackRefused(DAMAGED, file=file, error=shown_path(str(error))) from error
    except OSError as error:
        text = N_("{file} cannot be unpacked: {error}. Nothing was restored")
        raise UnpackRefused(text, file=file, error=error.strerror or str(error)) from error
    return files, size


@contextlib.contextmanager
def _opened(file: Path, sealer: Sealer, meter: UnpackMeter) -> Iterator[tarfile.TarFile]:
    with (
        open(file, "rb") as stream,
        gzip.GzipFile(fileobj=sealer.reader(stream)) as content,
        tarfile.open(fileobj=_Forwards(content, meter), mode="r:") as archive,  # type: ignore[call-overload]  # it needs no more
    ):
        yield archive


class _Forwards:
    """A stream for tarfile, which believes the sizes in headers: it reads a name of 8 GB whole, and goes back by a
    negative size, again and again."""

    def __init__(self, content: gzip.GzipFile, meter: UnpackMeter) -> None:
        self._content, self._meter = content, meter

    def read(self, size: int) -> bytes:
        if not 0 <= size <= MAX_READ_BYTES:
            raise tarfile.ReadError("a header that is too long")
        found = self._content.read(size)
        self._meter.add(len(found))
        return found

    def tell(self) -> int:
        return self._content.tell()

    def seek(self, offset: int) -> int:
        if offset < self._content.tell():
            raise tarfile.ReadError("an entry inside of another one")
        self._meter.add(offset - self._content.tell())
        return self._content.seek(offset)


@dataclass(frozen=True, slots=True)
class _Room:
    """How much an archive may have: bytes and files that the disk takes, and `most` entries."""

    free: int
    files: int
    most: int

    @classmethod
    def on(cls, target: Path, most: int) -> _Room:
        found = os.statvfs(target)
        return cls(shutil.disk_usage(target).free, found.f_favail if found.f_files else sys.maxsize, most)

    def check(self, file: Path, size: int, entries: int) -> None:
        """Raise UnpackRefused for more than that."""
        if entries > self.most:
            text = N_(
                "{file} has more than {n:,} entries, the most that a restore takes. If it is your own, give --entries"
                " with a larger number. Nothing was restored"
            )
            raise UnpackRefused(text, file=file, n=self.most)
        if entries > self.files:
            text = N_("the disk is too full: {file} has more than the {n:,} files that it takes. Nothing was restored")
            raise UnpackRefused(text, file=file, n=self.files)
        if size + _MARGIN_BYTES > self.free:
            text = N_(
                "the disk is too full: {file} needs more than {needed} MB, {free} MB are free. Nothing was restored"
            )
            raise UnpackRefused(text, file=file, needed=(size + _MARGIN_BYTES) >> 20, free=self.free >> 20)


def _check_entries(
    file: Path,
    first: str,
    folders: Sequence[str],
    opened: Callable[[], AbstractContextManager[tarfile.TarFile]],
    room: _Room,
) -> tuple[int, int]:
    size, count, links, files = 0, 0, set[int](), set[int]()
    with opened() as archive:
        for number, entry in enumerate(_entries(archive), 1):
            if not files and (entry.name != first or not entry.isfile()):
                raise UnpackRefused(N_("{file} is no backup of Fawn: it does not begin with its database"), file=file)
            if not _belongs(entry, folders, links, files):
                text = N_("{file} is no backup of Fawn: its entry {name} does not belong there. Nothing was restored")
                raise UnpackRefused(text, file=file, name=shown_path(entry.name[:200]))
            if entry.issym():
                links.add(hash(PurePosixPath(entry.name)))
            elif not entry.isdir():
                files.add(hash(PurePosixPath(entry.name)))
            size, count = size + entry.size, count + entry.isfile()
            room.check(file, size, number)
    if not files:
        raise UnpackRefused(N_("{file} is no backup of Fawn: it is empty"), file=file)
    return count, size


def _belongs(entry: tarfile.TarInfo, folders: Sequence[str], links: Set[int], files: Set[int]) -> bool:
    """Return whether an entry lies in a folder of the backup and is a file, a folder or a link.

    `links` and `files` are the hashes of those before: a thirtieth of the memory of their paths.

    It may be neither below a link nor in the place of a link or a file: what is written there would follow the link. A
    folder of the backup is itself no link: the service would work behind it.
    """
    path = PurePosixPath(entry.name)
    if (
        (len(path.parts) == 1 and files and not entry.isdir())
        or entry.issparse()
        or "\0" in entry.name + entry.linkname
    ):
        return False
    inside = path.parts[:1] and path.parts[0] in folders and ".." not in path.parts
    inside = inside or not files  # the first one is checked by name
    is_free = hash(path) not in files and not any(hash(each) in links for each in (path, *path.parents))
    target = PurePosixPath(entry.linkname)
    known = hash(target) in files if entry.islnk() else entry.isfile() or entry.isdir() or entry.issym()
    return bool(inside) and known and is_free


def _entries(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the entries in order, without keeping them: there can be millions."""
    while entry := archive.next():
        entry.mode &= 0o777  # as they were archived: no program that runs as its owner
        archive.members = []  # type: ignore[attr-defined]  # not in typeshed; of tarfile since Python 2
        yield entry
