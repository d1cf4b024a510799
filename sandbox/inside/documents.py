"""Turn documents into text with marks of pages, sheets and slides. Runs in the sandbox as a script of its own.

    python3 - describe FILE       prints JSON: {"description"}
    python3 - convert FILE        writes the text to a file; prints JSON: {"path", "description", "chars", "outline"}

Errors are {"error"}. A parser that the sandbox lacks is named there. Standard library only, Python 3.9+: the parsers
are packages of the image, imported by name, and the other modules come with the script (`agent/documents.py`).
"""

from __future__ import annotations

import csv
import datetime
import hashlib
import html.parser
import importlib
import io
import itertools
import json
import os
import posixpath
import re
import sys
import urllib.parse
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

from sandbox.inside.text_encoding import decode_text

TEXT_FOLDER = "/mnt/user-data/workspace/.documents"
MAX_CHARS = 20_000_000
MAX_UNPACKED_BYTES = 300 << 20
MAX_MEMBER_BYTES = 50 << 20  # of one file in an archive
MAX_OUTLINE = 40


class DocumentUnreadable(Exception):
    """The text is for the model."""


def load_parser(module: str, package: str) -> Any:
    """Import a parser. Raises DocumentUnreadable with the fix."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise DocumentUnreadable(
            f"the sandbox lacks {package}: `pip install {package}` if it has a network; otherwise tell the person that"
            " an operator can rebuild the sandbox image with `fawn sandbox build`"
        ) from None


def read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """Return a file of an archive, b"" if it is missing. Raises DocumentUnreadable if it is too large."""
    try:
        with archive.open(name) as file:
            data = file.read(MAX_MEMBER_BYTES + 1)
    except KeyError:
        return b""
    if len(data) > MAX_MEMBER_BYTES:
        raise DocumentUnreadable(f"its part {name} is larger than {MAX_MEMBER_BYTES >> 20} MB")
    return data


def open_archive(path: str) -> zipfile.ZipFile:
    """Open a zip whose files have a sane size together."""
    archive = zipfile.ZipFile(path)
    if sum(entry.file_size for entry in archive.infolist()) > MAX_UNPACKED_BYTES:
        raise DocumentUnreadable(f"unpacked, it is larger than {MAX_UNPACKED_BYTES >> 20} MB")
    return archive


def count_text(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + "s" * (count != 1)


def table_lines(rows: list[list[str]]) -> Iterator[str]:
    """Yield a Markdown table."""
    width = max(map(len, rows), default=0)
    for number, row in enumerate(rows):
        cells = [cell.replace("|", "\\|").replace("\n", "<br>").strip() for cell in row]
        yield "| " + " | ".join(cells + [""] * (width - len(cells))) + " |\n"
        if number == 0:
            yield "|" + " --- |" * width + "\n"
    yield "\n"


# ---------------------------------------------------------------- PDF


def describe_pdf(path: str) -> str:
    return f"PDF, {count_text(len(pdf_document(path)), 'page')}"


def pdf_document(path: str) -> Any:
    pdfium = load_parser("pypdfium2", "pypdfium2")
    try:
        return pdfium.PdfDocument(path)
    except pdfium.PdfiumError as error:
        raise DocumentUnreadable("the PDF is damaged, or it needs a password") from error


def convert_pdf(path: str) -> Iterator[str]:
    document = pdf_document(path)
    for number in range(len(document)):
        page = document[number]
        text = page.get_textpage().get_text_range().replace("\r\n", "\n").strip()
        yield f"[page {number + 1} of {len(document)}]\n{text or '[no text: the page is a picture]'}\n\n"
        page.close()


# ---------------------------------------------------------------- Office


def describe_docx(path: str) -> str:
    with open_archive(path) as archive:
        body = read_member(archive, "word/document.xml")  # the stored number of pages is often wrong
    return f"Word document, {count_text(len(re.findall(rb'<w:p[ >]', body)), 'paragraph')}"


def convert_docx(path: str) -> Iterator[str]:
    package = load_parser("docx", "python-docx")
    table_type = importlib.import_module("docx.table").Table
    document = package.Document(path)
    for section in document.sections[:1]:
        header = " ".join(each.text.strip() for each in section.header.paragraphs if each.text.strip())
        if header:
            yield f"[header] {header}\n\n"
    for block in document.iter_inner_content():
        if isinstance(block, table_type):
            yield from table_lines([[cell.text for cell in row.cells] for row in block.rows])
        elif block.text.strip():
            style = (block.style.name if block.style else "") or ""
            if style.startswith("Heading") or style == "Title":
                yield "#" * (int(style[-1]) if style[-1].isdigit() else 1) + f" {block.text}\n\n"
            else:
                yield f"- {block.text}\n" if style.startswith("List") else f"{block.text}\n\n"


def describe_sheets(path: str) -> str:
    book = load_parser("python_calamine", "python-calamine").CalamineWorkbook.from_path(path)
    sheets = [f"{name} ({count_text(book.get_sheet_by_name(name).height, 'row')})" for name in book.sheet_names[:10]]
    more = ", …" * (len(book.sheet_names) > len(sheets))
    return f"spreadsheet, {count_text(len(book.sheet_names), 'sheet')}: {', '.join(sheets)}{more}"


def convert_sheets(path: str) -> Iterator[str]:
    """Yield the stored values. A cell whose formula was never calculated is empty."""
    book = load_parser("python_calamine", "python-calamine").CalamineWorkbook.from_path(path)
    for name in book.sheet_names:
        rows = book.get_sheet_by_name(name).to_python(skip_empty_area=False)
        numbered = [(number, row) for number, row in enumerate(rows, 1) if any(cell != "" for cell in row)]
        yield f"## {name} ({count_text(len(rows), 'row')})\n\n"
        letters = [column_letters(column) for column in range(max((len(row) for row in rows), default=0))]
        yield from table_lines([["row", *letters], *([str(n), *map(cell_text, row)] for n, row in numbered)])


def column_letters(column: int) -> str:
    return (column_letters(column // 26 - 1) if column >= 26 else "") + chr(65 + column % 26)


def cell_text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.isoformat() if isinstance(value, (datetime.date, datetime.time)) else str(value)


def describe_pptx(path: str) -> str:
    with open_archive(path) as archive:
        slides = [name for name in archive.namelist() if re.fullmatch(r"ppt/slides/slide\d+\.xml", name)]
    return f"presentation, {count_text(len(slides), 'slide')}"


def convert_pptx(path: str) -> Iterator[str]:
    slides = load_parser("pptx", "python-pptx").Presentation(path).slides
    group_type = importlib.import_module("pptx.shapes.group").GroupShape

    def flatten(shapes: Any) -> Iterator[Any]:
        for shape in shapes:
            yield from flatten(shape.shapes) if isinstance(shape, group_type) else (shape,)

    for number, slide in enumerate(slides, 1):
        title = slide.shapes.title
        yield f"## Slide {number}: {title.text if title is not None else ''}\n\n"
        for shape in sorted(flatten(slide.shapes), key=lambda each: (each.top or 0, each.left or 0)):
            if title is not None and shape.shape_id == title.shape_id:
                continue
            if shape.has_text_frame and shape.text_frame.text.strip():
                lines = (f"{'  ' * each.level}- {each.text}\n" for each in shape.text_frame.paragraphs if each.text)
                yield "".join(lines) + "\n"
            elif getattr(shape, "has_table", False):
                yield from table_lines([[cell.text for cell in row.cells] for row in shape.table.rows])
            elif hasattr(shape, "image"):
                yield f"[picture: {shape.name}]\n\n"
        notes = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None
        if notes is not None and notes.text.strip():
            yield f"> Notes: {notes.text}\n\n"


# ---------------------------------------------------------------- text formats and archives


def read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(MAX_MEMBER_BYTES)


def csv_rows(path: str) -> tuple[list[list[str]], str]:
    """Return the rows, and the encoding in words, "" for UTF-8."""
    text, codec = decode_text(read_file(path))
    try:
        dialect: Any = csv.Sniffer().sniff(text[:20_000], ",;\t|")
    except csv.Error:
        dialect = "excel"
    rows = list(csv.reader(io.StringIO(text, newline=""), dialect))
    return rows, "" if codec == "utf-8" else f", read as {codec}"


def describe_csv(path: str) -> str:
    rows, codec = csv_rows(path)
    return f"table, {count_text(len(rows), 'row')}, {count_text(max(map(len, rows), default=0), 'column')}{codec}"


def convert_csv(path: str) -> Iterator[str]:
    return table_lines(csv_rows(path)[0])


class PageText(html.parser.HTMLParser):
    """Collects the text of a page, with its headings, items, cells and links."""

    BLOCKS = re.compile("p|div|section|article|br|tr|table|ul|ol|pre|blockquote|header|footer|figure|dd|dt|h[1-6]")
    HIDDEN = frozenset(("script", "style", "template", "noscript", "svg"))

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.hidden = 0
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hidden += tag in self.HIDDEN
        if re.fullmatch("h[1-6]", tag):
            self.parts.append(f"\n\n{'#' * int(tag[1])} ")
        elif tag == "li":
            self.parts.append("\n- ")
        elif tag in ("td", "th"):
            self.parts.append(" | ")
        elif self.BLOCKS.fullmatch(tag):
            self.parts.append("\n")
        elif tag == "a":
            self.links.append(dict(attrs).get("href") or "")

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag in self.HIDDEN and self.hidden > 0
        if self.BLOCKS.fullmatch(tag):
            self.parts.append("\n")
        elif tag == "a" and self.links:
            target = self.links.pop()
            self.parts.append(f" ({target})" if target.startswith("http") else "")

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.parts.append(re.sub(r"\s+", " ", data))


def html_text(data: bytes) -> str:
    parser = PageText()
    parser.feed(decode_text(data, markup=True)[0])
    parser.close()
    return re.sub(r"\n\s*\n\s*", "\n\n", "".join(parser.parts)).strip() + "\n"


def describe_html(path: str) -> str:
    title = re.search(r"<title[^<>]*>([^<]{1,200})", decode_text(read_file(path), markup=True)[0], re.IGNORECASE)
    return "web page" + (f", “{' '.join(title[1].split())}”" if title else "")


def convert_html(path: str) -> Iterator[str]:
    yield html_text(read_file(path))


def epub_chapters(archive: zipfile.ZipFile) -> list[str]:
    """Return the chapters' files in the order of reading (EPUB 3.3 §5)."""
    rootfile = re.search(rb'full-path="([^"]+)"', read_member(archive, "META-INF/container.xml"))
    if not rootfile:
        raise DocumentUnreadable("it is not an EPUB book")
    opf = rootfile[1].decode()
    package = read_member(archive, opf).decode("utf-8", "replace")
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
    with open_archive(path) as archive:
        return f"book (EPUB), {count_text(len(epub_chapters(archive)), 'chapter')}"


