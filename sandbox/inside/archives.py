"""Read what documents have in common: XML without entities, relations of parts, tables. Python 3.9+.

Bound what reading a document takes: bytes, files of an archive, cells, memory and seconds. Runs in the sandbox.

Standard library only, Python 3.9+.
"""

from __future__ import annotations

import mmap
import os
import posixpath
import re
import resource
import signal
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from typing import Any
from xml.etree import ElementTree
from xml.parsers import expat

MAX_FILE_BYTES = 300 << 20
MAX_UNPACKED_BYTES = 300 << 20
MAX_MEMBER_BYTES = 50 << 20  # of one file in an archive that is read whole
MAX_READ_BYTES = 2 * MAX_UNPACKED_BYTES  # of an archive, where its parts are referred to again and again
MAX_ENTRIES = 50_000  # files in an archive
MAX_CELLS = 5_000_000  # of a table, up to its last row and column
MEMORY_BYTES = 1 << 30
OLE_MARK = b"\xd0\xcf\x11\xe0"  # old formats, and new ones with a password
ENCRYPTED = "EncryptedPackage".encode("utf-16-le")  # [MS-OFFCRYPTO] 2.3.4.4
PASSWORD = "it is protected with a password: ask the person for it, or for a copy without one"  # noqa: S105  a sentence
OLD_FORMAT = "it is a file of Office 2003 or earlier with a new name: name it .doc, .xls or .ppt, and read it again"
DOCUMENT_TYPE = "one of its parts declares a document type, which such files never do"
PIECE_BYTES = 1 << 20


class DocumentUnreadable(Exception):
    """The text is for the model."""


class PartUnreadable(DocumentUnreadable):
    """One part of a document is damaged or too large; what does not need it can be read."""


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


class DocumentArchive(zipfile.ZipFile):
    """A zip that finds parts whatever the case of their names (ISO/IEC 29500-2 §6.2.2), and knows how much was read."""

    read_bytes = 0
    places: dict[str, zipfile.ZipInfo]

    def find(self, name: str) -> zipfile.ZipInfo | None:
        """Return a part. Some programs of Windows write `\\` in its name."""
        return self.places.get(name.lower())


def open_archive(path: str) -> DocumentArchive:
    """Open a zip with a sane number of files, which have a sane size together. Raises DocumentUnreadable."""
    with open(path, "rb") as file:
        if file.read(len(OLE_MARK)) == OLE_MARK:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                raise DocumentUnreadable(PASSWORD if content.find(ENCRYPTED) >= 0 else OLD_FORMAT)
    archive = DocumentArchive(path)
    entries = archive.infolist()
    if len(entries) > MAX_ENTRIES:
        raise DocumentUnreadable(f"it has more than {MAX_ENTRIES:,} files")
    if sum(entry.file_size for entry in entries) > MAX_UNPACKED_BYTES:
        raise DocumentUnreadable(f"unpacked, it is larger than {MAX_UNPACKED_BYTES >> 20} MB")
    archive.places = {entry.filename.replace("\\", "/").lower(): entry for entry in entries}
    return archive


def member_pieces(archive: DocumentArchive, name: str) -> Iterator[bytes]:
    """Yield a file of an archive piece by piece; nothing if it is missing. Raises DocumentUnreadable."""
    part = archive.find(name)
    if part is None:
        return
    try:
        with archive.open(part) as file:
            while piece := file.read(PIECE_BYTES):
                archive.read_bytes += len(piece)
                if archive.read_bytes > MAX_READ_BYTES:
                    raise DocumentUnreadable("it refers to its parts too often; read parts of it with a program")
                yield piece
    except RuntimeError as error:  # encrypted; a kind of compression that nobody uses
        raise DocumentUnreadable(PASSWORD if "password" in str(error) else f"it is damaged ({error})") from error
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise PartUnreadable(f"its part {name[:100]} is damaged ({error})") from error


