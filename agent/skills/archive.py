"""Unpack a skill's archive (.skill or .zip): one folder, or flat. What its headers say is not trusted."""

from __future__ import annotations

import io
import stat
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from agent.skills.skill import SKILL_FILES, SkillError
from agent.skills.tree import LEFT_OUT, MAX_TREE_BYTES, MAX_TREE_FILES, check_path, check_tree
from catalogue import N_

CHUNK_BYTES = 1 << 16


def unpack_archive(data: bytes, place: Path) -> Path:
    """Unpack into the empty folder `place`. Returns the skill's folder. Raises SkillError."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            room = MAX_TREE_BYTES
            for entry in _checked_entries(archive):
                room -= _unpack_entry(archive, entry, place, room)
    except OSError as error:  # its text has the path on this machine
        raise SkillError(N_("the archive cannot be read: {reason}"), reason=error.strerror or "") from error
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, zlib.error) as error:
        raise SkillError(N_("the archive cannot be read: {reason}"), reason=str(error)[:200]) from error
    return find_root(place)


def find_root(place: Path) -> Path:
    """Return the one skill's folder: `place` itself, or the folder in it. Raises SkillError."""
    folders = [place, *(path for path in sorted(place.iterdir()) if path.is_dir() and not path.is_symlink())]
    roots = [folder for folder in folders if any((folder / name).is_file() for name in SKILL_FILES)]
    if len(roots) != 1:
        raise SkillError(N_("it does not contain exactly one skill"))
    check_tree(roots[0])
    return roots[0]


def _checked_entries(archive: zipfile.ZipFile) -> Iterator[zipfile.ZipInfo]:
    names: set[str] = set()
    for entry in archive.infolist():
        path = check_path(entry.filename)
        mode = entry.external_attr >> 16
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise SkillError(N_("{path} is a link or a special file"), path=entry.filename)
        if entry.flag_bits & 1:
            raise SkillError(N_("{path} is encrypted"), path=entry.filename)
        if entry.is_dir() or set(path.parts) & LEFT_OUT:
            continue
        key = str(path).casefold()  # one file on a system that ignores the case
        if key in names:
            raise SkillError(N_("the archive contains {path} twice"), path=entry.filename)
        names.add(key)
        if len(names) > MAX_TREE_FILES:
            raise _too_large()
        yield entry


def _unpack_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, place: Path, room: int) -> int:
    """Write one file of at most `room` bytes; a header may say less than is there. Returns its size."""
    target = place / check_path(entry.filename)
    target.parent.mkdir(parents=True, exist_ok=True)
    size = 0
    with archive.open(entry) as source, target.open("xb") as sink:
        while chunk := source.read(CHUNK_BYTES):
            size += len(chunk)
            if size > room:
                raise _too_large()
            sink.write(chunk)
    target.chmod(0o755 if entry.external_attr >> 16 & 0o111 else 0o644)
    return size


def _too_large() -> SkillError:
    limit = MAX_TREE_BYTES >> 20
    return SkillError(N_("it has more than {files} files or {limit} MB"), files=MAX_TREE_FILES, limit=limit)