def convert_epub(path: str) -> Iterator[str]:
    with open_archive(path) as archive:
        chapters = epub_chapters(archive)
        for number, name in enumerate(chapters, 1):
            yield f"[chapter {number} of {len(chapters)}]\n{html_text(read_member(archive, name))}\n"


def describe_zip(path: str) -> str:
    with zipfile.ZipFile(path) as archive:
        files = [entry for entry in archive.infolist() if not entry.is_dir()]
    return f"archive, {count_text(len(files), 'file')}, {sum(each.file_size for each in files):,} bytes unpacked"


def convert_zip(path: str) -> Iterator[str]:
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            year, month, day = entry.date_time[:3]
            yield f"{entry.file_size:>12,}  {year}-{month:02}-{day:02}  {entry.filename}\n"


Reader = tuple[Callable[[str], str], Callable[[str], Iterator[str]]]
SHEETS: Reader = (describe_sheets, convert_sheets)
READERS: dict[str, Reader] = {
    ".pdf": (describe_pdf, convert_pdf),
    ".docx": (describe_docx, convert_docx),
    **dict.fromkeys((".xlsx", ".xlsm", ".xls", ".ods"), SHEETS),
    ".pptx": (describe_pptx, convert_pptx),
    ".epub": (describe_epub, convert_epub),
    ".zip": (describe_zip, convert_zip),
    **dict.fromkeys((".csv", ".tsv"), (describe_csv, convert_csv)),
    **dict.fromkeys((".html", ".htm"), (describe_html, convert_html)),
}
"""How to describe and to convert a file, by the end of its name."""
ZIPPED = (".docx", ".xlsx", ".xlsm", ".ods", ".pptx")  # a library unpacks them


