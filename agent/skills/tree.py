"""The files of a skill's folder: list, check, hash, copy and compare them. Links are never followed."""

from __future__ import annotations

import difflib
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from agent.skills.skill import SKILL_FILES, SkillError
from catalogue import N_

MAX_TREE_BYTES, MAX_TREE_FILES, MAX_DEPTH = 50 << 20, 2_000, 12
MAX_NAME_BYTES = 255  # of a file, on every system
LEFT_OUT = frozenset({".git", "node_modules", "__pycache__", "__MACOSX", ".DS_Store"})
_MACH_O = "feedface feedfacf cefaedfe cffaedfe cafebabe"  # both byte orders and widths, and the universal form
_PROGRAM_MAGIC = (b"\x7fELF", b"MZ", *map(bytes.fromhex, _MACH_O.split()))  # the second is PE
MAX_DIFF_BYTES = 200_000  # of a file that is compared line by line
MAX_DIFF_PAIRS = 4_000_000  # of an old and a new line: comparing takes that many steps


@dataclass(frozen=True, slots=True)
class TreeFile:
    """A regular file of a skill, by its path in the folder."""

    size: int
    changed: int  # mtime in nanoseconds
    executable: bool


Tree = Mapping[str, TreeFile]


def list_tree(folder: Path, *, watched: dict[str, tuple[int, ...]] | None = None) -> Tree:
    """List the files below `folder`. Adds each folder and file with its `stamp` to `watched`. Raises SkillError."""
    found: dict[str, TreeFile] = {}
    size = 0
    for name, status in _walk(str(folder), "", {} if watched is None else watched):
        size += status.st_size
        if len(found) >= MAX_TREE_FILES or size > MAX_TREE_BYTES:
            limit = MAX_TREE_BYTES >> 20
            raise SkillError(N_("it has more than {files} files or {limit} MB"), files=MAX_TREE_FILES, limit=limit)
        found[name] = TreeFile(status.st_size, status.st_mtime_ns, bool(status.st_mode & 0o100))
    return found


def _walk(folder: str, prefix: str, watched: dict[str, tuple[int, ...]]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files with their path in the skill, as texts, because `Path` is ten times slower."""
    if prefix.count("/") > MAX_DEPTH:
        raise SkillError(N_("its folders are nested too deeply"))
    watched[folder] = stamp(os.lstat(folder))
    with os.scandir(folder) as entries:
        inside = sorted((entry for entry in entries if entry.name not in LEFT_OUT), key=lambda entry: entry.name)
    for entry in inside:
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            yield from _walk(entry.path, f"{prefix}{entry.name}/", watched)
        elif stat.S_ISREG(status.st_mode):
            watched[entry.path] = stamp(status)
            yield f"{prefix}{entry.name}", status


def stamp(status: os.stat_result) -> tuple[int, ...]:
    """Return what changes with every change of a file. The ctime cannot be set back."""
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def is_changed(watched: Mapping[str, tuple[int, ...]]) -> bool:
    """Return whether a watched path has another stamp. A path that did not exist has the stamp ()."""
    for path, known in watched.items():
        try:
            if stamp(os.lstat(path)) != known:
                return True
        except OSError:
            if known:
                return True
    return False


def check_path(name: str) -> PurePosixPath:
    """Return a path of an archive or a proposal, which stays inside its folder on every system. Raises SkillError."""
    path = PurePosixPath(name)
    bad = path.is_absolute() or ".." in path.parts or not path.parts or any(char in name for char in "\\:\0")
    if bad or len(path.parts) > MAX_DEPTH or not name.isprintable():
        raise SkillError(N_("the path {path} is not safe"), path=repr(name[:200]))
    if any(len(part.encode()) > MAX_NAME_BYTES for part in path.parts):
        sentence = N_("the path {path} has a name of more than {limit} bytes")
        raise SkillError(sentence, path=repr(name[:200]), limit=MAX_NAME_BYTES)
    return path


def check_tree(folder: Path) -> None:
    """Refuse programs, links, and a second skill inside. Raises SkillError."""
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            raise SkillError(N_("{path} is a link or a special file"), path=name)
        if path.name in SKILL_FILES and path.parent != folder:
            raise SkillError(N_("it has a second skill inside, {path}"), path=name)
        if path.is_file() and _is_program(path):
            raise SkillError(N_("{path} is a compiled program"), path=name)
    list_tree(folder)


def _is_program(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4).startswith(_PROGRAM_MAGIC)


def hash_tree(folder: Path) -> str:
    """Return the SHA-256 of all names, contents and executable bits."""
    whole = hashlib.sha256()
    for name, file in sorted(list_tree(folder).items()):
        content = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        whole.update(f"{name}\0{int(file.executable)}\0{content}\n".encode())
    return whole.hexdigest()


def copy_tree(source: Path, target: Path) -> None:
    """Put a copy of the files at `target`, all or nothing; other users of this machine may read it."""
    new, old = (target.with_name(f".{target.name}.{end}") for end in ("new", "old"))
    for leftover in (new, old):
        shutil.rmtree(leftover, ignore_errors=True)
    tree = list_tree(source)
    new.mkdir(parents=True)
    new.chmod(0o755)
    for name, file in tree.items():
        path = new / name
        for parent in reversed(path.relative_to(new).parents[:-1]):
            (new / parent).mkdir(exist_ok=True)
            (new / parent).chmod(0o755)
        shutil.copy2(source / name, path, follow_symlinks=False)
        path.chmod(0o755 if file.executable else 0o644)
    if target.exists():
        target.rename(old)
    new.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def diff_trees(old: Path | None, new: Path) -> str:
    """Return a unified diff of two folders; `old` None: all is new."""
    before = set(list_tree(old)) if old else set()
    lines: list[str] = []
    for name in sorted(before | set(list_tree(new))):
        was = _read_lines(old / name) if old and name in before else []
        now = _read_lines(new / name) if (new / name).is_file() else []
        if was is None or now is None:
            same = bool(old) and name in before and (new / name).is_file() and _same_bytes(Path(old or ""), new, name)
            lines += [] if same else [f"*** {name}: not text, or larger than {MAX_DIFF_BYTES // 1000} KB"]
            continue
        names = (f"a/{name}" if name in before else "/dev/null", f"b/{name}" if (new / name).is_file() else "/dev/null")
        lines += _diff_lines(was, now, *names)
    return "\n".join(lines)


def _diff_lines(was: list[str], now: list[str], before: str, after: str) -> Iterator[str]:
    """Return a unified diff; of long files, all lines between the first and the last one that differ."""
    if len(was) * len(now) <= MAX_DIFF_PAIRS:
        return difflib.unified_diff(was, now, before, after, lineterm="")
    if was == now:
        return iter(())
    start = next((n for n, (old, new) in enumerate(zip(was, now, strict=False)) if old != new), min(len(was), len(now)))
    rest = min(len(was), len(now)) - start
    same = next((n for n in range(rest) if was[-1 - n] != now[-1 - n]), rest)
    old, new = was[start : len(was) - same], now[start : len(now) - same]
    head = (f"--- {before}", f"+++ {after}", f"@@ -{start + 1},{len(old)} +{start + 1},{len(new)} @@")
    return iter([*head, *(f"-{line}" for line in old), *(f"+{line}" for line in new)])


def _same_bytes(old: Path, new: Path, name: str) -> bool:
    return (old / name).read_bytes() == (new / name).read_bytes()


def _read_lines(path: Path) -> list[str] | None:
    if path.stat().st_size > MAX_DIFF_BYTES:
        return None
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return None
