"""Safe access from the host to a thread's folders, whose content is under the tenant's control.

Checking a path and then opening it loses a race against a tenant who swaps a link in. So nothing here looks first:
every path is opened with openat2(2) below the folder, refusing links and other mounts, and what was opened is then
examined. Where that call is missing, the path is walked one component at a time. Pipes are opened without waiting,
sizes are never believed, writes go to a draft of ours that is renamed. All functions are synchronous, paths are
relative to `root`, errors are FileFault with no host path in it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import stat
import struct
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from sandbox.base import FOLDERS, SandboxFileError
from sandbox.inside import search

OPENAT2 = 437  # the same number on every architecture that has it
BENEATH, NO_SYMLINKS, NO_XDEV = 8, 4, 1  # openat2(2), RESOLVE_…
CHUNK = 1 << 20
LONGEST_NAME = (
    120  # characters of an upload's name; with an encoding of 4 bytes each and a suffix below the 255 of ext4
)
_syscall = ctypes.CDLL(None, use_errno=True).syscall


@dataclass(frozen=True, slots=True)
class Stamp:
    """Equal stamps mean: not changed. `problem` says why this entry cannot be sent ("" when it can)."""

    mtime_ns: int
    ctime_ns: int
    size: int
    ino: int
    problem: str = ""


# ---------------------------------------------------------------- opening


def _openat2(folder: int, rel: str, flags: int) -> int:
    how = struct.pack("QQQ", flags | os.O_CLOEXEC, 0, BENEATH | NO_SYMLINKS | NO_XDEV)
    fd = int(_syscall(OPENAT2, folder, os.fsencode(rel), how, len(how)))
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return fd


def _walk(folder: int, rel: str, flags: int) -> int:
    """The same without openat2: every component is opened below the one before, following nothing."""
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


def _open(folder: int, rel: str, flags: int) -> int:
    try:
        return _openat2(folder, rel, flags)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM):  # EPERM: a seccomp filter that does not know the call
            raise
        return _walk(folder, rel, flags)


@contextlib.contextmanager
def _fault(rel: str) -> Iterator[None]:
    """Translate errors of the system, once, without host paths."""
    try:
        yield
    except OSError as error:
        reasons = {
            errno.ELOOP: "is or passes through a link",
            errno.EXDEV: "leads outside",
            errno.EAGAIN: "is held by a program (a lease)",
        }
        reason = reasons.get(error.errno or 0) or error.strerror or "cannot be opened"
        raise SandboxFileError(f"{shown_path(rel)}: {reason}") from error
    except ValueError as error:
        raise SandboxFileError(f"{shown_path(rel)}: not a file name") from error


@contextlib.contextmanager
def opened(root: Path, rel: str = ".", flags: int = os.O_RDONLY | os.O_DIRECTORY) -> Iterator[int]:
    """A descriptor of `rel` below `root` (which is ours: no tenant can change its parents). Raises FileFault."""
    with _fault(rel):
        top = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fd = _open(top, rel, flags)
        finally:
            os.close(top)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def regular(root: Path, rel: str) -> Iterator[int]:
    """A descriptor of the regular file `rel`, for reading. Raises FileFault for anything else."""
    with opened(root, rel, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY) as fd:
        if (kind := search.entry_kind(os.fstat(fd))) != "file":
            raise SandboxFileError(f"{shown_path(rel)}: is a {kind}, not a regular file")
        yield fd


# ---------------------------------------------------------------- reading and writing


def read_file(root: Path, rel: str, limit: int = 20 << 20, offset: int = 0) -> bytes:
    """At most `limit` bytes of a regular file from `offset` on. Raises FileFault."""
    with regular(root, rel) as fd, _fault(rel), open(fd, "rb", closefd=False) as file:
        file.seek(offset)
        return file.read(limit)


def look(root: Path, rel: str) -> tuple[int, str]:
    """Bytes and kind (`sandbox.inside.search.kind`) of what is at `rel`. Raises FileFault."""
    with opened(root, rel, os.O_PATH) as fd:
        status = os.fstat(fd)
        return status.st_size, search.entry_kind(status)


def copy_out(root: Path, rel: str, target: Path, limit: int) -> int:
    """Copy a regular file to the new host file `target`, which is ours; gives its bytes. Raises FileFault when it has
    more than `limit` bytes (then `target` is removed)."""
    with regular(root, rel) as fd:
        too_big = SandboxFileError(f"{shown_path(rel)}: is bigger than {limit / (1 << 20):,.1f} MB")
        if os.fstat(fd).st_size > limit:
            raise too_big
        done = 0
        with _fault(rel), open(target, "xb") as out:
            try:
                while data := os.read(fd, CHUNK):
                    done += out.write(data)
                    if done > limit:  # it grew
                        raise too_big
            except BaseException:
                target.unlink()
                raise
        return done


def write_file(root: Path, rel: str, data: bytes) -> None:
    """Write a file, making its folders; whole or not at all, never through a link. It gets the owner of its folder.
    Raises FileFault."""
    with _make_draft(root, rel) as fd, open(fd, "wb", closefd=False) as file:
        file.write(data)


def append_file(root: Path, rel: str, data: bytes) -> None:
    """Add to a regular file, or write a new one. Raises FileFault."""
    try:
        with opened(root, rel, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY) as fd, _fault(rel):
            if (kind := search.entry_kind(os.fstat(fd))) != "file":
                raise SandboxFileError(f"{shown_path(rel)}: is a {kind}, not a regular file")
            with open(fd, "ab", closefd=False) as file:
                file.write(data)
    except SandboxFileError as fault:
        if not isinstance(fault.__cause__, FileNotFoundError):
            raise
        write_file(root, rel, data)


def copy_in(root: Path, rel: str, source: BinaryIO) -> int:
    """Copy the rest of our own open file `source` to `rel`, like `write_file`; gives its bytes. Raises FileFault."""
    done = 0
    with _make_draft(root, rel) as fd, open(fd, "wb", closefd=False) as out:
        while data := source.read(CHUNK):
            done += out.write(data)
    return done


@contextlib.contextmanager
def _make_draft(root: Path, rel: str) -> Iterator[int]:
    """A new file of ours in the folder of `rel` that takes its name when the block ends well."""
    parent, _, name = rel.rstrip("/").rpartition("/")
    if name in ("", ".", ".."):
        raise SandboxFileError(f"{shown_path(rel)}: not a file name")
    _make_parents(root, parent)
    with opened(root, parent or ".") as folder, _fault(rel):
        draft = f".{os.urandom(8).hex()}.draft"
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
        with opened(root, done) as folder, _fault(parent):
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
    """What root makes in the sandbox user's folder belongs to him."""
    owner = os.fstat(folder)
    if os.geteuid() == 0 and owner.st_uid != 0:
        os.fchown(fd, owner.st_uid, owner.st_gid)


