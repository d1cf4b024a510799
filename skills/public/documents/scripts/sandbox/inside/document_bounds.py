"""Bound what reading a document takes: bytes, files of an archive, cells, memory and seconds. Runs in the sandbox.

Standard library only, Python 3.9+.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import zipfile
from typing import Any

MAX_FILE_BYTES = 300 << 20
MAX_UNPACKED_BYTES = 300 << 20
MAX_MEMBER_BYTES = 50 << 20  # of one file in an archive
MAX_ENTRIES = 50_000  # files in an archive
MAX_CELLS = 5_000_000  # of a table, up to its last row and column
MEMORY_BYTES = 1 << 30
OLE_MARK = b"\xd0\xcf\x11\xe0"  # old formats, and new ones with a password
PASSWORD = "it is protected with a password: ask the person for it, or for a copy without one"  # noqa: S105  a sentence
PIECE_CHARS = 1 << 20
_CELL = re.compile(rb'<(?:\w{1,10}:)?c\s[^<>]{0,200}?\br="([A-Z]{1,3})([0-9]{1,7})"')


class DocumentUnreadable(Exception):
    """The text is for the model."""


class TimeIsOver(BaseException):
    """Reading takes too long. No library catches it."""


def set_limits(seconds: float) -> None:
    """Bound memory and time of this process. A library that does not return is killed after twice the time."""
    limits = {resource.RLIMIT_AS: MEMORY_BYTES, resource.RLIMIT_CPU: int(2 * seconds) + 1}
    for kind, value in limits.items():
        _soft, hard = resource.getrlimit(kind)
        least = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (least, hard))
    signal.signal(signal.SIGALRM, _end_time)


def start_time(seconds: float) -> None:
    """Raise TimeIsOver after so many seconds; 0: never."""
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _end_time(*_: Any) -> None:
    raise TimeIsOver


def check_size(path: str) -> None:
    """Raise DocumentUnreadable for a file that is too large."""
    if os.stat(path).st_size > MAX_FILE_BYTES:
        raise DocumentUnreadable(f"it is larger than {MAX_FILE_BYTES >> 20} MB; read parts of it with a program")


def open_archive(path: str) -> zipfile.ZipFile:
    """Open a zip with a sane number of files, which have a sane size together. Raises DocumentUnreadable."""
    with open(path, "rb") as file:
        if file.read(len(OLE_MARK)) == OLE_MARK:
            raise DocumentUnreadable(f"{PASSWORD}; or it is a file of an old format with a new name")
    archive = zipfile.ZipFile(path)
    entries = archive.infolist()
    if len(entries) > MAX_ENTRIES:
        raise DocumentUnreadable(f"it has more than {MAX_ENTRIES:,} files")
    if sum(entry.file_size for entry in entries) > MAX_UNPACKED_BYTES:
        raise DocumentUnreadable(f"unpacked, it is larger than {MAX_UNPACKED_BYTES >> 20} MB")
    return archive


def read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """Return a file of an archive, b"" if it is missing. Raises DocumentUnreadable if it is too large."""
    try:
        with archive.open(name) as file:
            data = file.read(MAX_MEMBER_BYTES + 1)
    except KeyError:
        return b""
    except RuntimeError as error:  # encrypted
        raise DocumentUnreadable(PASSWORD) from error
    if len(data) > MAX_MEMBER_BYTES:
        raise DocumentUnreadable(f"its part {name} is larger than {MAX_MEMBER_BYTES >> 20} MB")
    return data


def check_cells(archive: zipfile.ZipFile) -> None:
    """Raise DocumentUnreadable if cells lie so far apart that a table of all between them needs too much memory."""
    for entry in archive.infolist():
        if not re.fullmatch(r"xl/worksheets/[^/]{1,200}\.xml", entry.filename):
            continue
        column = row = 0
        with archive.open(entry) as file:
            rest = b""
            while piece := file.read(PIECE_CHARS):
                text = rest + piece
                for letters, number in _CELL.findall(text):
                    column, row = max(column, column_number(letters)), max(row, int(number))
                rest = text[-256:]  # a cell may be cut here; one that is seen twice changes nothing
        if column * row > MAX_CELLS:
            raise DocumentUnreadable(
                f"the cells of {entry.filename} lie too far apart (row {row:,}, column {column:,}); read the cells that"
                " you need with a program"
            )


def column_number(letters: bytes) -> int:
    """Return the number of a column: 1 for A, 27 for AA."""
    number = 0
    for letter in letters:
        number = 26 * number + letter - 64
    return number
