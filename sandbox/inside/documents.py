"""Turn documents into text with marks of pages, sheets and slides. Runs in the sandbox as a script of its own.

    python3 - describe FILE SECONDS   prints JSON: {"description"}
    python3 - convert FILE SECONDS    writes the text to a file; prints {"path", "description", "chars", "outline"}

Errors are {"error"}. A parser that the sandbox lacks is named there. Standard library only, Python 3.9+: the parsers
are packages of the image, imported by name, and the other modules come with the script (`agent/parsing/documents.py`).
"""

from __future__ import annotations

import csv
import datetime
import hashlib
import importlib
import io
import itertools
import json
import os
import posixpath
import re
import sys
import tarfile
import tempfile
import urllib.parse
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sandbox.inside import archives as bounds
from sandbox.inside.archives import count_text, left_out, list_table, table_lines
from sandbox.inside.letters import (
    convert_mail,
    convert_rtf,
    describe_mail,
    describe_old,
    describe_rtf,
    html_text,
    old_reader,
    read_bytes,
)
from sandbox.inside.office import convert_docx, convert_odf, convert_pptx, describe_docx, describe_odf, describe_pptx
from sandbox.inside.packed import SUFFIXES, CannotUnpack, Unpacked, packing_of
from sandbox.inside.sheets import column_letters, convert_book, describe_book
from sandbox.inside.text_encoding import CANDIDATES, decode_text, find_codec

TEXT_FOLDER = "/mnt/user-data/workspace/.documents"
MAX_CHARS = 20_000_000
MAX_OUTLINE = 40
REST_LEFT_OUT = "\n[the rest is left out]\n"
TOO_SLOW = "\n[the rest is left out: reading it takes too long]\n"