def read_member(archive: DocumentArchive, name: str) -> bytes:
    """Return a file of an archive, b"" if it is missing. Raises PartUnreadable if it is too large."""
    pieces, size = [], 0
    for piece in member_pieces(archive, name):
        size += len(piece)
        if size > MAX_MEMBER_BYTES:
            raise PartUnreadable(f"its part {name[:100]} is larger than {MAX_MEMBER_BYTES >> 20} MB")
        pieces.append(piece)
    return b"".join(pieces)


MAX_LEVELS = 60  # of nested elements that are followed


def parse_xml(data: bytes) -> ElementTree.Element:
    """Parse a part of a document; an empty element if it is missing. Raises DocumentUnreadable."""
    if not data.strip():
        return ElementTree.Element("nothing")
    check_prolog(data)
    try:
        return ElementTree.fromstring(data)  # noqa: S314  without a document type, and inside a sandbox
    except ElementTree.ParseError as error:
        raise PartUnreadable(f"one of its parts is damaged ({error})") from error


def side_part(archive: DocumentArchive, name: str) -> tuple[ElementTree.Element, str]:
    """Parse a part that a document can be read without. Returns an empty element and a remark if it is unreadable."""
    try:
        return parse_xml(read_member(archive, name)), ""
    except PartUnreadable as error:
        return ElementTree.Element("nothing"), left_out(error)


def left_out(error: PartUnreadable) -> str:
    """Return the remark that stands where a part would be."""
    return f"[left out: {error}]"


class _RootSeen(Exception):
    """The part of an XML file that can declare something is over."""


def refuse_document_type(*_: Any) -> None:
    raise DocumentUnreadable(DOCUMENT_TYPE)


def check_prolog(data: bytes) -> None:
    """Raise DocumentUnreadable for a document type, in whatever encoding: entities could grow without end."""
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler, parser.StartElementHandler = refuse_document_type, _end_prolog
    try:
        parser.Parse(data, True)
    except (_RootSeen, expat.ExpatError):  # what is wrong with it, the next parser says
        return


def _end_prolog(*_: Any) -> None:
    raise _RootSeen


def local(node: ElementTree.Element) -> str:
    """Return the name of an element without its namespace: strict documents have others."""
    tag = node.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def value_of(node: ElementTree.Element, name: str) -> str:
    """Return an attribute, whatever its namespace."""
    return next((value for key, value in node.items() if key.rpartition("}")[2] == name), "")


def related(archive: DocumentArchive, part: str) -> dict[str, tuple[str, str]]:
    """Return what a part refers to inside the archive: relation id → (last word of its type, name)."""
    folder, _, base = part.rpartition("/")
    found = {}
    for node in parse_xml(read_member(archive, posixpath.join(folder, "_rels", f"{base}.rels"))):
        if node.get("TargetMode") != "External":
            target = posixpath.normpath(posixpath.join("/" + folder, node.get("Target", ""))).lstrip("/")
            found[node.get("Id", "")] = (node.get("Type", "").rpartition("/")[2], target)
    return found


def main_part(archive: DocumentArchive, usual: str) -> str:
    """Return the name of the part with the document itself. Raises DocumentUnreadable for another kind of zip."""
    name = next((name for kind, name in related(archive, "").values() if kind == "officeDocument"), usual)
    if archive.find(name) is None:
        raise DocumentUnreadable("it is no Office file, whatever its name says")
    return name


def count_text(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + "s" * (count != 1)


def table_line(cells: Iterable[str]) -> str:
    """Return a row of a Markdown table."""
    line = " | ".join([cell.strip().replace("|", "\\|") for cell in cells])
    return "| " + re.sub("\n+", "<br>", line) + " |\n"


def table_lines(rows: Iterable[list[str]], width: int) -> Iterator[str]:
    """Yield a Markdown table."""
    for number, row in enumerate(rows):
        yield table_line(row + [""] * (width - len(row)))
        if number == 0:
            yield "|" + " --- |" * width + "\n"
    yield "\n"


def list_table(rows: list[list[str]]) -> Iterator[str]:
    return table_lines(rows, max(map(len, rows), default=0))