# ---------------------------------------------------------------- the script


def convert(path: str, reader: Reader) -> dict[str, Any]:
    """Write the text beside a note about it. A file that did not change is converted once."""
    found = os.stat(path)
    mark = hashlib.sha256(f"{os.path.realpath(path)} {found.st_mtime_ns} {found.st_size}".encode()).hexdigest()[:8]
    target = f"{TEXT_FOLDER}/{os.path.basename(path)}.{mark}.md"
    note = f"{target}.json"
    if os.path.exists(note) and os.path.exists(target):
        with open(note, encoding="utf-8") as file:
            return json.load(file)  # type: ignore[no-any-return]  # what is written below
    os.makedirs(TEXT_FOLDER, exist_ok=True)
    size, line, marks = 0, 1, []
    draft = f"{target}.{os.getpid()}"
    with open(draft, "w", encoding="utf-8", errors="replace") as file:
        for part in reader[1](path):
            if re.match(r"#{1,3} |\[(page|chapter) ", part):
                marks.append(f"line {line}: {' '.join(part.lstrip('#').split())[:100]}")
            file.write(part)
            size, line = size + len(part), line + part.count("\n")
            if size > MAX_CHARS:
                file.write("\n[the rest is left out]\n")
                break
    outline = list(itertools.islice(marks, 0, None, max(1, -(-len(marks) // MAX_OUTLINE))))
    answer = {"path": target, "description": reader[0](path), "chars": size, "outline": outline}
    with open(f"{draft}.json", "w", encoding="utf-8") as file:
        json.dump(answer, file)
    os.replace(draft, target)
    os.replace(f"{draft}.json", note)
    return answer


def main(task: str, path: str) -> dict[str, Any]:
    """Run a task; return what to print."""
    suffix = os.path.splitext(path)[1].lower()
    reader = READERS[suffix]
    try:
        if suffix in ZIPPED:
            open_archive(path).close()  # before any library opens it
        return {"description": reader[0](path)} if task == "describe" else convert(path, reader)
    except DocumentUnreadable as error:
        return {"error": str(error)}
    except OSError as error:
        return {"error": error.strerror or "it cannot be read"}
    except Exception as error:  # noqa: BLE001  a parser may raise anything for a damaged file
        return {"error": f"it is damaged, or not what its name says ({type(error).__name__})"}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2])))  # noqa: T201  the answer of the script
