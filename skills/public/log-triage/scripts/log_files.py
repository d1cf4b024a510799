"""Read the lines of logs, also in gz and zip, with bounds on what is unpacked."""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

MAX_LINE_BYTES = 8192
MAX_MEMBERS = 500
CHUNK_BYTES = 1 << 16


class Problem(Exception):
    """A file cannot be read. The text says why and what to do."""


class RawLine(NamedTuple):
    """A line of a file; `number` counts from 1."""

    file: str
    number: int
    text: str


class LogReader:
    """Yields lines until `max_bytes` are unpacked. `notes` say what was left out."""

    def __init__(self, max_bytes: int) -> None:
        self._room = max_bytes
        self.notes: list[str] = []
        self.bytes = 0

    def lines(self, path: Path) -> Iterator[RawLine]:
        """Yield the lines of a file or of all files in an archive. Raises Problem and OSError."""
        with path.open("rb") as file:
            head = file.read(4)
            file.seek(0)
            try:
                if head.startswith(b"PK\x03\x04"):
                    yield from self._zip_lines(path.name, file)
                else:
                    yield from self._file_lines(path.name, file)
            except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
                raise Problem(f"{path.name} cannot be unpacked: {error}") from error

    def _zip_lines(self, name: str, file: IO[bytes]) -> Iterator[RawLine]:
        with zipfile.ZipFile(file) as archive:
            members = [each for each in archive.infolist() if not each.is_dir()]
            if len(members) > MAX_MEMBERS:
                self.notes.append(f"{name}: only the first {MAX_MEMBERS} of {len(members)} files.")
            for member in sorted(members[:MAX_MEMBERS], key=lambda each: each.filename):
                if member.flag_bits & 1:
                    self.notes.append(f"{name}: {member.filename} is encrypted and was left out.")
                    continue
                with archive.open(member) as inner:
                    yield from self._file_lines(f"{name}/{member.filename}", inner)

    def _file_lines(self, name: str, file: IO[bytes]) -> Iterator[RawLine]:
        buffered = io.BufferedReader(file) if isinstance(file, io.RawIOBase) else file
        head = buffered.read(2)
        rest = _Prefixed(head, buffered)
        stream: IO[bytes] = gzip.GzipFile(fileobj=rest) if head == b"\x1f\x8b" else rest  # type: ignore[assignment]  # both have read()
        number, tail, cut = 0, b"", False
        while self._room > 0:
            data = stream.read(min(CHUNK_BYTES, self._room))
            if not data:
                break
            if number == 0 and not tail and b"\0" in data[:512] and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
                self.notes.append(f"{name} is not text and was left out.")
                return
            self._room -= len(data)
            self.bytes += len(data)
            *whole, last = data.split(b"\n")
            for piece in whole:
                number += 1
                line = (tail + piece)[:MAX_LINE_BYTES]
                tail = b""
                yield RawLine(name, number, decode(line))
            cut = cut or len(tail) + len(last) > MAX_LINE_BYTES
            tail = (tail + last)[:MAX_LINE_BYTES]
        if self._room <= 0:
            self.notes.append(f"{name}: the limit of --max-mb was reached; what follows was not read.")
        if cut:
            self.notes.append(f"{name} has lines longer than {MAX_LINE_BYTES >> 10} KB, which were cut.")
        if tail:
            yield RawLine(name, number + 1, decode(tail))


class _Prefixed(io.RawIOBase):
    """A stream whose first bytes were read already."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        head, self._head = self._head, b""
        return head + self._rest.read(size if size < 0 else max(size - len(head), 0))


def decode(line: bytes) -> str:
    """Return a line as text: UTF-8, or Latin-1 where it is not; without colors of a terminal."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        text = line.decode("latin-1")
    text = text.rstrip("\r")
    if "\x1b" in text:
        text = "".join(part if index == 0 else part.partition("m")[2] for index, part in enumerate(text.split("\x1b[")))
    return text