def load_parser(module: str, package: str) -> Any:
    """Import a parser. Raises DocumentUnreadable with the fix."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise bounds.DocumentUnreadable(
            f"the sandbox lacks {package}: `pip install {package}` if it has a network; otherwise tell the person that"
            " an operator can rebuild the sandbox image with `fawn sandbox build`"
        ) from None


# ---------------------------------------------------------------- PDF


def describe_pdf(path: str) -> str:
    return f"PDF, {count_text(len(pdf_document(path)), 'page')}"


def pdf_document(path: str) -> Any:
    pdfium = load_parser("pypdfium2", "pypdfium2")
    try:
        return pdfium.PdfDocument(path)
    except pdfium.PdfiumError as error:
        raise bounds.DocumentUnreadable("the PDF is damaged, or it needs a password") from error


def convert_pdf(path: str) -> Iterator[str]:
    document = pdf_document(path)
    for number in range(len(document)):
        page = document[number]
        text = page.get_textpage().get_text_range().replace("\r\n", "\n").strip()
        yield f"[page {number + 1} of {len(document)}]\n{text or '[no text: the page is a picture]'}\n\n"
        page.close()


# ---------------------------------------------------------------- tables


def is_package(path: str) -> bool:
    """Return whether a spreadsheet has the format of Excel 2007, whatever its name says of its age."""
    with open(path, "rb") as file:
        return file.read(2) == b"PK"


def open_book(path: str) -> Any:
    """Open a spreadsheet of another format. Raises DocumentUnreadable, also for a password."""
    if is_package(path):
        with bounds.open_archive(path) as archive:  # before any library opens it
            if b"encryption-data" in bounds.read_member(archive, "META-INF/manifest.xml"):
                raise bounds.DocumentUnreadable(bounds.PASSWORD)
    return load_parser("python_calamine", "python-calamine").CalamineWorkbook.from_path(path)


def describe_sheets(path: str) -> str:
    book = open_book(path)
    sheets = [f"{name} ({count_text(book.get_sheet_by_name(name).height, 'row')})" for name in book.sheet_names[:10]]
    more = ", …" * (len(book.sheet_names) > len(sheets))
    return f"spreadsheet, {count_text(len(book.sheet_names), 'sheet')}: {', '.join(sheets)}{more}"


def convert_sheets(path: str) -> Iterator[str]:
    """Yield the stored values. A cell whose formula was never calculated is empty."""
    book = open_book(path)
    for name in book.sheet_names:
        rows = book.get_sheet_by_name(name).to_python(skip_empty_area=False)
        yield f"## {name} ({count_text(len(rows), 'row')})\n\n"
        letters = [column_letters(column) for column in range(1, max((len(row) for row in rows), default=0) + 1)]
        numbered = ([str(n), *map(cell_text, row)] for n, row in enumerate(rows, 1) if any(cell != "" for cell in row))
        yield from table_lines(itertools.chain([["row", *letters]], numbered), len(letters) + 1)


def describe_old_sheets(path: str) -> str:
    return describe_book(path) if is_package(path) else describe_sheets(path)


def convert_old_sheets(path: str) -> Iterator[str]:
    return convert_book(path) if is_package(path) else convert_sheets(path)


def cell_text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.isoformat() if isinstance(value, (datetime.date, datetime.time)) else str(value)


# ---------------------------------------------------------------- text formats and archives


def read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(bounds.MAX_MEMBER_BYTES)


def csv_rows(path: str) -> tuple[list[list[str]], bool, str]:
    """Return the rows, whether these are all, and the encoding in words, "" for UTF-8."""
    text, codec = decode_text(read_file(path))
    try:
        dialect: Any = csv.Sniffer().sniff(text[:20_000], ",;\t|")
    except csv.Error:
        dialect = "excel"
    rows: list[list[str]] = []
    cells, width = 0, 0
    encoding = "" if codec == "utf-8" else f", read as {codec}"
    for row in csv.reader(io.StringIO(text, newline=""), dialect):
        cells, width = cells + len(row), max(width, len(row))
        if max(cells, width * len(rows)) > bounds.MAX_CELLS:
            return rows, False, encoding
        rows.append(row)
    return rows, os.stat(path).st_size <= bounds.MAX_MEMBER_BYTES, encoding


def describe_csv(path: str) -> str:
    rows, is_all, encoding = csv_rows(path)
    height = ("" if is_all else "more than ") + count_text(len(rows), "row")
    return f"table, {height}, {count_text(max(map(len, rows), default=0), 'column')}{encoding}"


def convert_csv(path: str) -> Iterator[str]:
    rows, is_all, _encoding = csv_rows(path)
    yield from list_table(rows)
    if not is_all:
        yield REST_LEFT_OUT


def describe_html(path: str) -> str:
    title = re.search(r"<title[^<>]*>([^<]{1,200})", decode_text(read_file(path), markup=True)[0], re.IGNORECASE)
    return "web page" + (f", “{' '.join(title[1].split())}”" if title else "")


def convert_html(path: str) -> Iterator[str]:
    yield html_text(decode_text(read_file(path), markup=True)[0])


def epub_chapters(archive: bounds.DocumentArchive) -> list[str]:
    """Return the chapters' files in the order of reading (EPUB 3.3 §5)."""
    rootfile = re.search(rb'full-path="([^"]+)"', bounds.read_member(archive, "META-INF/container.xml"))
    if not rootfile:
        raise bounds.DocumentUnreadable("it is not an EPUB book")
    opf = rootfile[1].decode()
    package = bounds.read_member(archive, opf).decode("utf-8", "replace")
    items = (
        dict(re.findall(r'(?<![\w-])([\w-]+)="([^"]*)"', tag))
        for tag in re.findall(r"<(?:\w+:)?item\s[^<>]*>", package)
    )
    files = {item.get("id"): urllib.parse.unquote(item.get("href", "")) for item in items}
    order = re.findall(r'<(?:\w+:)?itemref\s[^<>]*idref="([^"]+)"', package)
    return [
        posixpath.normpath(posixpath.join(posixpath.dirname(opf), files[each])) for each in order if files.get(each)
    ]


