"""Extract the text of a docx, pptx, xlsx or pdf file, with marks for pages, slides and cells.

Office files need only the standard library. A pdf needs pypdfium2, pypdf or the program pdftotext.
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
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from xml.etree import ElementTree

MAX_PART_BYTES = 100 << 20  # of one XML part, unpacked
EXIT_MISSING_PACKAGE = 3
DATE_FORMATS = {14, 15, 16, 17, 18, 19, 20, 21, 22, 45, 46, 47}  # built-in number formats of a spreadsheet
RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"


class Part(NamedTuple):
    """A page, slide, sheet or whole document: its mark, its text, and the rows of a sheet."""

    mark: str
    text: str
    rows: list[list[Any]] = []  # noqa: RUF012  never changed


class MissingPackage(Exception):
    """No program for this format is installed. The text names the package to install."""


class Unreadable(Exception):
    """The file cannot be read. The text says why and what to do."""


def local_name(node: ElementTree.Element) -> str:
    return node.tag.rpartition("}")[2]


def attribute(node: ElementTree.Element, name: str) -> str:
    """Return an attribute, whatever its namespace."""
    return next((value for key, value in node.items() if key.rpartition("}")[2] == name), "")


class OfficeFile:
    """The XML parts of a docx, pptx or xlsx file."""

    def __init__(self, path: Path) -> None:
        try:
            self._zip = zipfile.ZipFile(path)
        except zipfile.BadZipFile as error:
            raise Unreadable(
                f"{path.name} is not an Office file: {error}. It may be encrypted or an old format."
            ) from error
        self.names = self._zip.namelist()

    def part(self, name: str) -> ElementTree.Element:
        if self._zip.getinfo(name).file_size > MAX_PART_BYTES:
            raise Unreadable(f"{name} is larger than {MAX_PART_BYTES >> 20} MB.")
        data = self._zip.read(name)
        if b"<!DOCTYPE" in data[:4096]:
            raise Unreadable(f"{name} declares a document type, which Office files never do.")
        return ElementTree.fromstring(data)

    def targets(self, name: str) -> dict[str, str]:
        """Return the parts that a part refers to, by relation id."""
        folder, _, base = name.rpartition("/")
        relations = f"{folder}/_rels/{base}.rels"
        if relations not in self.names:
            return {}
        found = {}
        for node in self.part(relations):
            steps: list[str] = []
            target = node.get("Target", "")
            for step in (target if target.startswith("/") else f"{folder}/{target}").split("/"):
                if step == ".." and steps:
                    steps.pop()
                elif step not in ("", "."):
                    steps.append(step)
            found[node.get("Id", "")] = "/".join(steps)
        return found


def markdown_table(rows: list[list[str]]) -> str:
    if not rows:
        return ""
    width = max(map(len, rows))
    lines = [
        "| "
        + " | ".join([cell.replace("|", "\\|").replace("\n", " ") for cell in row] + [""] * (width - len(row)))
        + " |"
        for row in rows
    ]
    return "\n".join([lines[0], "|" + " --- |" * width, *lines[1:]])


def word_text(node: ElementTree.Element) -> str:
    """Return the text of a paragraph; a page break becomes a form feed. Deleted text is left out."""
    pieces = []
    for item in node.iter():
        name = local_name(item)
        if name == "t":
            pieces.append(item.text or "")
        elif name == "tab":
            pieces.append("\t")
        elif name == "lastRenderedPageBreak" or (name == "br" and attribute(item, "type") == "page"):
            pieces.append("\f")
        elif name in ("br", "cr"):
            pieces.append("\n")
    return "".join(pieces)


def word_paragraph(node: ElementTree.Element) -> str:
    style, numbered = "", False
    for item in node.iter():
        if local_name(item) == "pStyle":
            style = attribute(item, "val")
        numbered = numbered or local_name(item) == "numPr"
    text = word_text(node)
    heading = re.match(r"Heading ?([1-6])$|(Title)$", style)
    if heading and text.strip():
        return f"{'#' * int(heading[1] or 1)} {text}"
    return f"- {text}" if numbered or style.startswith("List") else text


def extract_docx(path: Path) -> Iterator[Part]:
    office = OfficeFile(path)
    body = next(node for node in office.part("word/document.xml") if local_name(node) == "body")
    blocks = []
    for node in body:
        if local_name(node) == "p":
            blocks.append(word_paragraph(node))
        elif local_name(node) == "tbl":
            rows = [row for row in node if local_name(row) == "tr"]
            blocks.append(
                markdown_table([[word_text(cell).strip() for cell in row if local_name(cell) == "tc"] for row in rows])
            )
        elif local_name(node) == "sdt":
            blocks += [word_paragraph(item) for item in node.iter() if local_name(item) == "p"]
    pages = "\n\n".join(block for block in blocks if block.strip(" \n")).split("\f")
    pages = [page for page in pages if page.strip()] or [""]
    yield from (Part(f"page {number}", page.strip()) for number, page in enumerate(pages, 1))
    for name in sorted(office.names):
        kind = re.fullmatch(r"word/((?:header|footer|footnotes|endnotes|comments)\d*)\.xml", name)
        texts = [word_text(node).strip() for node in office.part(name)] if kind else []
        if kind and any(texts):
            yield Part(kind[1], "\n".join(text for text in texts if text))


def slide_text(root: ElementTree.Element) -> str:
    blocks = []
    for shape in root.iter():
        if local_name(shape) == "sp":
            lines = [
                "".join(item.text or "" for item in line.iter() if local_name(item) == "t")
                for line in shape.iter()
                if local_name(line) == "p"
            ]
            title = any(local_name(item) == "ph" and "itle" in attribute(item, "type") for item in shape.iter())
            text = "\n".join(line for line in lines if line.strip())
            blocks.append(f"# {text}" if title and text else text)
        elif local_name(shape) == "tbl":
            rows = [row for row in shape if local_name(row) == "tr"]
            blocks.append(
                markdown_table(
                    [
                        [
                            "".join(item.text or "" for item in cell.iter() if local_name(item) == "t")
                            for cell in row
                            if local_name(cell) == "tc"
                        ]
                        for row in rows
                    ]
                )
            )
    return "\n\n".join(block for block in blocks if block)


def extract_pptx(path: Path) -> Iterator[Part]:
    office = OfficeFile(path)
    main = "ppt/presentation.xml"
    targets = office.targets(main)
    order = [
        targets[attribute_id]
        for node in office.part(main).iter()
        if local_name(node) == "sldId" and (attribute_id := node.get(f"{RELATION}id", ""))
    ]
    for number, name in enumerate(order, 1):
        yield Part(f"slide {number}", slide_text(office.part(name)))
        for target in office.targets(name).values():
            if "notesSlide" in target and (notes := slide_text(office.part(target))):
                yield Part(f"slide {number} notes", notes)


def date_styles(office: OfficeFile) -> set[int]:
    """Return the indexes of the cell styles that show a date or time."""
    if "xl/styles.xml" not in office.names:
        return set()
    root = office.part("xl/styles.xml")
    custom = {
        int(node.get("numFmtId", "0"))
        for node in root.iter()
        if local_name(node) == "numFmt"
        and re.search(r"[ymdhs]", re.sub(r'"[^"]*"|\[[^\]]*\]|\\.', "", node.get("formatCode", "").lower()))
    }
    styles = next((node for node in root if local_name(node) == "cellXfs"), None)
    return {
        index
        for index, node in enumerate(styles if styles is not None else [])
        if int(node.get("numFmtId", "0")) in DATE_FORMATS | custom
    }


def cell_value(cell: ElementTree.Element, shared: list[str], dates: set[int], epoch: datetime.datetime) -> Any:
    kind = cell.get("t", "n")
    text = "".join(node.text or "" for node in cell.iter() if local_name(node) == ("t" if kind == "inlineStr" else "v"))
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
    for row in (node for node in root.iter() if local_name(node) == "row"):
        number = int(row.get("r", len(rows) + 1))
        values: list[Any] = []
        formulas = []
        for cell in row:
            column = column_number(cell.get("r", "")) or len(values) + 1
            values += [""] * (column - 1 - len(values))
            values.append(cell_value(cell, shared, dates, epoch))
            if formula := next((node.text for node in cell if local_name(node) == "f" and node.text), None):
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
    office = OfficeFile(path)
    book = office.part("xl/workbook.xml")
    shared = []
    if "xl/sharedStrings.xml" in office.names:
        for node in office.part("xl/sharedStrings.xml"):
            runs = [item for item in node if local_name(item) in ("t", "r")]  # not the phonetic hints
            shared.append("".join(item.text or "" for run in runs for item in run.iter() if local_name(item) == "t"))
    since_1904 = any(local_name(node) == "workbookPr" and node.get("date1904") in ("1", "true") for node in book)
    epoch = datetime.datetime(1904, 1, 1) if since_1904 else datetime.datetime(1899, 12, 30)  # noqa: DTZ001  a spreadsheet's dates have no zone
    dates, targets = date_styles(office), office.targets("xl/workbook.xml")
    for node in (node for node in book.iter() if local_name(node) == "sheet"):
        target = targets.get(node.get(f"{RELATION}id", ""), "")
        if target in office.names and "worksheets" in target:
            yield sheet_part(node.get("name", ""), office.part(target), shared, dates, epoch)


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
    ".docx": extract_docx,
    ".pptx": extract_pptx,
    ".xlsx": extract_xlsx,
    ".xlsm": extract_xlsx,
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
    except (Unreadable, OSError, KeyError, ElementTree.ParseError) as error:
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
