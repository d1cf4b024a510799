"""Read a table from CSV, TSV, JSON or a spreadsheet, and recognize the type of each column."""

from __future__ import annotations

import csv
import datetime
import importlib
import json
import re
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

from sandbox.inside.archives import DocumentUnreadable, open_archive
from sandbox.inside.sheets import Book, filled
from sandbox.inside.text_encoding import decode_text

MISSING = {"", "na", "n/a", "nan", "null", "none", "-", "--", "?"}
NUMBER = re.compile(r"[-+]?(\d{1,3}(,\d{3})+|\d+)?(\.\d+)?([eE][-+]?\d+)?")
CURRENCY = re.compile(r"^[-+]?[$€£¥]\s?|\s?(?:[$€£¥%]|EUR|USD|CNY)$")
DATE_FORMATS = (
    "%Y-%m-%d",
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%dT%H:%M:%S",
    "%Y-%m-%d %H:%M",
    "%Y-%m-%dT%H:%M",
    "%Y/%m/%d",
    "%d.%m.%Y",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%Y年%m月%d日",
)
TYPE_SHARE = 0.95  # of the values must fit for a column to have a type


class MissingPackage(Exception):
    """No package for this format is installed."""


class Column(NamedTuple):
    """A column: "number", "date", "boolean" or "text". `values` has None where a value is missing or does not fit."""

    name: str
    kind: str
    values: list[Any]
    raw: list[str]
    misfits: list[str]  # values that do not fit the kind
    notes: list[str]


def read_csv(path: Path) -> list[list[str]]:
    text, _codec = decode_text(path.read_bytes())
    first = text.split("\n", 1)[0]
    delimiter = max(",;\t|", key=first.count)
    return list(csv.reader(text.splitlines(keepends=True), delimiter=delimiter))


def read_json(path: Path) -> list[list[str]]:
    text = path.read_text("utf-8-sig")
    data = (
        [json.loads(line) for line in text.splitlines() if line.strip()]
        if path.suffix in (".jsonl", ".ndjson")
        else json.loads(text)
    )
    if isinstance(data, dict):
        data = next((value for value in data.values() if isinstance(value, list)), [data])
    if data and isinstance(data[0], dict):
        head = list(dict.fromkeys(key for row in data for key in row))
        data = [head, *[[row.get(key) for key in head] for row in data]]
    return [[cell_text(cell) for cell in row] for row in data]


