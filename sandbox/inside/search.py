"""Search a folder: list it, find files by pattern, find lines by expression.

Links are never followed. Everything starts from an open folder descriptor, so the code works on the host
(`sandbox.disk.safe_files` opens it) and in the sandbox (`sandbox.inside.server` does). Standard library only, Python
3.9+, because its source is sent into sandboxes.
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

from sandbox.inside.packed import CannotUnpack, Unpacked, packing_of
from sandbox.inside.text_encoding import find_codec

MAX_SEARCHED_BYTES = 16 << 20  # of a file, unpacked
MAX_LONG_BYTES = 8 * MAX_SEARCHED_BYTES  # of all files together that are packed or longer
MAX_NOTES = 5  # about files that were not searched to their ends
NOT_SEARCHED = "[searched up to its first {n:,} bytes only; search the rest with a program]"
HEAD_BYTES = 60_000  # by which a long file is known to be text
MAX_LINE_CHARS = 500  # of a matching line

Row = tuple[str, int, str]
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class WalkBounds(NamedTuple):
    """Limits of one walk."""

    entries: int = 100_000  # folders included
    depth: int = 64  # nested folders, and open descriptors
    path_bytes: int = 4_096
    seconds: float = float("inf")


class SkipReason(NamedTuple):
    """Why a walk does not examine an entry: a sentence, marked for the catalogue of the host, and its number."""

    sentence: str
    n: float = 0

    def __str__(self) -> str:
        return self.sentence.format(n=self.n)


def N_(sentence: str) -> str:
    """Mark a sentence for the catalogue, which does not exist in the sandbox."""
    return sentence


def _ignore_skipped(rel: str, why: SkipReason) -> None:
    """Ignore the entry."""


def entry_kind(status: os.stat_result) -> str:
    """Name the kind of a directory entry; "file" is a regular file with one name."""
    mode = status.st_mode
    if stat.S_ISREG(mode):
        return "file" if status.st_nlink == 1 else N_("hard link")
    if stat.S_ISDIR(mode):
        return N_("folder")
    if stat.S_ISLNK(mode):
        return N_("link")
    if stat.S_ISFIFO(mode):
        return N_("pipe")
    return N_("socket") if stat.S_ISSOCK(mode) else N_("device")


def readable_name(raw: str) -> str:
    """Decode a file name; bytes that are not UTF-8 become the replacement character."""
    return os.fsencode(raw).decode("utf-8", "replace")


def walk_folder(
    top: int,
    bounds: WalkBounds = WalkBounds(),  # noqa: B008  it is immutable
    skip: Callable[[str, SkipReason], None] = _ignore_skipped,
    leave: Callable[[str, int], None] | None = None,
) -> Iterator[tuple[str, os.stat_result, int]]:
    """Yield (relative path, lstat, descriptor of its folder) of everything below the open folder `top`, sorted within
    each folder, a folder before its content. The descriptor is valid until the next step. Only the folders of the
    current path are open. Calls `skip` with (path, reason) for an entry it does not examine, and `leave` with (path,
    descriptor of its folder) after a folder's content."""
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
                with os.scandir(here) as listing:  # bounded before sorting: there may be millions
                    items = sorted(item.name for item in itertools.islice(listing, room + 1))
            except OSError as error:  # removed meanwhile, replaced by a link, or not readable
                skip(inside, SkipReason(str(error.strerror)))
                continue
            inner: list[tuple[str, int]] = []
            for item in items:
                rel = f"{inside}/{item}" if level else item
                if not room:
                    skip(rel, SkipReason(N_("there are more than {n:,} files and folders"), bounds.entries))
                    return
                if time.monotonic() > until:
                    skip(
                        rel, SkipReason(N_("looking through the folder took longer than {n:g} seconds"), bounds.seconds)
                    )
                    return
                room -= 1
                if len(os.fsencode(rel)) > bounds.path_bytes:
                    skip(rel, SkipReason(N_("its path is longer than {n:,} bytes"), bounds.path_bytes))
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
                        skip(rel, SkipReason(N_("it is more than {n} folders deep"), bounds.depth))
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
    """List (relative path, bytes, kind) below `top`, at most `limit`, sorted."""
    rows: list[Row] = []
    for rel, status, _ in walk_folder(top, WalkBounds(depth=min(depth, 64))):
        if len(rows) == limit:
            break
        rows.append((readable_name(rel), status.st_size, entry_kind(status)))
    return sorted(rows)


