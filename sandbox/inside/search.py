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
from collections.abc import Iterator

MOST = 100_000  # files looked at in one walk
DEEP = 64  # folders below each other
BIG = 16 << 20  # a larger file is not searched for lines
WIDE = 500  # characters of a matching line that are given back

Row = tuple[str, int, str]


def kind(status: os.stat_result) -> str:
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


def name(raw: str) -> str:
    """A file name as valid text: bytes that are not UTF-8 become the replacement character."""
    return os.fsencode(raw).decode("utf-8", "replace")


def walk(top: int, depth: int = DEEP) -> Iterator[tuple[str, os.stat_result, int]]:
    """Everything below the open folder `top` as (relative path, lstat, descriptor of its folder), sorted within each
    folder; the folder's descriptor is valid until the next step. Folders that cannot be opened are left out."""
    todo: list[tuple[str, int]] = [("", 1)]
    seen = 0
    while todo:
        prefix, level = todo.pop()
        try:
            here = _descend(top, prefix)
        except OSError:
            continue  # removed meanwhile, swapped for a link, or not readable
        try:
            inner: list[tuple[str, int]] = []
            with os.scandir(here) as listing:  # bounded before it is sorted: somebody may have made millions
                items = sorted(item.name for item in itertools.islice(listing, MOST))
            for item in items:
                try:
                    status = os.stat(item, dir_fd=here, follow_symlinks=False)
                except OSError:
                    continue  # removed meanwhile
                seen += 1
                if seen > MOST:
                    return
                yield prefix + item, status, here
                if stat.S_ISDIR(status.st_mode) and level < depth:
                    inner.append((prefix + item + "/", level + 1))
            todo.extend(reversed(inner))
        finally:
            os.close(here)


def _descend(top: int, prefix: str) -> int:
    """Open the folder `prefix` below `top`, one component at a time, following nothing."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    here = os.open(".", flags, dir_fd=top)
    for part in prefix.split("/"):
        if part:
            try:
                below = os.open(part, flags, dir_fd=here)
            finally:
                os.close(here)
            here = below
    return here


def entries(top: int, depth: int, limit: int) -> list[Row]:
    """(relative path, bytes, kind) of what is below `top`, at most `limit`, sorted."""
    rows: list[Row] = []
    for rel, status, _ in walk(top, min(depth, DEEP)):
        if len(rows) == limit:
            break
        rows.append((name(rel), status.st_size, kind(status)))
    return sorted(rows)


def find(top: int, pattern: str, limit: int) -> list[str]:
    """Relative paths of regular files that match `pattern`, newest first, at most `limit`."""
    wanted = translate(pattern)
    found = [
        (-status.st_mtime_ns, name(rel))
        for rel, status, _ in walk(top)
        if stat.S_ISREG(status.st_mode) and wanted.fullmatch(rel)
    ]
    return [rel for _, rel in sorted(found)[:limit]]


def grep(top: int, regex: str, pattern: str, limit: int) -> list[tuple[str, int, str]]:
    """(relative path, line number, line) of lines that match, in files that match `pattern`; binary and very large
    files are left out. Raises re.error for a bad expression."""
    wanted, line_re = translate(pattern), re.compile(regex)
    rows: list[tuple[str, int, str]] = []
    for rel, status, here in walk(top):
        if not stat.S_ISREG(status.st_mode) or status.st_size > BIG or not wanted.fullmatch(rel):
            continue
        try:
            content = _content(os.path.basename(rel), here)
        except OSError:
            continue  # removed meanwhile or not readable
        for number, line in enumerate(content.splitlines(), 1):
            if line_re.search(line):
                rows.append((name(rel), number, line[:WIDE]))
                if len(rows) == limit:
                    return rows
    return rows


def _content(item: str, folder: int) -> str:
    """The text of a regular file in the open `folder`; "" for a binary one."""
    fd = os.open(item, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return ""
        data = file.read(BIG)
    return "" if b"\0" in data[:8192] else data.decode("utf-8", "replace")


def translate(pattern: str) -> re.Pattern[str]:
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
        answer: object = grep(top, regex[0], pattern, limit) if regex else find(top, pattern, limit)
    except re.error as error:
        answer = f"not a regular expression: {error}"
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
