"""Find the tables in files, and bring each into a form that an SQL engine reads: UTF-8 CSV, JSON lines or Parquet."""

from __future__ import annotations

import codecs
import csv
import datetime
import importlib
import json
import re
import zipfile
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from sandbox.inside import sheets
from sandbox.inside.archives import DocumentUnreadable, open_archive
from sandbox.inside.text_encoding import decode_text

MAX_INPUT_BYTES = 1 << 30
MAX_CONVERTED_BYTES = 200 << 20  # of what is converted in memory: workbooks, other encodings, JSON objects
CHUNK_BYTES = 1 << 20
TEXT_KINDS = {".csv": "csv", ".tsv": "csv", ".tab": "csv", ".txt": "csv", ".jsonl": "json", ".ndjson": "json"}
WORKBOOKS = (".xlsx", ".xlsm", ".xls", ".xlsb", ".ods")


class Problem(Exception):
    """A file cannot be read. The text says why and what to do."""


class MissingPackage(Exception):
    """A package is needed; its name."""


class Source(NamedTuple):
    """A table: its name in SQL, a file that the engines read ("csv", "json" or "parquet"), and where it comes from."""

    table: str
    path: Path
    kind: str
    origin: str
    given: Path  # the file as it was named


def table_name(text: str, taken: set[str]) -> str:
    """Return a name that needs no quotes, and that no other table has."""
    name = re.sub(r"\W+", "_", text.strip()).strip("_").lower() or "table_1"
    name = f"t_{name}" if name[0].isdigit() else name
    plain, count = name, 1
    while name in taken:
        count += 1
        name = f"{plain}_{count}"
    taken.add(name)
    return name


def find_sources(words: list[str], folder: Path, sheet: str = "") -> tuple[list[Source], list[str]]:
    """Return the tables of `FILE` and `NAME=FILE`, and notes. Converted files go to `folder`.

    Raises Problem and MissingPackage.
    """
    sources, notes, taken, size = list[Source](), list[str](), set[str](), 0
    for word in words:
        given, _sign, rest = word.partition("=")
        path = Path(rest) if rest and re.fullmatch(r"[A-Za-z_]\w*", given) and not Path(word).exists() else Path(word)
        name = given if path != Path(word) else path.stem
        if not path.is_file():
            raise Problem(f"{path}: there is no such file.")
        size += path.stat().st_size
        if size > MAX_INPUT_BYTES:
            raise Problem(f"The files are larger than {MAX_INPUT_BYTES >> 20} MB together.")
        kind = path.suffix.lower()
        if kind in WORKBOOKS:
            sources += convert_workbook(path, name, sheet, folder, taken)
        elif kind == ".parquet":
            sources.append(Source(table_name(name, taken), path, "parquet", path.name, path))
        elif kind == ".json":
            sources.append(convert_json(path, table_name(name, taken), folder))
        elif kind in TEXT_KINDS:
            source, codec = as_utf8(path, table_name(name, taken), TEXT_KINDS[kind], folder)
            sources.append(source)
            notes += [f"{path.name} was read as {codec}."] if codec not in ("utf-8", "") else []
        else:
            raise Problem(
                f"{path.name}: its suffix is none of {', '.join([*TEXT_KINDS, '.json', '.parquet', *WORKBOOKS])}."
            )
    return sources, notes


def read_bounded(path: Path) -> bytes:
    if path.stat().st_size > MAX_CONVERTED_BYTES:
        raise Problem(
            f"{path.name} is larger than {MAX_CONVERTED_BYTES >> 20} MB: make it UTF-8 CSV, JSON lines or Parquet."
        )
    return path.read_bytes()


def as_utf8(path: Path, table: str, kind: str, folder: Path) -> tuple[Source, str]:
    """Return the file itself if it is UTF-8, otherwise a copy that is, and the encoding it had."""
    decoder, plain = codecs.getincrementaldecoder("utf-8")(), True
    with path.open("rb") as file:
        head = file.read(4)
        plain = not head.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and b"\0" not in head
        file.seek(0)
        try:
            while plain and (data := file.read(CHUNK_BYTES)):
                decoder.decode(data)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            plain = False
    if plain:
        return Source(table, path, kind, path.name, path), ""
    text, codec = decode_text(read_bounded(path))
    copy = folder / f"{table}.{kind}"
    copy.write_text(text, encoding="utf-8", newline="")
    return Source(table, copy, kind, path.name, path), codec