# ---------------------------------------------------------------- looking


def list_files(root: Path, bounds: search.WalkBounds, skip: Callable[[str, str], None]) -> dict[str, Stamp]:
    """What is below `root`: every entry that is no folder, by relative path. Entries that cannot be sent (links, pipes,
    hard links, strange names) are there too, with the reason; `skip` is told (path, why) of what was not looked at. A
    missing `root` is empty."""
    found: dict[str, Stamp] = {}
    if not root.is_dir():
        return found
    with opened(root) as top:
        for rel, status, _ in search.walk_folder(top, bounds, skip):
            if stat.S_ISDIR(status.st_mode):
                continue
            kind = search.entry_kind(status)
            problem = "" if kind == "file" else f"is a {kind}, not a regular file"
            found[rel] = Stamp(
                status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, problem or _has_strange_name(rel)
            )
    return found


def _has_strange_name(rel: str) -> str:
    if not rel.isprintable():
        return "has a line break, a control character or bytes that are no text in its name"
    return ""


def shown_path(rel: str) -> str:
    """A relative path for people: one line, whatever the tenant called the file."""
    return "".join(char if char.isprintable() else "�" for char in rel[:300])


# ---------------------------------------------------------------- names and folders


def safe_name(name: str) -> str:
    """A name for an upload that is one plain component: no folders, control characters or leading dots, at most 120
    characters with the suffix kept; letters of every script stay. "file" when nothing is left."""
    base = re.split(r"[/\\]", unicodedata.normalize("NFC", name))[-1]
    base = "".join(char if char.isprintable() and char not in '<>:"|?*' else "_" for char in base)
    base = base.strip().lstrip(".").strip() or "file"
    stem, dot, suffix = base.rpartition(".")
    if not dot or len(suffix) > 16:
        stem, dot, suffix = base, "", ""
    room = LONGEST_NAME - len(dot + suffix)
    while len((stem[:room] + dot + suffix).encode()) > 240:  # 255 bytes is the limit; " -99" may be added
        room -= 1
    return stem[:room] + dot + suffix


def free_name(root: Path, name: str) -> str:
    """`name`, or "name-2", "name-3" … when something, a dangling link too, already has it. `name` must be safe."""
    with opened(root) as folder:
        taken = set(os.listdir(folder))
    stem, dot, suffix = name.rpartition(".")
    if not stem:
        stem, dot, suffix = name, "", ""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{stem}-{number}{dot}{suffix}"
    return free


def make_folders(folder: Path, owner: int | None = None) -> None:
    """Make a thread's folder with its three folders. With `owner` (a uid, when the service is root) the three belong
    to him, with what is in them; only he and the service may look inside."""
    folder.mkdir(mode=0o711, parents=True, exist_ok=True)
    for name in FOLDERS:
        place = folder / name
        place.mkdir(mode=0o700, exist_ok=True)
        if owner is not None and place.stat().st_uid != owner:
            _give_to_owner(place, owner)


def _give_to_owner(place: Path, owner: int) -> None:
    with opened(place) as top:
        before = os.fstat(top).st_uid
        for rel, status, folder in search.walk_folder(top):
            # What has several names may have one elsewhere; it goes only with the user whose it was.
            if (kind := search.entry_kind(status)) in ("file", "folder") or (
                kind == "hard link" and status.st_uid == before
            ):
                os.chown(os.path.basename(rel), owner, owner, dir_fd=folder, follow_symlinks=False)
        os.fchown(top, owner, owner)