def find_files(top: int, pattern: str, limit: int) -> list[str]:
    """List the regular files that match `pattern`, newest first, at most `limit`."""
    wanted = translate_glob(pattern)
    found = [
        (-status.st_mtime_ns, readable_name(rel))
        for rel, status, _ in walk_folder(top)
        if stat.S_ISREG(status.st_mode) and wanted.fullmatch(rel)
    ]
    return [rel for _, rel in sorted(found)[:limit]]


def find_lines(top: int, regex: str, pattern: str, limit: int) -> list[tuple[str, int, str]]:
    """List (relative path, line number, line) of matches in files that are not binary, also in packed ones. A last
    row with the line number 0 says of which text the end was not searched. Raises re.error."""
    wanted, line_re = translate_glob(pattern), re.compile(regex)
    rows: list[tuple[str, int, str]] = []
    notes: list[tuple[str, int, str]] = []
    room = MAX_LONG_BYTES
    for rel, status, here in walk_folder(top):
        if not stat.S_ISREG(status.st_mode) or not wanted.fullmatch(rel):
            continue
        try:
            content, taken, is_whole = _read_text(os.path.basename(rel), here, room)
        except OSError:
            continue  # removed meanwhile or not readable
        room -= taken
        if not is_whole:
            notes.append((readable_name(rel), 0, NOT_SEARCHED.format(n=taken)))
        for number, line in enumerate(content.splitlines(), 1):
            if line_re.search(line):
                rows.append((readable_name(rel), number, line[:MAX_LINE_CHARS]))
                if len(rows) == limit:
                    return rows
    return (rows + notes[:MAX_NOTES])[:limit]


def _read_text(item: str, folder: int, room: int) -> tuple[str, int, bool]:
    """Read the beginning of a regular file in the open `folder`. Return it, "" if it is binary, how many of the `room`
    bytes for long files it took, and whether this is all of its text."""
    fd = os.open(item, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return "", 0, True
        head = file.read(HEAD_BYTES)
        packing, is_long = packing_of(head), status.st_size > MAX_SEARCHED_BYTES
        if not packing and is_long and not find_codec(head):
            return "", 0, True
        file.seek(0)
        try:
            source = Unpacked(file, packing) if packing else file
        except CannotUnpack:
            return "", 0, False
        most = min(MAX_SEARCHED_BYTES, room) if packing or is_long else MAX_SEARCHED_BYTES
        data = source.read(most)
        is_whole = not source.read(1)
    codec = find_codec(data)
    text = data.decode(codec, "replace").removeprefix("\ufeff") if codec else ""
    return text, len(data) if packing or is_long else 0, is_whole or not codec


def translate_glob(pattern: str) -> re.Pattern[str]:
    """Translate a glob into an expression for relative paths: `*` and `?` stay within a folder, `**` crosses folders,
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
    """Run glob or grep as a separate process, which can be killed. Arguments: the folder's descriptor, and JSON
    [pattern, limit] or [pattern, limit, expression]. Prints the rows as JSON, or a text with the error."""
    top = int(sys.argv[1])
    pattern, limit, *regex = json.loads(sys.argv[2])
    try:
        answer: object = find_lines(top, regex[0], pattern, limit) if regex else find_files(top, pattern, limit)
    except re.error as error:
        answer = f"not a regular expression: {error}"
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