def cell_text(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    if isinstance(cell, datetime.datetime) and cell.time() == datetime.time():
        return cell.date().isoformat()
    return json.dumps(cell, ensure_ascii=False) if isinstance(cell, (dict, list)) else str(cell)


def read_workbook(path: Path, sheet: str) -> tuple[list[list[str]], list[str]]:
    """Return the rows of a sheet (default: the first one) and the names of all sheets.

    Raises MissingPackage, and ValueError with the reason.
    """
    try:
        if path.suffix.lower() in (".xlsx", ".xlsm"):
            with open_archive(str(path)) as archive:
                book = Book(archive)
                found = {each.name: each for each in book.sheets}
                rows = [values for _row, values in filled(book.rows(found[chosen_sheet(sheet, [*found])]))]
            return [[cell_text(cell) for cell in row] for row in rows], [*found]
        opened = importlib.import_module("python_calamine").load_workbook(str(path))
    except ImportError:
        raise MissingPackage("python-calamine") from None
    except (zipfile.BadZipFile, DocumentUnreadable) as error:
        raise ValueError(str(error)) from error
    rows = opened.get_sheet_by_name(chosen_sheet(sheet, opened.sheet_names)).to_python(skip_empty_area=True)
    return [[cell_text(cell) for cell in row] for row in rows], list(opened.sheet_names)


def chosen_sheet(wanted: str, names: list[str]) -> str:
    """Return the name of a sheet, the first one without a wish. Raises ValueError."""
    if not names or (wanted and wanted not in names):
        raise ValueError(f"it has no sheet {wanted!r}; there are: {', '.join(names)}" if names else "it has no sheets")
    return wanted or names[0]


def read_rows(path: Path, sheet: str = "") -> tuple[list[list[str]], list[str]]:
    """Return the rows, the first being the head, and the names of the sheets. Empty rows are left out."""
    kind, names = path.suffix.lower(), list[str]()
    if kind in (".xlsx", ".xls", ".xlsm", ".ods", ".xlsb"):
        rows, names = read_workbook(path, sheet)
    else:
        rows = read_json(path) if kind in (".json", ".jsonl", ".ndjson") else read_csv(path)
    return [row for row in rows if any(cell.strip() for cell in row)], names


def parse_number(text: str) -> float | None:
    bare = CURRENCY.sub("", text.strip()).strip()
    if not re.search(r"\d", bare) or not NUMBER.fullmatch(bare):
        return None
    number = float(bare.replace(",", ""))
    return -number if text.strip().startswith("-") and not bare.startswith("-") else number


def parse_date(text: str, pattern: str) -> datetime.datetime | None:
    try:
        return datetime.datetime.strptime(text.strip().split("+")[0].rstrip("Z").split(".000")[0], pattern)  # noqa: DTZ007  a table's dates have no zone
    except ValueError:
        return None


def recognize(name: str, raw: list[str]) -> Column:
    """Recognize the type of a column by its values."""
    present = [value for value in raw if value.strip().lower() not in MISSING]
    missing = {value for value in raw if value.strip().lower() in MISSING}
    enough = max(1, TYPE_SHARE * len(present))
    notes = ["missing values are written as " + ", ".join(sorted(filter(None, missing)))] if any(missing) else []
    if any(re.fullmatch(r"0\d+", value) for value in present):
        notes.append("leading zeros: treated as identifiers")
    elif sum(parse_number(value) is not None for value in present) >= enough and present:
        if any("," in value for value in present):
            notes.append("commas in numbers: read as thousands separators")
        if any(value.strip().endswith("%") for value in present):
            notes.append("percent signs: values are percent, not fractions")
        return made(
            name, "number", raw, [None if value in missing else parse_number(value) for value in raw], missing, notes
        )
    fits = {pattern: sum(parse_date(value, pattern) is not None for value in present) for pattern in DATE_FORMATS}
    best = max(DATE_FORMATS, key=lambda pattern: fits[pattern])
    if present and fits[best] >= enough:
        if best == "%d/%m/%Y" and fits["%m/%d/%Y"] == fits[best]:
            notes.append("dates are ambiguous: read as day/month/year")
        return made(name, "date", raw, [parse_date(value, best) for value in raw], missing, notes)
    if present and {value.strip().lower() for value in present} <= {"true", "false", "yes", "no"}:
        return made(
            name,
            "boolean",
            raw,
            [None if value in missing else value.strip().lower() in ("true", "yes") for value in raw],
            missing,
            notes,
        )
    if present and sum(parse_number(value) is not None for value in present) > len(present) / 2:
        notes.append("numbers and text are mixed")
    return made(name, "text", raw, [None if value in missing else value.strip() for value in raw], missing, notes)


def made(name: str, kind: str, raw: list[str], values: list[Any], missing: set[str], notes: list[str]) -> Column:
    misfits = [text for text, value in zip(raw, values) if value is None and text not in missing]
    if misfits:
        notes.append(f"{len(misfits)} values are not a {kind}, such as {misfits[0]!r}")
    return Column(name, kind, values, raw, misfits, notes)


def read_columns(rows: list[list[str]]) -> list[Column]:
    """Return the columns of a table. Short rows are filled, and columns without a name get one."""
    head, body = rows[0], rows[1:]
    width = max(map(len, rows))
    names = [(head[index].strip() if index < len(head) else "") or f"column {index + 1}" for index in range(width)]
    return [
        recognize(name, [row[index] if index < len(row) else "" for row in body]) for index, name in enumerate(names)
    ]