def describe_epub(path: str) -> str:
    with bounds.open_archive(path) as archive:
        return f"book (EPUB), {count_text(len(epub_chapters(archive)), 'chapter')}"


def convert_epub(path: str) -> Iterator[str]:
    with bounds.open_archive(path) as archive:
        chapters = epub_chapters(archive)
        for number, name in enumerate(chapters, 1):
            try:
                text = html_text(decode_text(bounds.read_member(archive, name), markup=True)[0])
            except bounds.PartUnreadable as error:
                text = left_out(error)
            yield f"[chapter {number} of {len(chapters)}]\n{text}\n"


def describe_zip(path: str) -> str:
    with zipfile.ZipFile(path) as archive:
        files = [entry for entry in archive.infolist() if not entry.is_dir()]
    return f"archive, {count_text(len(files), 'file')}, {sum(each.file_size for each in files):,} bytes unpacked"


def convert_zip(path: str) -> Iterator[str]:
    with zipfile.ZipFile(path) as archive:
        for entry, name in named_entries(archive.infolist()):
            year, month, day = entry.date_time[:3]
            yield f"{entry.file_size:>12,}  {year}-{month:02}-{day:02}  {name}\n"


def named_entries(entries: Sequence[zipfile.ZipInfo]) -> Iterator[tuple[zipfile.ZipInfo, str]]:
    """Yield the files of an archive with their names: without the flag of UTF-8, they are in a system's encoding."""
    plain = [entry.filename for entry in entries if not entry.flag_bits & 0x800]
    raw = "\n".join(plain).encode("cp437", "replace")  # what Python has taken them for
    text, codec = decode_text(raw)
    dos, cyrillic = raw.decode("cp866"), CANDIDATES["cp1251"]
    if cyrillic(dos) > max(0.6, cyrillic(text)):
        text = dos
    elif codec == "cp1252":  # which ZIP programs of Windows never write
        text = raw.decode("cp437")
    read = iter(text.split("\n"))
    for entry in entries:
        yield entry, entry.filename if entry.flag_bits & 0x800 else next(read, entry.filename)


TAR_MARK = b"ustar"  # at byte 257
TAR_HEAD_BYTES = 512
BROKEN_OFF = "\n[the rest is left out: the file is damaged or incomplete]\n"
NOT_PACKED = "it is not packed as its name says, or it is damaged"


def describe_packed(path: str) -> str:
    with open(path, "rb") as file:
        packing, unpacked = open_unpacked(file)
        head = unpacked.read(MAX_HEAD_BYTES)
    if is_tar(head) or (find_codec(head) and not inner_suffix(path)):
        return f"{'archive (tar)' if is_tar(head) else 'text'}, packed with {packing}"
    with unpacked_copy(path) as (copy, _is_whole):
        return f"{find_reader(copy)[0](copy)}, packed with {packing}"


def convert_packed(path: str) -> Iterator[str]:
    with open(path, "rb") as file:
        _packing, unpacked = open_unpacked(file)
        is_archive = is_tar(unpacked.read(TAR_HEAD_BYTES))
    if is_archive:
        yield from convert_tar(path)
        return
    with unpacked_copy(path) as (copy, is_whole):
        reader = find_reader(copy)
        yield from reader[1](copy)
    if not is_whole:
        yield BROKEN_OFF


def open_unpacked(file: Any) -> tuple[str, Unpacked]:
    """Return the program that has packed a file, and its content. Raises DocumentUnreadable."""
    packing = packing_of(file.read(MAX_HEAD_BYTES))
    file.seek(0)
    if not packing:
        raise bounds.DocumentUnreadable(NOT_PACKED)
    try:
        return packing, Unpacked(file, packing)
    except CannotUnpack as error:
        raise bounds.DocumentUnreadable(str(error)) from error


