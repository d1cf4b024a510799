"""Extract the text of a docx, pptx, odt, odp, xlsx or pdf file, with marks for pages, slides and cells.

Office files need only the standard library; Word, PowerPoint and OpenDocument files are read by the modules in
`sandbox/inside`, which are those that Fawn itself reads uploads with (a test compares them). A pdf needs pypdfium2,
pypdf or the program pdftotext.
"""

from __future__ import annotations

import argparse
import csv
import datetime
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
from typing import Any, NamedTuple, NoReturn
from xml.etree import ElementTree

from sandbox.inside.archives import local, main_part, parse_xml, related
from sandbox.inside.document_bounds import DocumentUnreadable, check_cells, open_archive, read_member
from sandbox.inside.office import Piece, convert_odf, docx_pieces, pptx_pieces, value_of_id

EXIT_MISSING_PACKAGE = 3
SHARED = ("sharedStrings", "styles")  # parts that all sheets refer to
DATE_FORMATS = {14, 15, 16, 17, 18, 19, 20, 21, 22, 45, 46, 47}  # built-in number formats of a spreadsheet


class Part(NamedTuple):
    """A page, slide, sheet or whole document: its mark, its text, and the rows of a sheet."""

    mark: str
    text: str
    rows: list[list[Any]] = []  # noqa: RUF012  never changed


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


def date_styles(root: ElementTree.Element) -> set[int]:
    """Return the indexes of the cell styles that show a date or time."""
    custom = {
        int(node.get("numFmtId", "0"))
        for node in root.iter()
        if local(node) == "numFmt"
        and re.search(r"[ymdhs]", re.sub(r'"[^"]*"|\[[^\]]*\]|\\.', "", node.get("formatCode", "").lower()))
    }
    styles = next((node for node in root if local(node) == "cellXfs"), None)
    return {
        index
        for index, node in enumerate(styles if styles is not None else [])
        if int(node.get("numFmtId", "0")) in DATE_FORMATS | custom
    }


def cell_value(cell: ElementTree.Element, shared: list[str], dates: set[int], epoch: datetime.datetime) -> Any:
    kind = cell.get("t", "n")
    text = "".join(node.text or "" for node in cell.iter() if local(node) == ("t" if kind == "inlineStr" else "v"))
    if kind == "s" and text:
        return shared[int(text)]
    if kind == "b":
        return text == "1"
    if kind != "n" or not text:
        return text
    number = float(text)
    if int(cell.get("s", "0")) in dates:
        moment = epoch + datetime.timedelta(seconds=round(number * 86400))
        return moment.date().isoformat() if number % 1 == 0 else moment.isoformat(" ")
    return int(number) if number.is_integer() and abs(number) < 1e15 else number


def column_number(reference: str) -> int:
    """Return the column of a cell, from 1: 3 for C7."""
    number = 0
    for letter in re.match(r"[A-Z]*", reference)[0]:  # type: ignore[index]  # the pattern always matches
        number = number * 26 + ord(letter) - 64
    return number


def column_letters(number: int) -> str:
    letters = ""
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(65 + rest) + letters
    return letters


def sheet_part(
    name: str, root: ElementTree.Element, shared: list[str], dates: set[int], epoch: datetime.datetime
) -> Part:
    rows: list[list[Any]] = []
    lines, width = [], 0
    for row in (node for node in root.iter() if local(node) == "row"):
        number = int(row.get("r", len(rows) + 1))
        values: list[Any] = []
        formulas = []
        for cell in row:
            column = column_number(cell.get("r", "")) or len(values) + 1
            values += [""] * (column - 1 - len(values))
            values.append(cell_value(cell, shared, dates, epoch))
            if formula := next((node.text for node in cell if local(node) == "f" and node.text), None):
                formulas.append(f"{column_letters(column)}{number}={formula}")
        if formulas or any(value != "" for value in values):
            rows += [[] for _ in range(min(number - 1 - len(rows), 1000))]
            rows.append(values)
            width = max(width, len(values))
            lines.append(
                f"{number}: " + "\t".join(map(str, values)) + (f"  [{'; '.join(formulas)}]" if formulas else "")
            )
    area = f"A1:{column_letters(width)}{len(rows)}" if rows else "empty"
    head = "row: " + "\t".join(column_letters(number + 1) for number in range(width))
    return Part(f"sheet {name} {area}", "\n".join([head, *lines]) if rows else "", rows)


def extract_xlsx(path: Path) -> Iterator[Part]:
    with open_archive(str(path)) as archive:
        check_cells(archive)
        main = main_part(archive, "xl/workbook.xml")
        parts = related(archive, main)
        book = parse_xml(read_member(archive, main))
        named = {kind: parse_xml(read_member(archive, name)) for kind, name in parts.values() if kind in SHARED}
        shared = []
        for node in named.get("sharedStrings", ()):
            runs = [item for item in node if local(item) in ("t", "r")]  # not the phonetic hints
            shared.append("".join(item.text or "" for run in runs for item in run.iter() if local(item) == "t"))
        since_1904 = any(local(node) == "workbookPr" and node.get("date1904") in ("1", "true") for node in book)
        epoch = datetime.datetime(1904, 1, 1) if since_1904 else datetime.datetime(1899, 12, 30)  # noqa: DTZ001  a spreadsheet's dates have no zone
        dates = date_styles(named.get("styles", ElementTree.Element("nothing")))
        for node in (node for node in book.iter() if local(node) == "sheet"):
            kind, target = parts.get(value_of_id(node), ("", ""))
            if kind == "worksheet":
                yield sheet_part(node.get("name", ""), parse_xml(read_member(archive, target)), shared, dates, epoch)


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
            target = folder / (re.sub(r"[^\w-]+", "_", part.mark.split(" ", 1)[1].rpartition(" ")[0]) + ".csv")
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
