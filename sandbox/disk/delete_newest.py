"""Delete a conversation's newest files, largest first, until enough is free.

A separate program, standard library only, because a tree of a million entries would block the event loop or a thread:
`python -I -S delete_newest.py SINCE BYTES FILES FOLDER…`. It deletes entries created after SINCE (unix time) until
BYTES and FILES (inodes) are free; if that is not enough, also older entries that changed since. It prints the freed
bytes, the freed inodes and the largest names as JSON.

It descends one folder at a time, follows no link, stays on the file system, and stops if a folder is moved meanwhile.
"""

from __future__ import annotations

import ctypes
import heapq
import json
import os
import stat
import struct
import sys
from collections.abc import Iterator

NAMES, NAME_CHARS = 5, 80
ROUNDS = 5  # a folder can only be deleted after its content
AT_FDCWD, AT_SYMLINK_NOFOLLOW, STATX_BTIME = -100, 0x100, 0x800  # statx(2)
_libc = ctypes.CDLL(None, use_errno=True)
_answer = ctypes.create_string_buffer(256)

Found = tuple[list[str], str, os.stat_result]  # path components (valid until the next step), name, lstat


def walk_bottom_up(top: str) -> Iterator[Found]:
    """Yield everything below `top`, a folder after its content. The current folder is the entry's parent."""
    os.chdir(top)
    path, levels = top.split("/"), [(os.stat("."), iter(os.listdir(".")))]
    while levels:
        here, names = levels[-1]
        for name in names:
            status = os.lstat(name)
            if stat.S_ISDIR(status.st_mode) and status.st_dev == here.st_dev and _enter(name, status):
                path.append(name)
                levels.append((status, iter(os.listdir("."))))
                break
            yield path, name, status
        else:
            left, _ = levels.pop()
            if levels:
                os.chdir("..")
                if not os.path.samestat(os.stat("."), levels[-1][0]):
                    raise OSError("a folder was moved meanwhile")
                name = path.pop()
                yield path, name, left


def _enter(name: str, status: os.stat_result) -> bool:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except PermissionError:
        return False
    try:
        if not os.path.samestat(os.fstat(fd), status):
            raise OSError("a folder was moved meanwhile")
        os.fchdir(fd)
    finally:
        os.close(fd)
    return True


def creation_time(name: str) -> float:
    """Return when the entry was created; 0 if the file system does not record it."""
    _libc.statx(AT_FDCWD, os.fsencode(name), AT_SYMLINK_NOFOLLOW, STATX_BTIME, _answer)
    mask, seconds, nanoseconds = struct.unpack_from("<I76xqI", _answer)
    return float(seconds + nanoseconds / 1e9) if mask & STATX_BTIME else 0.0


def choose_inodes(tops: list[str], since: float, size: int, files: int) -> set[int]:
    """Choose the inodes to delete, folders last."""
    found: dict[int, tuple[bool, bool, int]] = {}
    for _, name, status in walk_all_tops(tops):
        if status.st_ctime >= since and status.st_ino not in found:
            older = creation_time(name) < since
            found[status.st_ino] = (older, stat.S_ISDIR(status.st_mode), -status.st_blocks * 512)
    chosen = set()
    for inode, (_, _, negative) in sorted(found.items(), key=lambda item: item[1]):
        if size <= 0 and files <= 0:
            break
        chosen.add(inode)
        size, files = size + negative, files - 1
    return chosen


def walk_all_tops(tops: list[str]) -> Iterator[Found]:
    """Walk each folder, relative to the current one."""
    start = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        for top in tops:
            os.fchdir(start)
            yield from walk_bottom_up(top)
    finally:
        os.fchdir(start)
        os.close(start)


def delete_inodes(tops: list[str], chosen: set[int], largest: list[tuple[int, str]]) -> tuple[int, int]:
    """Delete these inodes under all their names. Returns the freed bytes and inodes."""
    freed, gone = 0, set()
    for path, name, status in walk_all_tops(tops):
        if status.st_ino not in chosen:
            continue
        try:
            if stat.S_ISDIR(status.st_mode):
                os.rmdir(name)
            else:
                os.unlink(name)
        except OSError:  # a folder with other entries
            continue
        if status.st_ino not in gone:
            gone.add(status.st_ino)
            size = status.st_blocks * 512
            freed += size
            heapq.heappush(largest, (size, "/".join([*path[:NAME_CHARS], name])[:NAME_CHARS]))
            if len(largest) > NAMES:
                heapq.heappop(largest)
    return freed, len(gone)


def main(since: float, size: int, files: int, tops: list[str]) -> None:
    """Delete, and print the result."""
    freed, gone, largest = 0, 0, list[tuple[int, str]]()
    for _ in range(ROUNDS):
        if freed >= size and gone >= files:
            break
        more, count = delete_inodes(tops, choose_inodes(tops, since, size - freed, files - gone), largest)
        if not count:
            break
        freed, gone = freed + more, gone + count
    sys.stdout.write(json.dumps([freed, gone, sorted(largest, reverse=True)]))


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