def inner_suffix(path: str) -> str:
    """Return the suffix of what is packed, if a document has it."""
    root, suffix = os.path.splitext(path)
    inner = os.path.splitext(root)[1].lower() if suffix.lower() in SUFFIXES else ""
    return inner if inner in READERS else ""


@contextmanager
def unpacked_copy(path: str) -> Iterator[tuple[str, bool]]:
    """Yield the path of the unpacked content, as far as it is read, and whether it is whole. Raises DocumentUnreadable.

    What was packed twice is not unpacked again.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, f"content{inner_suffix(path)}")
        with open(path, "rb") as file, open(copy, "wb") as out:
            _packing, unpacked = open_unpacked(file)
            while out.tell() < bounds.MAX_MEMBER_BYTES and (piece := unpacked.read(bounds.PIECE_BYTES)):
                out.write(piece)
            is_whole = not unpacked.read(1) and not unpacked.is_damaged
        with open(copy, "rb") as file:
            head = file.read(MAX_HEAD_BYTES)
        if not head:
            raise bounds.DocumentUnreadable("it is empty, or damaged from its beginning on")
        if packing_of(head):
            raise bounds.DocumentUnreadable("it was packed twice: unpack it with a program")
        yield copy, is_whole


def is_tar(head: bytes) -> bool:
    return head[257:262] == TAR_MARK


def describe_tar(_path: str) -> str:
    return "archive (tar)"


def convert_tar(path: str) -> Iterator[str]:
    """Yield the files of an archive, which may be packed. What is no archive, or breaks off, ends with a remark."""
    with open(path, "rb") as file:
        is_packed = packing_of(file.read(MAX_HEAD_BYTES))
        file.seek(0)
        source: Any = open_unpacked(file)[1] if is_packed else file
        try:
            with tarfile.open(fileobj=source, mode="r|") as archive:
                for entry in itertools.islice(archive, bounds.MAX_ENTRIES):
                    if entry.isfile():
                        day = datetime.datetime.fromtimestamp(max(0, entry.mtime), datetime.UTC)
                        yield f"{entry.size:>12,}  {day:%Y-%m-%d}  {entry.name}\n"
        except (tarfile.TarError, EOFError, ValueError, OSError):
            yield BROKEN_OFF


Reader = tuple[Callable[[str], str], Callable[[str], Iterator[str]]]
READERS: dict[str, Reader] = {
    ".pdf": (describe_pdf, convert_pdf),
    **dict.fromkeys((".docx", ".docm"), (describe_docx, convert_docx)),
    **dict.fromkeys((".xlsx", ".xlsm"), (describe_book, convert_book)),
    **dict.fromkeys((".xlsb", ".ods"), (describe_sheets, convert_sheets)),
    ".xls": (describe_old_sheets, convert_old_sheets),
    **dict.fromkeys((".pptx", ".pptm", ".ppsx"), (describe_pptx, convert_pptx)),
    **dict.fromkeys((".odt", ".odp"), (describe_odf, convert_odf)),
    ".rtf": (describe_rtf, convert_rtf),
    ".eml": (describe_mail, convert_mail),
    ".doc": (describe_old, old_reader("docx", convert_docx)),
    ".ppt": (describe_old, old_reader("pptx", convert_pptx)),
    ".epub": (describe_epub, convert_epub),
    ".zip": (describe_zip, convert_zip),
    ".tar": (describe_tar, convert_tar),
    **dict.fromkeys(SUFFIXES, (describe_packed, convert_packed)),
    **dict.fromkeys((".csv", ".tsv"), (describe_csv, convert_csv)),
    **dict.fromkeys((".html", ".htm"), (describe_html, convert_html)),
}
"""The functions that describe and convert a file, by its suffix."""


# ---------------------------------------------------------------- which reader


MAX_HEAD_BYTES = 8192
BINARY = "it is a binary file in no format that is read as text; inspect it with a program"
PARTS = {  # of a package → the end of its name
    "word/document.xml": ".docx", "xl/workbook.xml": ".xlsx", "xl/workbook.bin": ".xlsb",
    "ppt/presentation.xml": ".pptx", "META-INF/container.xml": ".epub",
}  # fmt: skip
OPEN_TYPES = {b"opendocument.text": ".odt", b"opendocument.spreadsheet": ".ods", b"opendocument.presentation": ".odp"}
OLD_STREAMS = {"WordDocument": ".doc", "Workbook": ".xls", "Book": ".xls", "PowerPoint Document": ".ppt"}
PACKAGES = (".docx", ".docm", ".xlsx", ".xlsm", ".xlsb", ".pptx", ".pptm", ".ppsx", ".odt", ".ods", ".odp", ".epub")
TEXTS = (".csv", ".tsv", ".html", ".htm", ".eml")
MAIL_STARTS = ("mime-version:", "received:", "return-path:", "message-id:", "from:", "date:", "subject:", "x-")


def describe_text(path: str) -> str:
    return f"text, {count_text(len(read_text(path).split()), 'word')}"


def convert_text(path: str) -> Iterator[str]:
    yield read_text(path)


def read_text(path: str) -> str:
    return decode_text(read_bytes(path), markup=True)[0]


def find_reader(path: str) -> Reader:
    """Return the reader that the first bytes ask for; the name decides only between forms of text."""
    suffix = os.path.splitext(path)[1].lower()
    with open(path, "rb") as file:
        head = file.read(MAX_HEAD_BYTES)
    if b"%PDF-" in head[:1024]:
        return READERS[".pdf"]
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return READERS[_package_kind(path, suffix)]
    if head.startswith(bounds.OLE_MARK):
        return READERS[_old_kind(path, suffix)]
    if packing_of(head):
        return READERS[".gz"]
    if is_tar(head):
        return READERS[".tar"]
    if head.lstrip().startswith(b"{\\rtf"):
        return READERS[".rtf"]
    if not head or not (codec := find_codec(head)):
        if head and suffix not in READERS:
            raise bounds.DocumentUnreadable(BINARY)
        return READERS.get(suffix, (describe_text, convert_text))  # it says what is wrong
    if head.startswith(b"PK") and suffix in READERS:
        return READERS[suffix]  # a damaged package
    start = head.decode(codec, "replace").lstrip("\ufeff \r\n\t").lower()
    is_mail = start.startswith(MAIL_STARTS) and ("\nsubject:" in start or "\nmime-version:" in start)
    if suffix not in TEXTS and (is_mail or "\nmime-version:" in start):
        return READERS[".eml"]
    if start.startswith(("<!doctype html", "<html", "<table", "<head", "<body", "<style", "<meta")):
        return READERS[".html"]
    if suffix in TEXTS:
        return READERS[suffix]
    lines = start.splitlines()[:20]
    is_table = suffix in (".xls", ".xlsx", ".xlsm", ".xlsb", ".ods") and any(
        all(sign in line for line in lines[:-1] or lines) for sign in "\t;,"
    )
    return READERS[".csv"] if is_table else (describe_text, convert_text)


def _package_kind(path: str, suffix: str) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist())
            declared = archive.read("mimetype")[:200] if "mimetype" in names else b""
    except (zipfile.BadZipFile, OSError, KeyError, RuntimeError, NotImplementedError):
        return suffix if suffix in PACKAGES else ".zip"  # its reader says what is wrong
    kind = next((end for part, end in PARTS.items() if part in names), "")
    kind = next((end for mark, end in OPEN_TYPES.items() if mark in declared), kind)
    if not kind:
        return suffix if suffix in PACKAGES else ".zip"
    macros = suffix in PACKAGES and suffix[1:4] == kind[1:4] and kind in (".docx", ".xlsx", ".pptx")
    return suffix if macros and suffix in READERS else kind


def _old_kind(path: str, suffix: str) -> str:
    """Return the kind of a compound file by the names in its directory, which are in UTF-16."""
    if suffix in PACKAGES:
        with open(path, "rb") as file:
            if bounds.ENCRYPTED in file.read(bounds.MAX_MEMBER_BYTES):
                return suffix  # its reader says that it has a password
    with open(path, "rb") as file:
        data = file.read(bounds.MAX_MEMBER_BYTES)
    found = [end for name, end in OLD_STREAMS.items() if name.encode("utf-16-le") in data]
    return suffix if suffix in found or (not found and suffix in READERS) else found[0] if found else ".doc"


# ---------------------------------------------------------------- the script


def convert(path: str, reader: Reader, seconds: float) -> dict[str, Any]:
    """Write the text beside a note about it. A file that did not change is converted once."""
    found = os.stat(path)
    mark = hashlib.sha256(f"{os.path.realpath(path)} {found.st_mtime_ns} {found.st_size}".encode()).hexdigest()[:8]
    target = f"{TEXT_FOLDER}/{os.path.basename(path)}.{mark}.md"
    note = f"{target}.json"
    if os.path.exists(note) and os.path.exists(target):
        with open(note, encoding="utf-8") as file:
            return json.load(file)  # type: ignore[no-any-return]  # what is written below
    os.makedirs(TEXT_FOLDER, exist_ok=True)
    draft = f"{target}.{os.getpid()}"
    size, marks = write_text(draft, reader[1](path))
    outline = list(itertools.islice(marks, 0, None, max(1, -(-len(marks) // MAX_OUTLINE))))
    bounds.start_time(seconds)  # again: a text that is written counts, whatever this finds
    try:
        description = reader[0](path)
    except bounds.TimeIsOver:
        description = "a large document"
    answer = {"path": target, "description": description, "chars": size, "outline": outline}
    bounds.start_time(0)
    with open(f"{draft}.json", "w", encoding="utf-8") as file:
        json.dump(answer, file)
    os.replace(draft, target)
    os.replace(f"{draft}.json", note)
    return answer


def write_text(draft: str, parts: Iterator[str]) -> tuple[int, list[str]]:
    """Write a text up to its bounds; return its length, and its headings with their lines."""
    size, line, marks = 0, 1, []
    with open(draft, "w", encoding="utf-8", errors="replace") as file:
        try:
            for part in parts:
                if re.match(r"#{1,3} |\[(page|chapter) ", part):
                    marks.append(f"line {line}: {' '.join(part[:1000].lstrip('#').split())[:100]}")
                file.write(part)
                size, line = size + len(part), line + part.count("\n")
                if size > MAX_CHARS:
                    file.write(REST_LEFT_OUT)
                    break
        except bounds.TimeIsOver:
            if not size:
                raise
            file.write(TOO_SLOW)
    return size, marks


def main(task: str, path: str, limit: str) -> dict[str, Any]:
    """Run a task within so many seconds; return what to print."""
    seconds = float(limit) / 3
    try:
        bounds.set_limits(seconds)
        bounds.start_time(seconds)
        bounds.check_size(path)
        reader = find_reader(path)
        return {"description": reader[0](path)} if task == "describe" else convert(path, reader, seconds)
    except bounds.DocumentUnreadable as error:
        return {"error": str(error)}
    except bounds.TimeIsOver:
        return {"error": f"reading it takes more than {seconds:.0f} s; read parts of it with a program"}
    except MemoryError:
        return {
            "error": f"reading it needs more than {bounds.MEMORY_BYTES >> 20:,} MB; read parts of it with a program"
        }
    except OSError as error:
        return {"error": error.strerror or "it cannot be read"}
    except Exception as error:  # noqa: BLE001  a parser may raise anything for a damaged file
        return {"error": f"it is damaged, or not what its name says ({type(error).__name__})"}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:4])))  # noqa: T201  the answer of the script
