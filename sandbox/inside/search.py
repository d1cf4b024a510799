"""Look through a folder: list it, find files by pattern, find lines by expression. Links are never followed.

Everything starts from an open folder descriptor, so the same code is safe on the host (where `sandbox.disk.safe_files`
opens it) and runs inside the sandbox (where `sandbox.inside.server` opens it). Standard library only, Python 3.9+,
because its source is injected into sandboxes.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

MAX_SEARCHED_BYTES = 16 << 20  # a larger file is not searched for lines
MAX_LINE_CHARS = 500  # characters of a matching line that are given back

Row = tuple[str, int, str]
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class WalkBounds(NamedTuple):
    """What one walk looks at, at most."""

    entries: int = 100_000  # folders count, too
    depth: int = 64  # folders inside each other; as many descriptors are open
    path_bytes: int = 4_096
    seconds: float = float("inf")


def _ignore_skipped(rel: str, why: str) -> None:
    """Nobody wants to know."""


def entry_kind(status: os.stat_result) -> str:
    """What a directory entry is, in words a person understands; "file" is a regular file with one name."""
    mode = status.st_mode
    if stat.S_ISREG(mode):
        return "file" if status.st_nlink == 1 else "hard link"
    if stat.S_ISDIR(mode):
        return "folder"
    if stat.S_ISLNK(mode):
        return "link"
    if stat.S_ISFIFO(mode):
        return "pipe"
    return "socket" if stat.S_ISSOCK(mode) else "device"


def readable_name(raw: str) -> str:
    """A file name as valid text: bytes that are not UTF-8 become the replacement character."""
    return os.fsencode(raw).decode("utf-8", "replace")


def walk_folder(
    top: int,
    bounds: WalkBounds = WalkBounds(),  # noqa: B008  it cannot be changed
    skip: Callable[[str, str], None] = _ignore_skipped,
    leave: Callable[[str, int], None] | None = None,
) -> Iterator[tuple[str, os.stat_result, int]]:
    """Everything below the open folder `top` as (relative path, lstat, descriptor of its folder), sorted within each
    folder, a folder's entries before what lies deeper; the descriptor is valid until the next step.

    Each folder is opened once, below the one before; only those of the current path are open. `skip` is told (path,
    why) of what is not looked at. `leave` is called with (path, descriptor of its folder) when all of a folder was.
    """
    until, room = time.monotonic() + bounds.seconds, bounds.entries
    path: list[tuple[int, str]] = []
    todo: list[tuple[str, int]] = [(".", 0)]
    try:
        while todo:
            inside, level = todo.pop()
            _go_up(path, level, leave)
            try:
                here = os.open(os.path.basename(inside), _FOLDER, dir_fd=path[-1][0] if path else top)
                path.append((here, inside))
                with os.scandir(here) as listing:  # bounded before it is sorted: somebody may have made millions
                    items = sorted(item.name for item in itertools.islice(listing, room + 1))
            except OSError as error:  # removed meanwhile, swapped for a link, or not readable
                skip(inside, str(error.strerror))
                continue
            inner: list[tuple[str, int]] = []
            for item in items:
                rel = f"{inside}/{item}" if level else item
                if not room:
                    skip(rel, f"there are more than {bounds.entries:,} files and folders")
                    return
                if time.monotonic() > until:
                    skip(rel, f"looking through the folder took longer than {bounds.seconds:g} seconds")
                    return
                room -= 1
                if len(os.fsencode(rel)) > bounds.path_bytes:
                    skip(rel, f"its path is longer than {bounds.path_bytes:,} bytes")
                    continue
                try:
                    status = os.stat(item, dir_fd=here, follow_symlinks=False)
                except OSError:
                    continue  # removed meanwhile
                yield rel, status, here
                if stat.S_ISDIR(status.st_mode):
                    if level + 1 < bounds.depth:
                        inner.append((rel, level + 1))
                    else:
                        skip(rel, f"lies below more than {bounds.depth} folders inside each other")
            todo.extend(reversed(inner))
        _go_up(path, 1, leave)
    finally:
        _go_up(path, 0, None)


def _go_up(path: list[tuple[int, str]], level: int, leave: Callable[[str, int], None] | None) -> None:
    """Close the folders below `level`."""
    while len(path) > level:
        here, rel = path.pop()
        os.close(here)
        if leave and path:
            leave(rel, path[-1][0])


def list_entries(top: int, depth: int, limit: int) -> list[Row]:
    """(relative path, bytes, kind) of what is below `top`, at most `limit`, sorted."""
    rows: list[Row] = []
    for rel, status, _ in walk_folder(top, WalkBounds(depth=min(depth, 64))):
        if len(rows) == limit:
            break
        rows.append((readable_name(rel), status.st_size, entry_kind(status)))
    return sorted(rows)


def find_files(top: int, pattern: str, limit: int) -> list[str]:
    """Relative paths of regular files that match `pattern`, newest first, at most `limit`."""
    wanted = translate_glob(pattern)
    found = [
        (-status.st_mtime_ns, readable_name(rel))
        for rel, status, _ in walk_folder(top)
        if stat.S_ISREG(status.st_mode) and wanted.fullmatch(rel)
    ]
    return [rel for _, rel in sorted(found)[:limit]]


def find_lines(top: int, regex: str, pattern: str, limit: int) -> list[tuple[str, int, str]]:
    """(relative path, line number, line) of lines that match, in files that match `pattern`; binary and very large
    files are left out. Raises re.error for a bad expression."""
    wanted, line_re = translate_glob(pattern), re.compile(regex)
    rows: list[tuple[str, int, str]] = []
    for rel, status, here in walk_folder(top):
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_SEARCHED_BYTES or not wanted.fullmatch(rel):
            continue
        try:
            content = _read_text(os.path.basename(rel), here)
        except OSError:
            continue  # removed meanwhile or not readable
        for number, line in enumerate(content.splitlines(), 1):
            if line_re.search(line):
                rows.append((readable_name(rel), number, line[:MAX_LINE_CHARS]))
                if len(rows) == limit:
                    return rows
    return rows


def _read_text(item: str, folder: int) -> str:
    """The text of a regular file in the open `folder`; "" for a binary one."""
    fd = os.open(item, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return ""
        data = file.read(MAX_SEARCHED_BYTES)
    return "" if b"\0" in data[:8192] else data.decode("utf-8", "replace")


def translate_glob(pattern: str) -> re.Pattern[str]:
    """A glob as an expression for whole relative paths: `*` and `?` stay within a folder, `**` crosses folders,
    `[…]` and `{a,b}` choose. A pattern without a slash matches names at any depth, as in .gitignore."""
    if "/" not in pattern:
        pattern = "**/" + pattern
    out, i, braces = [], 0, 0
    while i < len(pattern):
        char = pattern[i]
        if pattern.startswith("**/", i):
            out.append("(?:[^/]+/)*")
            i += 3
            continue
        if pattern.startswith("**", i):
            out.append(".*")
            i += 2
            continue
        close = pattern.find("]", i + 2)
        if char == "[" and close > 0:
            inside = pattern[i + 1 : close].replace("\\", "\\\\").replace("[", "\\[")
            out.append("[" + ("^" + inside[1:] if inside[0] in "!^" else inside) + "]")
            i = close + 1
            continue
        if char == "{" and "}" in pattern[i:]:
            braces += 1
            out.append("(?:")
        elif char == "}" and braces:
            braces -= 1
            out.append(")")
        else:
            out.append("|" if char == "," and braces else {"*": "[^/]*", "?": "[^/]"}.get(char, re.escape(char)))
        i += 1
    return re.compile("".join(out) + ")" * braces, re.DOTALL)


def main() -> None:
    """glob or grep as a process of its own, which can be killed: a hostile pattern may never end. Arguments: the
    descriptor of the folder, and JSON: [pattern, limit] or [pattern, limit, expression]. Prints rows, or a text that
    says why not."""
    top = int(sys.argv[1])
    pattern, limit, *regex = json.loads(sys.argv[2])
    try:
        answer: object = find_lines(top, regex[0], pattern, limit) if regex else find_files(top, pattern, limit)
    except re.error as error:
        answer = f"not a regular expression: {error}"
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
