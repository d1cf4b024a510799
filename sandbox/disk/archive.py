"""Write a .tar.gz of folders whose content is hostile and changes meanwhile.

Each file is opened without following links or waiting, and then examined. Its size is recorded before its content and
kept. A refused entry becomes a note, not an error. Only faults of the archive itself (a full disk) raise.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from catalogue import N_, LazyText, LocalizedError, _, localized
from sandbox.disk.safe_files import open_below, shown_path
from sandbox.disk.sealing import NO_SEAL, Sealer
from sandbox.inside import search

ARCHIVE_BOUNDS = search.WalkBounds(entries=1_000_000, depth=128, path_bytes=3_000, seconds=3600.0)  # per folder
MAX_SPARSE_BYTES = 8 << 30  # per folder: holes of sparse files
MAX_LINES_PER_FOLDER = 3  # about entries that are left out
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
_REASONS = {errno.EAGAIN: N_("is held by a program (a lease)"), errno.ELOOP: N_("became a link while it was read")}


class ArchiveAbandoned(Exception):
    """The archive was abandoned while something was added to it."""


class _Refused(LocalizedError):
    """An entry is left out; the text says why."""


@dataclass(slots=True)
class _FolderNotes:
    """The notes on a folder that is being added. `names` are its files with several names, by identity."""

    name: str
    names: dict[tuple[int, ...], str] = field(default_factory=dict)
    hole_bytes: int = 0
    lines: list[str] = field(default_factory=list)
    omitted: int = 0

    def leave_out(self, rel: str, why: search.SkipReason | LocalizedError) -> None:
        if len(self.lines) < MAX_LINES_PER_FOLDER:
            text = LazyText(why.sentence, n=why.n) if isinstance(why, search.SkipReason) else why
            self.lines.append(f"{self.name}/{shown_path(rel)}: {localized(text)}")
        else:
            self.omitted += 1


def unfinished(target: Path) -> Path:
    """Return where an archive is written before it is in place."""
    return target.with_name(target.name + ".partial")


class Archive:
    """An archive for its owner only, in place after `finish`. Blocks. Another thread may call `abandon`."""

    def __init__(self, target: Path, sealer: Sealer = NO_SEAL) -> None:
        self._target = target
        self._partial = unfinished(target)
        target.parent.mkdir(mode=0o700, exist_ok=True)
        self._partial.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = open(os.open(self._partial, flags, 0o600), "wb")  # noqa: SIM115  `finish` and `abandon` close it
        self._sealed = sealer.writer(self._file)
        self._tar = tarfile.open(fileobj=self._sealed, mode="w:gz")  # noqa: SIM115  the same
        self._lock = threading.Lock()
        self._abandoned = False

    def add_file(self, path: Path, name: str) -> None:
        """Add a file of the service, readable only by it. Raises OSError."""
        with self._lock, open(path, "rb") as file:
            self._add_content(name, file.fileno(), 0o600)

    def add_folder(self, root: Path, name: str, derived: str = "") -> list[str]:
        """Add the content of `root`. Returns notes on what is left out. Raises SandboxFileError, OSError.

        `derived` is a folder in it that is made anew from the rest, and not archived; "": none is.
        """
        folder = _FolderNotes(name)
        with self._lock, open_below(root) as top:
            self._add_member(_make_member(name, tarfile.DIRTYPE, os.fstat(top)))
            for rel, status, parent in search.walk_folder(top, ARCHIVE_BOUNDS, folder.leave_out):
                if derived and f"{rel}/".startswith(f"{derived}/"):
                    continue
                try:
                    self._add_entry(folder, rel, status, parent)
                except _Refused as refused:
                    folder.leave_out(rel, refused)
        return [*folder.lines, _("{name}: {n:,} more", name=name, n=folder.omitted)] if folder.omitted else folder.lines

    def finish(self) -> int:
        """Put the archive in place. Returns its bytes. Raises OSError."""
        with self._lock:
            self._tar.close()
            if self._sealed is not self._file:
                self._sealed.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            size = os.fstat(self._file.fileno()).st_size
            self._file.close()
            os.replace(self._partial, self._target)
        return size

    def abandon(self) -> None:
        """Stop and delete the partial archive."""
        self._abandoned = True
        with self._lock:
            for close in (self._tar.close, self._sealed.close, self._file.close):
                with contextlib.suppress(OSError):  # the disk may be full; the content is not needed
                    close()
            self._partial.unlink(missing_ok=True)

    def _add_entry(self, folder: _FolderNotes, rel: str, status: os.stat_result, parent: int) -> None:
        kind, name, item = search.entry_kind(status), f"{folder.name}/{rel}", os.path.basename(rel)
        if kind == "folder":
            self._add_member(_make_member(name, tarfile.DIRTYPE, status))
        elif kind == "link":
            with _refuse_unreadable():
                target = os.readlink(item, dir_fd=parent)
            self._add_member(_make_member(name, tarfile.SYMTYPE, status, target))
        elif stat.S_ISREG(status.st_mode):
            with _refuse_unreadable():
                fd = os.open(item, _READ, dir_fd=parent)
            try:
                self._add_file(folder, name, fd)
            finally:
                os.close(fd)
        else:
            raise _Refused(N_("is a {kind}"), kind=LazyText(kind))

    def _add_file(self, folder: _FolderNotes, name: str, fd: int) -> None:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            kind = LazyText(search.entry_kind(status))
            raise _Refused(N_("became a {kind} while it was read"), kind=kind)
        same = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if status.st_nlink > 1 and same in folder.names:
            self._add_member(_make_member(name, tarfile.LNKTYPE, status, folder.names[same]))
            return
        holes = max(0, status.st_size - status.st_blocks * 512)
        if folder.hole_bytes + holes > MAX_SPARSE_BYTES:
            raise _Refused(N_("has more than {size:,} MB of holes"), size=MAX_SPARSE_BYTES >> 20)
        folder.hole_bytes += holes
        if status.st_nlink > 1:
            folder.names[same] = name
        self._add_content(name, fd, status.st_mode & 0o777)

    def _add_content(self, name: str, fd: int, mode: int) -> None:
        status = os.fstat(fd)
        member = _make_member(name, tarfile.REGTYPE, status)
        member.mode, member.size = mode, status.st_size
        source = _FixedSizeSource(fd, self._raise_if_abandoned)
        self._add_member(member, source)
        if source.short:
            raise _Refused(N_("became shorter while it was copied; zeros stand for the rest"))

    def _add_member(self, member: tarfile.TarInfo, source: _FixedSizeSource | None = None) -> None:
        self._raise_if_abandoned()
        self._tar.addfile(member, source)
        self._tar.members.clear()  # type: ignore[attr-defined]  # not in typeshed; the list would grow with every entry

    def _raise_if_abandoned(self) -> None:
        if self._abandoned:
            raise ArchiveAbandoned(ArchiveAbandoned.__doc__)


class _FixedSizeSource:
    """A file that always returns the requested number of bytes, padded with zeros."""

    def __init__(self, fd: int, check: Callable[[], None]) -> None:
        self._fd, self._check, self.short = fd, check, False

    def read(self, size: int = 0, /) -> bytes:
        self._check()
        data = b""
        while len(data) < size and not self.short:
            try:
                piece = os.read(self._fd, size - len(data))
            except OSError:
                piece = b""
            self.short = not piece
            data += piece
        return data.ljust(size, b"\0")


def _make_member(name: str, kind: bytes, status: os.stat_result, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mode = kind, target, status.st_mode & 0o777
    member.uid, member.gid, member.mtime = status.st_uid, status.st_gid, int(status.st_mtime)
    return member


@contextlib.contextmanager
def _refuse_unreadable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _Refused(_REASONS.get(error.errno or 0) or str(error.strerror)) from error
