"""Read tables for a page, recognize numbers and dates, and aggregate them."""

from __future__ import annotations

import csv
import datetime
import difflib
import json
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Union

from sandbox.inside.text_encoding import decode_text

MAX_BYTES = 50 << 20
MAX_GROUPS = 8  # series of one chart; the others become "other"
OTHER = "other"
MISSING = ("", "na", "n/a", "nan", "null", "none", "-")
NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d{1,30})?(?:\.\d{1,30})?(?:[eE][-+]?\d{1,3})?")
CURRENCY = re.compile(r"[\s$€£¥%]")
DATE = re.compile(r"(\d{4})-(\d\d)(?:-(\d\d))?(?:[T ](\d\d):(\d\d)(?::(\d\d))?)?.{0,13}")
Value = Union[float, str, None]


class Problem(Exception):
    """The page cannot be built. The text names the place in the description and says what to do."""


class Table(NamedTuple):
    """A table; `kinds` are "number", "date" or "text", and the values of a number column are floats."""

    name: str
    columns: list[str]
    kinds: list[str]
    rows: list[list[Value]]

    def place_of(self, column: object, place: str) -> int:
        """Return the place of a column. Raises Problem."""
        if column in self.columns:
            return self.columns.index(str(column))
        near = difflib.get_close_matches(str(column), self.columns, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise Problem(f"{place}: {self.name} has no column {column!r}; there are: {', '.join(self.columns)}{hint}")

    def numbers(self, column: object, place: str) -> int:
        """Return the place of a column of numbers. Raises Problem."""
        index = self.place_of(column, place)
        if self.kinds[index] != "number":
            raise Problem(f"{place}: the column {column!r} is not numbers.")
        return index


def read_table(word: str) -> Table:
    """Read `FILE` or `NAME=FILE`. Raises Problem and OSError."""
    given, _sign, rest = word.partition("=")
    path = Path(rest) if rest and re.fullmatch(r"[\w-]+", given) and not Path(word).exists() else Path(word)
    name = given if path != Path(word) else path.stem
    if not path.is_file():
        raise Problem(f"{path}: there is no such file.")
    if path.stat().st_size > MAX_BYTES:
        raise Problem(f"{path.name} is larger than {MAX_BYTES >> 20} MB; aggregate it first, with the skill sql.")
    text = decode_text(path.read_bytes())[0]
    try:
        rows = json_rows(path, text) if path.suffix.lower() in (".json", ".jsonl", ".ndjson") else csv_rows(text)
    except (ValueError, TypeError, csv.Error, RecursionError) as error:
        raise Problem(f"{path.name} cannot be read: {error}") from error
    if len(rows) < 2:
        raise Problem(f"{path.name} needs a head and at least one row.")
    return typed(name, rows)


def csv_rows(text: str) -> list[list[str]]:
    delimiter = max(",;\t|", key=text.split("\n", 1)[0].count)
    return [row for row in csv.reader(text.splitlines(keepends=True), delimiter=delimiter) if any(row)]


def json_rows(path: Path, text: str) -> list[list[str]]:
    lines = path.suffix.lower() != ".json"
    data = [json.loads(line) for line in text.splitlines() if line.strip()] if lines else json.loads(text)
    if isinstance(data, dict):
        data = next((value for value in data.values() if isinstance(value, list)), [data])
    if data and isinstance(data[0], dict):
        head = list(dict.fromkeys(str(key) for row in data for key in row))
        data = [head, *([row.get(name) for name in head] for row in data)]
    return [[cell_text(cell) for cell in row] for row in data]


def cell_text(cell: Any) -> str:
    if isinstance(cell, (dict, list, bool)):
        return json.dumps(cell, ensure_ascii=False)
    return "" if cell is None else str(cell)


def parse_number(text: str) -> float | None:
    bare = CURRENCY.sub("", text)
    return float(bare.replace(",", "")) if re.search(r"\d", bare) and NUMBER.fullmatch(bare) else None


def is_code(text: str) -> bool:
    return len(text) > 1 and text[0] == "0" and text.isdigit()


def typed(name: str, rows: list[list[str]]) -> Table:
    """Recognize the columns: all values numbers without leading zeros, all ISO dates, or text."""
    head = [text.strip() or f"column {index}" for index, text in enumerate(rows[0], 1)]
    body = [[text.strip() for text in (row + [""] * len(head))[: len(head)]] for row in rows[1:]]
    kinds: list[str] = []
    filled: list[list[Value]] = [[None] * len(head) for _row in body]
    for index in range(len(head)):
        cells = [row[index] for row in body]
        present = [text for text in cells if text.lower() not in MISSING]
        numeric = bool(present) and all(parse_number(text) is not None and not is_code(text) for text in present)
        dates = bool(present) and not numeric and all(DATE.fullmatch(text) for text in present)
        kinds.append("number" if numeric else "date" if dates else "text")
        for row, text in zip(filled, cells):
            row[index] = None if text.lower() in MISSING else parse_number(text) if numeric else text
    return Table(name, head, kinds, filled)


def choose_rows(table: Table, part: dict[str, Any], place: str) -> list[list[Value]]:
    """Return the rows that fit `where`. Raises Problem."""
    where = part.get("where", {})
    if not isinstance(where, dict):
        raise Problem(f'{place}.where: write {{"column": value}}.')
    rows = table.rows
    for column, value in where.items():
        index = table.place_of(column, f"{place}.where")
        values = {plain(each) for each in (value if isinstance(value, list) else [value])}
        rows = [row for row in rows if plain(row[index]) in values]
    return rows


def plain(value: Any) -> str:
    """Return a value as readers write it: 3 for 3.0."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value:.12g}"
    return "" if value is None else str(value)


AGGREGATES: dict[str, Callable[[list[Any]], float]] = {
    "sum": lambda values: sum(values),
    "mean": lambda values: statistics.fmean(values),
    "median": lambda values: statistics.median(values),
    "min": lambda values: min(values),
    "max": lambda values: max(values),
    "count": lambda values: float(len(values)),
    "distinct": lambda values: float(len(set(values))),
}


def aggregate(part: dict[str, Any], place: str) -> tuple[str, Callable[[list[Any]], float | None]]:
    """Return the name and the function of `aggregate`; of no values, it is None but for counts. Raises Problem."""
    name = part.get("aggregate", "sum" if part.get("y") or part.get("column") else "count")
    if name not in AGGREGATES:
        raise Problem(f"{place}.aggregate: {name!r} is none of {', '.join(AGGREGATES)}.")
    function = AGGREGATES[name]
    return name, lambda values: function(values) if values or name in ("count", "distinct") else None


def by_time(value: Value, unit: str) -> Value:
    """Return the day, month or year of an ISO date."""
    sizes = {"year": 4, "month": 7, "day": 10}
    return value[: sizes[unit]] if isinstance(value, str) and unit in sizes else value


def day_number(text: str) -> float | None:
    """Return an ISO date as days, so that gaps in time are gaps on the axis."""
    found = DATE.fullmatch(text)
    if not found:
        return None
    try:
        day = datetime.date(int(found[1]), int(found[2]), int(found[3] or 1))
    except ValueError:
        return None
    hour, minute, second = (int(found[part] or 0) for part in (4, 5, 6))
    return day.toordinal() + (hour * 3600 + minute * 60 + second) / 86400
