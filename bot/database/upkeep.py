"""Overwrite what was deleted and give free pages back, in steps of a few milliseconds, while the service works.

`secure_delete` overwrites a row where it is deleted. What it leaves are the copies of rows that SQLite moved to another
page: they stay in the gap of the old page, between its cell pointers and its cells
(https://www.sqlite.org/fileformat2.html#b_tree_pages). SQLite never reads a gap, so zeros there change nothing for it.
A step empties the write-ahead log and holds the write lock: nobody then writes into the database file but this step.
"""

from __future__ import annotations

import os
import sqlite3
import struct
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

INCREMENTAL = 2  # of PRAGMA auto_vacuum
STEP_SECONDS = 0.01  # of reading pages, in one step
FREED_PAGES = 32  # in one step
SPARE_PAGES = 256  # that stay free in any case
SPARE_PART = 8  # of all pages: one of so many may stay free
_HEADER = struct.Struct(">BHHH")  # kind, first free block, cells, where the cells begin
_HEADER_BYTES = {2: 12, 5: 12, 10: 8, 13: 8}  # by kind of a page of a b-tree
_ROOT, _NODE = 1, 5  # types of pages in the pointer map
_LOCK_BYTE = 1 << 30  # its page has no content
_ENTRY_BYTES = 5  # of the pointer map


class NotMapped(Exception):
    """The database has no pointer map, so its pages cannot be found: `create_schema` did not make it."""


def overwrite_deletions(connection: sqlite3.Connection) -> None:
    """Have this connection overwrite what it deletes."""
    connection.execute("PRAGMA secure_delete=ON").fetchall()


def free_pages(connection: sqlite3.Connection) -> bool:
    """Give some of many free pages back to the file system; return whether there are more."""
    [(free,)] = connection.execute("PRAGMA freelist_count")
    [(pages,)] = connection.execute("PRAGMA page_count")
    if free <= max(SPARE_PAGES, pages // SPARE_PART):
        return False
    connection.execute(f"PRAGMA incremental_vacuum({FREED_PAGES})").fetchall()
    return True


def write_log(connection: sqlite3.Connection) -> None:
    """Write the log into the database, as far as nobody reads older pages."""
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def empty_log(connection: sqlite3.Connection) -> bool:
    """Write the log into the database and truncate it. False: another process reads what the log hides."""
    [(patience,)] = connection.execute("PRAGMA busy_timeout")
    connection.execute("PRAGMA busy_timeout=0")
    try:
        [(busy, _, _)] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return not busy
    finally:
        connection.execute(f"PRAGMA busy_timeout={patience}")


@dataclass(frozen=True, slots=True)
class Layout:
    """How the pages of a file are arranged."""

    page_bytes: int
    usable_bytes: int
    pages: int

    @classmethod
    def read(cls, fd: int) -> Layout:
        """Raises NotMapped."""
        header = os.pread(fd, 100, 0)
        size = int.from_bytes(header[16:18], "big")
        if not int.from_bytes(header[52:56], "big"):
            raise NotMapped("the database has no pointer map (PRAGMA auto_vacuum)")
        page = 65536 if size == 1 else size
        return cls(page, page - header[20], os.fstat(fd).st_size // page)

    @property
    def mapped(self) -> int:
        """How many pages one page of the pointer map describes."""
        return self.usable_bytes // _ENTRY_BYTES

    def map_page(self, group: int) -> int:
        """Return the number of the page of the pointer map that describes a group of pages, which follow it."""
        number = group * (self.mapped + 1) + 2
        return number + (number == _LOCK_BYTE // self.page_bytes + 1)


class GapScrubber:
    """Overwrites the gaps of all pages of a database file.

    It holds a descriptor of the file. Closing that releases the locks of SQLite in this process, so `close` is called
    after the connection is closed (https://www.sqlite.org/howtocorrupt.html, 2.2).
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._log = path.with_name(path.name + "-wal")

    def close(self) -> None:
        os.close(self._fd)

    def sync(self) -> None:
        """Wait until what was overwritten is on the disk."""
        os.fsync(self._fd)

    def scrub(self, connection: sqlite3.Connection, group: int) -> tuple[int | None, int] | None:
        """Overwrite the gaps of some groups of pages; return the next group, None after the last one, and how many.

        None: another process uses the log, so that nothing was done. Raises NotMapped.
        """
        if not empty_log(connection):
            return None
        connection.execute("BEGIN IMMEDIATE")
        try:
            if self._log.stat().st_size:  # another process has written since
                return None
            layout, until, found = Layout.read(self._fd), time.monotonic() + STEP_SECONDS, 0
            while layout.map_page(group) <= layout.pages:
                for start, size in self._dirty_gaps(layout, group):
                    os.pwrite(self._fd, bytes(size), start)
                    found += 1
                group += 1
                if time.monotonic() > until:
                    return group, found
            return None, found
        finally:
            connection.rollback()
            connection.execute("PRAGMA shrink_memory").fetchall()  # its copies of these pages have the old gaps

    def _dirty_gaps(self, layout: Layout, group: int) -> Iterator[tuple[int, int]]:
        """Yield begin and size of each gap in a group that has anything but zeros."""
        page, first = layout.page_bytes, layout.map_page(group)
        count = min(layout.mapped + 1, layout.pages - first + 1, layout.map_page(group + 1) - first)
        content = os.pread(self._fd, count * page, (first - 1) * page)
        zeros = bytes(page)
        for number in range(1, len(content) // page):
            if content[_ENTRY_BYTES * (number - 1)] not in (_ROOT, _NODE):
                continue
            begin = number * page
            kind, _, cells, cells_begin = _HEADER.unpack_from(content, begin)
            start, end = _HEADER_BYTES.get(kind, page) + 2 * cells, cells_begin or 65536
            if start < end <= layout.usable_bytes and content[begin + start : begin + end] != zeros[: end - start]:
                yield (first - 1) * page + begin + start, end - start


def overwrite_copy(path: Path, connection: sqlite3.Connection) -> None:
    """Overwrite what is left of deleted rows in a copy that nobody else uses, through its only connection."""
    connection.execute("PRAGMA journal_mode=WAL")
    scrubber = GapScrubber(path)
    try:
        group: int | None = 0
        while group is not None and (step := scrubber.scrub(connection, group)):
            group = step[0]
        connection.execute("PRAGMA journal_mode=DELETE")
    finally:
        connection.close()  # before the descriptor
        scrubber.close()


def find_damage(path: Path) -> str | None:
    """Return what is wrong with the pages of the database at `path`, None for a whole one. It reads all of them."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            [(said,), *_] = connection.execute("PRAGMA quick_check(1)")
    except sqlite3.Error as error:
        return str(error)
    return None if said == "ok" else str(said)
