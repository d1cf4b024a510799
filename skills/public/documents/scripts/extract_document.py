"""Extract the text of a docx, pptx, odt, odp, xlsx or pdf file, with marks for pages, slides and cells.

Office files need only the standard library; the modules in `sandbox/inside` read them, which are those that Fawn
itself reads uploads with (a test compares them). A pdf needs pypdfium2, pypdf or the program pdftotext.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, NoReturn

from sandbox.inside.archives import DocumentUnreadable, open_archive
from sandbox.inside.office import Piece, convert_odf, docx_pieces, pptx_pieces
from sandbox.inside.sheets import Book, Sheet, Value, cell_text, column_letters, filled

EXIT_MISSING_PACKAGE = 3


class Part(NamedTuple):
    """A page, slide, sheet or whole document: its mark, its text, and the name and rows of a sheet."""

    mark: str
    text: str
    sheet: str = ""
    rows: list[list[Value]] = []  # noqa: RUF012  never changed


class MissingPackage(Exception):
    """No program for this format is installed. The text names the package to install."""


class Unreadable(Exception):
    """The file cannot be read. The text says why and what to do."""


def join_pieces(pieces: Iterator[Piece]) -> Iterator[Part]:
    """Yield a part for the pieces of each page, slide or kind of notes."""
    for mark, same in groupby(pieces, lambda piece: piece[0]):
        text = "".join(text for _mark, text in same).strip()
        if text or (mark.startswith("slide") and not mark.endswith("notes")):
            yield Part(mark, text)


def extract_docx(path: Path) -> Iterator[Part]:
    yield from join_pieces(docx_pieces(str(path)))


def extract_pptx(path: Path) -> Iterator[Part]:
    yield from join_pieces(pptx_pieces(str(path)))


def extract_odf(path: Path) -> Iterator[Part]:
    yield Part("whole document", "".join(convert_odf(str(path))).strip())


def sheet_part(book: Book, sheet: Sheet) -> Part:
    rows: list[list[Value]] = []
    lines, width = [], 0
    for row, values in filled(book.rows(sheet)):
        rows += [[] for _ in range(min(row.number - 1 - len(rows), 1000))]
        rows.append(values)
        width = max(width, len(values))
        formulas = [f"{column_letters(column)}{row.number}={text}" for column, text in row.formulas.items()]
        more = f"  [{'; '.join(formulas)}]" if formulas else ""
        lines.append(f"{row.number}: " + "\t".join(map(cell_text, values)) + more)
    head = "row: " + "\t".join(map(column_letters, range(1, width + 1)))
    text = [*((head, *lines) if rows else ()), *book.remarks(sheet)]
    hidden = " (hidden)" * sheet.hidden
    area = f"A1:{column_letters(width)}{len(rows)}" if rows else "chart" if sheet.kind == "chartsheet" else "empty"
    return Part(f"sheet {sheet.name} {area}{hidden}", "\n".join(text), sheet.name, rows)


def extract_xlsx(path: Path) -> Iterator[Part]:
    with open_archive(str(path)) as archive:
        book = Book(archive)
        for sheet in book.sheets:
            yield sheet_part(book, sheet)


def pdf_texts(path: Path) -> list[str]:
    """Return the text of each page, by the first reader that is installed."""
    for name in ("pypdfium2", "pypdf"):
        try:
            reader = importlib.import_module(name)
        except ImportError:
            continue
        if name == "pypdf":
            return [page.extract_text() for page in reader.PdfReader(path).pages]
        with reader.PdfDocument(path) as document:
            return [page.get_textpage().get_text_bounded().replace("\r\n", "\n") for page in document]
    if shutil.which("pdftotext"):
        done = subprocess.run(["pdftotext", "-layout", str(path), "-"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unreadable(f"pdftotext: {done.stderr.strip()}")
        return done.stdout.split("\f")[:-1]
    raise MissingPackage("pypdfium2")


def extract_pdf(path: Path) -> Iterator[Part]:
    hint = "(no text: a scanned or drawn page; make a picture with `pdftoppm -r 100 -png` and look at it)"
    for number, text in enumerate(pdf_texts(path), 1):
        yield Part(f"page {number}", text.strip() or hint)


READERS: dict[str, Callable[[Path], Iterator[Part]]] = {
    **dict.fromkeys((".docx", ".docm"), extract_docx),
    **dict.fromkeys((".pptx", ".pptm", ".ppsx"), extract_pptx),
    **dict.fromkeys((".odt", ".odp"), extract_odf),
    **dict.fromkeys((".xlsx", ".xlsm"), extract_xlsx),
    ".pdf": extract_pdf,
}


def fail(reason: str, missing: list[str], code: int) -> NoReturn:
    """Print what is wrong as JSON, and exit."""
    print(
        json.dumps({"error": reason, "missing": missing, "fix": f"pip install {' '.join(missing)}" if missing else ""})
    )
    sys.exit(code)


def write_sheets(parts: list[Part], folder: Path) -> list[str]:
    """Write one CSV file per sheet. Returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for part in parts:
        if part.rows:
            target = folder / (re.sub(r"[^\w-]+", "_", part.sheet) + ".csv")
            with target.open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows(part.rows)
            written.append(str(target))
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--json", action="store_true", help="print [{mark, text}, …]")
    parser.add_argument("--csv", type=Path, metavar="FOLDER", help="of a spreadsheet: write one CSV file per sheet")
    parser.add_argument("--find", metavar="REGEX", help="only parts that match, ignoring case")
    options = parser.parse_args()
    reader = READERS.get(options.file.suffix.lower())
    if not reader:
        fail(f"{options.file.suffix or 'A file without suffix'} is not supported; use {' '.join(READERS)}.", [], 2)
    try:
        parts = list(reader(options.file))
    except MissingPackage as missing:
        fail(f"Nothing that reads {options.file.suffix} files is installed.", [str(missing)], EXIT_MISSING_PACKAGE)
    except zipfile.BadZipFile:
        fail(f"{options.file.name} is not an Office file: it is damaged, or an old format with a new name.", [], 1)
    except (Unreadable, DocumentUnreadable, OSError, KeyError, ValueError) as error:
        fail(f"{options.file.name}: {error}", [], 1)
    if options.csv:
        print(json.dumps({"written": write_sheets(parts, options.csv)}))
        return
    if options.find:
        parts = [part for part in parts if re.search(options.find, part.text, re.IGNORECASE)]
    if options.json:
        print(json.dumps([{"mark": part.mark, "text": part.text} for part in parts], ensure_ascii=False))
    else:
        print("\n\n".join(f"[{part.mark}]\n{part.text}" for part in parts))


if __name__ == "__main__":
    main()