def convert_json(path: Path, table: str, folder: Path) -> Source:
    """Write a JSON document as lines: a list, or the first list of an object, of objects or of rows with a head."""
    try:
        data = json.loads(decode_text(read_bounded(path))[0])
    except (ValueError, RecursionError) as error:
        raise Problem(f"{path.name} is not JSON: {error}") from error
    if isinstance(data, dict):
        lists = [value for value in data.values() if isinstance(value, list)]
        if data and all(isinstance(value, list) and not any(map(is_nested, value)) for value in data.values()):
            data = [dict(zip(data, row)) for row in zip_longest(*lists)]  # {"column": [values]}
        else:
            data = next((value for value in lists if value and is_nested(value[0])), [data])
    if data and isinstance(data, list) and isinstance(data[0], list):
        head = [str(cell) for cell in data[0]]
        data = [dict(zip(head, row)) for row in data[1:]]
    if not isinstance(data, list) or not all(isinstance(row, dict) for row in data):
        raise Problem(f"{path.name} has no list of objects.")
    copy = folder / f"{table}.jsonl"
    with copy.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in data)
    return Source(table, copy, "json", path.name, path)


def is_nested(value: object) -> bool:
    return isinstance(value, (dict, list))


def convert_workbook(path: Path, name: str, sheet: str, folder: Path, taken: set[str]) -> list[Source]:
    """Write each sheet with rows, or the named one, as CSV."""
    sheets = read_workbook(path)
    if sheet and sheet not in sheets:
        raise Problem(f"{path.name} has no sheet {sheet!r}; there are: {', '.join(sheets)}.")
    filled = {
        title: [row for row in rows if any(row)]
        for title, rows in sheets.items()
        if (not sheet or title == sheet) and any(any(row) for row in rows)
    }
    sources = []
    for title, rows in filled.items():
        table = table_name(name if len(filled) == 1 else f"{name}_{title}", taken)
        copy = folder / f"{table}.csv"
        width = max(map(len, rows))
        with copy.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(row + [""] * (width - len(row)) for row in rows)
        sources.append(Source(table, copy, "csv", f"{path.name}, sheet {title}", path))
    if not sources:
        raise Problem(f"{path.name} has no rows.")
    return sources


def read_workbook(path: Path) -> dict[str, list[list[str]]]:
    """Return the rows of every sheet. An .xlsx can be read without a package. Raises MissingPackage and Problem."""
    if path.suffix.lower() in (".xlsx", ".xlsm"):
        return read_xlsx(path)
    try:
        calamine = importlib.import_module("python_calamine")
    except ImportError:
        raise MissingPackage("python-calamine") from None
    try:
        book = calamine.load_workbook(str(path))
        return {
            title: [[cell_text(cell) for cell in row] for row in book.get_sheet_by_name(title).to_python()]
            for title in book.sheet_names
        }
    except (calamine.CalamineError, OSError, ValueError) as error:
        raise Problem(f"{path.name} cannot be read: {error}") from error


def read_xlsx(path: Path) -> dict[str, list[list[str]]]:
    """Read an .xlsx as Fawn reads uploads: values, texts and dates, no formats."""
    try:
        with open_archive(str(path)) as archive:
            book = sheets.Book(archive)
            return {
                sheet.name: [[cell_text(value) for value in values] for _row, values in sheets.filled(book.rows(sheet))]
                for sheet in book.sheets
            }
    except (zipfile.BadZipFile, DocumentUnreadable, OSError) as error:
        raise Problem(f"{path.name} cannot be read: {error}") from error


def cell_text(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 1e15:
        return str(int(cell))
    if isinstance(cell, datetime.datetime) and cell.time() == datetime.time():
        return cell.date().isoformat()
    return str(cell)
