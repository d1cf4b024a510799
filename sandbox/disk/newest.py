"""Delete what a conversation made last, largest first, until enough of the disk is free again.

A program of its own, standard library only, because a tree of a million entries must hold up neither the service's
loop nor its threads: `python -I -S newest.py SINCE BYTES FILES FOLDER…`. It deletes files and folders that were made
after SINCE (unix time) until BYTES and FILES (inodes) are free; where that is not enough, also those that were there
before and changed since. It prints as JSON the bytes and files that it freed, and the largest names.

It goes through folders one level at a time, follows no link, leaves the file system never, and stops when a folder
moves under its feet.
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
ROUNDS = 5  # a folder can only go when all in it went
AT_FDCWD, AT_SYMLINK_NOFOLLOW, STATX_BTIME = -100, 0x100, 0x800  # statx(2)
_libc = ctypes.CDLL(None, use_errno=True)
_answer = ctypes.create_string_buffer(256)

Found = tuple[list[str], str, os.stat_result]  # the folders that it lies in (valid until the next), name, status


def walk(top: str) -> Iterator[Found]:
    """Everything below `top`, what is in a folder before the folder; the current folder is then the one it lies in."""
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
    """When the entry was made; 0 where the file system does not know."""
    _libc.statx(AT_FDCWD, os.fsencode(name), AT_SYMLINK_NOFOLLOW, STATX_BTIME, _answer)
    mask, seconds, nanoseconds = struct.unpack_from("<I76xqI", _answer)
    return float(seconds + nanoseconds / 1e9) if mask & STATX_BTIME else 0.0


def choose_inodes(tops: list[str], since: float, size: int, files: int) -> set[int]:
    """The inodes that have to go, folders last."""
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
    """`walk` of each, from the folder that this began in."""
    start = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        for top in tops:
            os.fchdir(start)
            yield from walk(top)
    finally:
        os.fchdir(start)
        os.close(start)


def delete_inodes(tops: list[str], chosen: set[int], largest: list[tuple[int, str]]) -> tuple[int, int]:
    """Delete these inodes under all of their names; the bytes and inodes that are free."""
    freed, gone = 0, set()
    for path, name, status in walk_all_tops(tops):
        if status.st_ino not in chosen:
            continue
        try:
            if stat.S_ISDIR(status.st_mode):
                os.rmdir(name)
            else:
                os.unlink(name)
        except OSError:  # a folder with something else in it
            continue
        if status.st_ino not in gone:
            gone.add(status.st_ino)
            size = status.st_blocks * 512
            freed += size
            if len(largest) < NAMES:
                heapq.heappush(largest, (size, "/".join([*path[:NAME_CHARS], name])[:NAME_CHARS]))
            elif size > largest[0][0]:
                heapq.heapreplace(largest, (size, "/".join([*path[:NAME_CHARS], name])[:NAME_CHARS]))
    return freed, len(gone)


def main(since: float, size: int, files: int, tops: list[str]) -> None:
    """Delete, and say what."""
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
