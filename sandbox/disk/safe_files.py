"""Safe access from the host to a conversation's folders.

Commands in the sandbox control their content, so a check of a path can lose a race against a swapped link. Nothing
here checks a path first. Every path is opened below the folder with openat2(2), which refuses links and other mounts,
and then the descriptor is examined. Without that call, each component is opened in turn. Opening a pipe does not
block, reads are bounded, and writes go to a draft that is renamed. All functions block. Paths are relative to `root`.
Errors are SandboxFileError without a host path.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import io
import itertools
import os
import re
import stat
import struct
import unicodedata
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from catalogue import N_, LazyText
from sandbox.base import FOLDERS, SandboxFileError
from sandbox.inside import search

OPENAT2 = 437  # the same on every architecture
BENEATH, NO_SYMLINKS, NO_XDEV = 8, 4, 1  # RESOLVE_… of openat2(2)
CHUNK_BYTES = 1 << 20
COPY_TRIES = 10  # of a file whose folder is replaced meanwhile
DRAFT_SUFFIX = ".draft"  # of a file that is being written
MAX_NAME_CHARS = 120  # of an upload's name
_syscall = ctypes.CDLL(None, use_errno=True).syscall
NOT_A_NAME = N_("not a file name")
NOT_REGULAR = N_("is a {kind}, not a regular file")


@dataclass(frozen=True, slots=True)
class Stamp:
    """Equal stamps mean an unchanged file. `problem` says why the file cannot be sent."""

    mtime_ns: int
    ctime_ns: int
    size: int
    ino: int
    problem: LazyText | None = None


def _openat2(folder: int, rel: str, flags: int) -> int:
    how = struct.pack("QQQ", flags | os.O_CLOEXEC, 0, BENEATH | NO_SYMLINKS | NO_XDEV)
    fd = int(_syscall(OPENAT2, folder, os.fsencode(rel), how, len(how)))
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return fd


def _open_by_component(folder: int, rel: str, flags: int) -> int:
    """The same without openat2: open each component below the one before, without following links."""
    parts = [part for part in rel.split("/") if part not in ("", ".")]
    if ".." in parts or rel.startswith("/"):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    here = os.dup(folder)
    device = os.fstat(folder).st_dev
    for i, part in enumerate(parts or ["."]):
        wanted = flags if i >= len(parts) - 1 else os.O_RDONLY | os.O_DIRECTORY
        try:
            below = os.open(part, wanted | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
        finally:
            os.close(here)
        here = below
        if os.fstat(here).st_dev != device:
            os.close(here)
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    return here


def _open_resolved(folder: int, rel: str, flags: int) -> int:
    try:
        return _openat2(folder, rel, flags)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM):  # EPERM: a seccomp filter does not know the call
            raise
        return _open_by_component(folder, rel, flags)


@contextlib.contextmanager
def _map_errors(rel: str) -> Iterator[None]:
    """Map system errors to SandboxFileError, without host paths."""
    try:
        yield
    except OSError as error:
        reasons = {
            errno.ELOOP: N_("is or passes through a link"),
            errno.EXDEV: N_("leads outside"),
            errno.EAGAIN: N_("is held by a program (a lease)"),
        }
        reason = reasons.get(error.errno or 0) or error.strerror or N_("cannot be opened")
        raise _file_error(rel, reason) from error
    except ValueError as error:
        raise _file_error(rel, NOT_A_NAME) from error


def _file_error(rel: str, reason: str, **values: object) -> SandboxFileError:
    return SandboxFileError(N_("{path}: {reason}"), path=shown_path(rel), reason=LazyText(reason, **values))


@contextlib.contextmanager
def open_below(root: Path, rel: str = ".", flags: int = os.O_RDONLY | os.O_DIRECTORY) -> Iterator[int]:
    """Open `rel` below `root`, whose own parents no command can change. Raises SandboxFileError."""
    with _map_errors(rel):
        top = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fd = _open_resolved(top, rel, flags)
        finally:
            os.close(top)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def open_regular(root: Path, rel: str) -> Iterator[int]:
    """Open the regular file `rel` for reading. Raises SandboxFileError for anything else."""
    with open_below(root, rel, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY) as fd:
        if (kind := search.entry_kind(os.fstat(fd))) != "file":
            raise _file_error(rel, NOT_REGULAR, kind=LazyText(kind))
        yield fd


def read_file(root: Path, rel: str, limit: int = 20 << 20, offset: int = 0) -> bytes:
    """Read at most `limit` bytes of a regular file from `offset` on. Raises SandboxFileError."""
    with open_regular(root, rel) as fd, _map_errors(rel), open(fd, "rb", closefd=False) as file:
        file.seek(offset)
        return file.read(limit)


def size_and_kind(root: Path, rel: str) -> tuple[int, str]:
    """Return bytes and kind (`sandbox.inside.search.entry_kind`) of `rel`. Raises SandboxFileError."""
    with open_below(root, rel, os.O_PATH) as fd:
        status = os.fstat(fd)
        return status.st_size, search.entry_kind(status)


def copy_out(root: Path, rel: str, target: Path, limit: int) -> int:
    """Copy a regular file to the new host file `target`. Returns its bytes. Raises SandboxFileError, and removes
    `target`, if it has more than `limit` bytes."""
    with open_regular(root, rel) as fd:
        too_big = _file_error(rel, N_("is bigger than {limit:,.1f} MB"), limit=limit / (1 << 20))
        if os.fstat(fd).st_size > limit:
            raise too_big
        done = 0
        with _map_errors(rel), open(target, "xb") as out:
            try:
                while data := os.read(fd, CHUNK_BYTES):
                    done += out.write(data)
                    if done > limit:  # it grew meanwhile
                        raise too_big
            except BaseException:
                target.unlink()
                raise
        return done


def write_file(root: Path, rel: str, data: bytes) -> None:
    """Write a file atomically and make its folders. It gets the owner of its folder. Raises SandboxFileError."""
    copy_in(root, rel, io.BytesIO(data))


def append_file(root: Path, rel: str, data: bytes) -> None:
    """Append to a regular file, or write a new one. Raises SandboxFileError."""
    try:
        with open_below(root, rel, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY) as fd, _map_errors(rel):
            if (kind := search.entry_kind(os.fstat(fd))) != "file":
                raise _file_error(rel, NOT_REGULAR, kind=LazyText(kind))
            with open(fd, "ab", closefd=False) as file:
                file.write(data)
    except SandboxFileError as fault:
        if not isinstance(fault.__cause__, FileNotFoundError):
            raise
        write_file(root, rel, data)


def copy_in(root: Path, rel: str, source: BinaryIO) -> int:
    """Copy the rest of an open host file to `rel`, like `write_file`. Returns its bytes. Raises SandboxFileError."""
    start = source.tell()
    for _ in range(COPY_TRIES - 1):
        try:
            return _copy_once(root, rel, source)
        except SandboxFileError as fault:
            if not isinstance(fault.__cause__, FileNotFoundError):
                raise
        source.seek(start)  # the folder was replaced just then (`sandbox.disk.slots`)
    return _copy_once(root, rel, source)


def _copy_once(root: Path, rel: str, source: BinaryIO) -> int:
    done = 0
    with _make_draft(root, rel) as fd, open(fd, "wb", closefd=False) as out:
        while data := source.read(CHUNK_BYTES):
            done += out.write(data)
    return done


@contextlib.contextmanager
def _make_draft(root: Path, rel: str) -> Iterator[int]:
    """Open a draft in the folder of `rel`. It is renamed to `rel` if the block succeeds, else deleted."""
    parent, _, name = rel.rstrip("/").rpartition("/")
    if name in ("", ".", ".."):
        raise _file_error(rel, NOT_A_NAME)
    _make_parents(root, parent)
    with open_below(root, parent or ".") as folder, _map_errors(rel):
        draft = f".{os.urandom(8).hex()}{DRAFT_SUFFIX}"
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=folder)
        try:
            yield fd
            _same_owner(fd, folder)
            os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(draft, dir_fd=folder)
            raise
        finally:
            os.close(fd)


def _make_parents(root: Path, parent: str) -> None:
    done = "."
    for part in parent.split("/"):
        if part in ("", "."):
            continue
        with open_below(root, done) as folder, _map_errors(parent):
            try:
                os.mkdir(part, 0o755, dir_fd=folder)
            except FileExistsError:
                pass
            else:
                fd = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
                try:
                    _same_owner(fd, folder)
                finally:
                    os.close(fd)
        done = f"{done}/{part}"


def _same_owner(fd: int, folder: int) -> None:
    """Give an entry made by root to the owner of its folder."""
    owner = os.fstat(folder)
    if os.geteuid() == 0 and owner.st_uid != 0:
        os.fchown(fd, owner.st_uid, owner.st_gid)


def list_files(
    root: Path, bounds: search.WalkBounds, skip: Callable[[str, search.SkipReason], None]
) -> dict[str, Stamp]:
    """Map each entry below `root` that is not a folder to its stamp; a missing `root` is empty. Entries that cannot be
    sent are included, with the reason. Calls `skip` with (path, reason) for what was not examined."""
    found: dict[str, Stamp] = {}
    if not root.is_dir():
        return found
    with open_below(root) as top:
        for rel, status, _ in search.walk_folder(top, bounds, skip):
            if stat.S_ISDIR(status.st_mode):
                continue
            kind = search.entry_kind(status)
            problem = None if kind == "file" else LazyText(NOT_REGULAR, kind=LazyText(kind))
            if not problem and not rel.isprintable():
                problem = LazyText(N_("has a line break, a control character or invalid UTF-8 in its name"))
            found[rel] = Stamp(status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, problem)
    return found


def remove_copies(root: Path, names: Collection[str], rel: str = ".") -> None:
    """Delete the entries of a folder that `free_name` gave to these safe names; a missing `root` is empty.

    Raises SandboxFileError if `rel` is no folder below `root`.
    """
    if not root.is_dir():
        return
    taken = [os.path.splitext(name) for name in names]
    with open_below(root, rel) as folder:
        for each in os.listdir(folder):
            stem, suffix = os.path.splitext(each)
            base, _dash, number = stem.rpartition("-")
            if each in names or (number.isdecimal() and (base, suffix) in taken):
                os.unlink(each, dir_fd=folder)


def empty_folder(root: Path, rel: str) -> None:
    """Delete the files of a folder below `root`; a missing one is empty. Raises SandboxFileError if it is no folder."""
    if not os.path.lexists(root / rel):
        return
    with open_below(root, rel) as folder:
        for each in os.listdir(folder):
            if not stat.S_ISDIR(os.stat(each, dir_fd=folder, follow_symlinks=False).st_mode):
                os.unlink(each, dir_fd=folder)


def shown_path(rel: str) -> str:
    """Make a relative path safe to show: one line, bounded."""
    return "".join(char if char.isprintable() else "�" for char in rel[:300])


def safe_name(name: str) -> str:
    """Make an upload's name safe: one path component without control characters or leading dots, at most 120
    characters. The suffix and letters of every script stay. "file" if nothing is left."""
    base = re.split(r"[/\\]", unicodedata.normalize("NFC", name))[-1]
    base = "".join(char if char.isprintable() and char not in '<>:"|?*' else "_" for char in base)
    base = base.strip().lstrip(".").strip() or "file"
    stem, suffix = os.path.splitext(base)
    if len(suffix) > 17:
        stem, suffix = base, ""
    length = MAX_NAME_CHARS - len(suffix)
    while len((stem[:length] + suffix).encode()) > 240:  # the limit is 255 bytes, and `free_name` may add "-99"
        length -= 1
    return stem[:length] + suffix


def free_name(root: Path, name: str) -> str:
    """Return the safe `name`, or "name-2", "name-3" … if an entry, even a dangling link, has it."""
    with open_below(root) as folder:
        taken = set(os.listdir(folder))
    stem, suffix = os.path.splitext(name)
    candidates = itertools.chain([name], (f"{stem}-{number}{suffix}" for number in itertools.count(2)))
    return next(free for free in candidates if free not in taken)


def make_folders(folder: Path, owner: int | None = None) -> None:
    """Make a conversation's folder and its three folders. With `owner` (a uid, if the service is root), the three and
    their content belong to that user. Other users cannot read them."""
    folder.mkdir(mode=0o711, parents=True, exist_ok=True)
    for name in FOLDERS:
        place = folder / name
        place.mkdir(mode=0o700, exist_ok=True)
        if owner is not None and place.stat().st_uid != owner:
            _give_to_owner(place, owner)


def _give_to_owner(place: Path, owner: int) -> None:
    with open_below(place) as top:
        before = os.fstat(top).st_uid
        for rel, status, folder in search.walk_folder(top):
            # A file with several names may have one elsewhere, so it only moves with the user who owned it before.
            if (kind := search.entry_kind(status)) in ("file", "folder") or (
                kind == "hard link" and status.st_uid == before
            ):
                os.chown(os.path.basename(rel), owner, owner, dir_fd=folder, follow_symlinks=False)
        os.fchown(top, owner, owner)
