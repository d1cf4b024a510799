"""Two engines that answer one query over copies of tables in memory: DuckDB, or SQLite where it is missing."""

from __future__ import annotations

import contextlib
import csv
import importlib
import json
import re
import sqlite3
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from table_sources import MissingPackage, Problem, Source

READ_ONLY = "The query must be one SELECT, WITH, VALUES, DESCRIBE, SUMMARIZE or EXPLAIN: sources are never changed."
FETCHED_ROWS = 1000
MAX_COLUMNS = 1000
INTEGER = re.compile(r"[+-]?(?:0|[1-9]\d{0,17})")
REAL = re.compile(r"[+-]?(?:0|[1-9]\d{0,30})?(?:\.\d{1,30})?(?:[eE][+-]?\d{1,3})?")
ALLOWED_ACTIONS = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)


class Interrupted(Exception):
    """The time limit ended the query."""


class Answer(NamedTuple):
    """The head and the rows of a result; the rows are read while they are used."""

    columns: list[str]
    rows: Iterator[tuple[Any, ...]]


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: object) -> str:
    return "'" + str(text).replace("'", "''") + "'"


class DuckEngine:
    """DuckDB in memory. After `close_sources` it reaches no file."""

    def __init__(self, memory_mb: int, folder: Path) -> None:
        self._duckdb = importlib.import_module("duckdb")
        self.name = f"DuckDB {self._duckdb.__version__}"
        settings = {"memory_limit": f"{memory_mb}MB", "temp_directory": str(folder), "threads": 2}
        self._connection = self._duckdb.connect(":memory:", config=settings)
        for setting in (
            "autoinstall_known_extensions = false",
            "autoload_known_extensions = false",
            "python_enable_replacements = false",
        ):
            self._connection.execute(f"SET {setting}")

    def load(self, source: Source) -> list[str]:
        """Copy a table. Returns notes. Raises Problem."""
        try:
            if source.kind != "csv":
                reader = "read_parquet" if source.kind == "parquet" else "read_json"
                options = "" if source.kind == "parquet" else ", format='newline_delimited', sample_size=-1"
                self._create(source, f"{reader}({literal(source.path)}{options})")
                return []
            codes = self._codes(source)
            types = ", types={" + ", ".join(f"{literal(name)}: 'VARCHAR'" for name in codes) + "}" if codes else ""
            self._create(source, f"read_csv({literal(source.path)}, sample_size=-1{types})")
        except self._duckdb.InterruptException as error:
            raise Interrupted from error
        except self._duckdb.Error as error:
            raise Problem(f"{source.origin} cannot be read: {first_lines(error)}") from error
        return [f"{source.table}.{name}: leading zeros, read as text." for name in codes]

    def _create(self, source: Source, reader: str) -> None:
        self._connection.execute(f"CREATE TABLE {quoted(source.table)} AS SELECT * FROM {reader}")  # noqa: S608

    def _codes(self, source: Source) -> list[str]:
        """Return the columns that look like numbers but have leading zeros, which a number would lose."""
        file = literal(source.path)
        kinds = self._connection.execute(f"DESCRIBE SELECT * FROM read_csv({file}, sample_size=-1)").fetchall()  # noqa: S608
        numbers = [str(row[0]) for row in kinds if str(row[1]).endswith("INT")]
        if not numbers:
            return []
        tests = ", ".join(f"count_if(regexp_matches({quoted(name)}, '^[+-]?0[0-9]'))" for name in numbers)
        whole = f"SELECT {tests} FROM read_csv({file}, all_varchar=true, sample_size=-1)"  # noqa: S608
        counts = self._connection.execute(whole).fetchone() or ()
        return [name for name, count in zip(numbers, counts) if count]

    def close_sources(self) -> None:
        """From here on, no statement reads or writes a file, or changes a setting."""
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")

    def columns(self, table: str) -> list[tuple[str, str]]:
        return [(str(row[0]), str(row[1])) for row in self._connection.execute(f"DESCRIBE {quoted(table)}").fetchall()]

    def interrupt(self) -> None:
        self._connection.interrupt()

    def close(self) -> None:
        self._connection.close()

    def answer(self, query: str) -> Answer:
        """Run one reading query. Raises Problem and Interrupted."""
        with self._errors():
            statements = self._connection.extract_statements(query)
            kinds = (self._duckdb.StatementType.SELECT, self._duckdb.StatementType.EXPLAIN)
            if len(statements) != 1 or statements[0].type not in kinds:
                raise Problem(READ_ONLY)
            self._connection.execute(statements[0])
        return Answer([str(each[0]) for each in self._connection.description or []], self._rows())

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        while True:
            with self._errors():
                rows = self._connection.fetchmany(FETCHED_ROWS)
            if not rows:
                return
            yield from rows

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except self._duckdb.InterruptException as error:
            raise Interrupted from error
        except self._duckdb.OutOfMemoryException as error:
            raise Problem(f"The query needs more than --memory-mb: {first_lines(error)}") from error
        except self._duckdb.Error as error:
            raise Problem(first_lines(error)) from error


class LiteEngine:
    """SQLite in memory, for CSV and JSON."""

    def __init__(self, memory_mb: int) -> None:
        self.name = f"SQLite {sqlite3.sqlite_version}"
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._connection.execute(f"PRAGMA hard_heap_limit = {memory_mb << 20}")
        self._connection.execute("PRAGMA temp_store = MEMORY")

    def load(self, source: Source) -> list[str]:
        """Copy a table. Returns notes. Raises Problem, and MissingPackage for Parquet."""
        if source.kind == "parquet":
            raise MissingPackage("duckdb")
        try:
            if source.kind == "json":
                return self._load_json(source)
            return self._load_csv(source)
        except sqlite3.OperationalError as error:
            if "interrupted" in str(error):
                raise Interrupted from error
            raise Problem(f"{source.origin} cannot be read: {error}") from error
        except (csv.Error, ValueError, MemoryError, sqlite3.Error) as error:
            raise Problem(f"{source.origin} cannot be read: {error or type(error).__name__}") from error

    def _load_csv(self, source: Source) -> list[str]:
        """Two readings: the first recognizes the types, the second fills the table."""
        with source.path.open(encoding="utf-8", newline="") as file:
            first = file.readline(CHUNK_CHARS)
            delimiter = max(",;\t|", key=first.count)
            file.seek(0)
            reader = csv.reader(file, delimiter=delimiter)
            head = unique_names(next(reader, []))
            kinds, zeros = recognize_columns(reader, len(head))
            self._create(source, head, kinds)
            file.seek(0)
            rows = (row for row in csv.reader(file, delimiter=delimiter) if any(row))
            self._fill(source, len(head), (typed_row(row, kinds) for row in islice(rows, 1, None)))
        return [f"{source.table}.{head[index]}: leading zeros, read as text." for index in sorted(zeros)]

    def _load_json(self, source: Source) -> list[str]:
        def lines() -> Iterator[dict[str, Any]]:
            with source.path.open(encoding="utf-8") as file:
                for line in file:
                    if line.strip():
                        row = json.loads(line)
                        if not isinstance(row, dict):
                            raise ValueError("a line is not an object")
                        yield row

        head = list(dict.fromkeys(chain.from_iterable(lines())))
        self._create(source, unique_names(head), [""] * len(head))
        self._fill(source, len(head), ([plain_value(row.get(name)) for name in head] for row in lines()))
        return []

    def _create(self, source: Source, head: list[str], kinds: list[str]) -> None:
        if not head or len(head) > MAX_COLUMNS:
            raise Problem(f"{source.origin} has {len(head)} columns; 1 to {MAX_COLUMNS} are possible.")
        columns = ", ".join(f"{quoted(name)} {kind}".strip() for name, kind in zip(head, kinds))
        self._connection.execute(f"CREATE TABLE {quoted(source.table)} ({columns})")

    def _fill(self, source: Source, width: int, rows: Iterator[list[Any]]) -> None:
        places = ", ".join("?" * width)
        filled = ((row + [None] * width)[:width] for row in rows)
        self._connection.execute("BEGIN")
        self._connection.executemany(f"INSERT INTO {quoted(source.table)} VALUES ({places})", filled)  # noqa: S608
        self._connection.execute("COMMIT")

    def close_sources(self) -> None:
        """From here on, nothing but reading these tables is allowed."""
        self._connection.set_authorizer(
            lambda action, *_rest: sqlite3.SQLITE_OK if action in ALLOWED_ACTIONS else sqlite3.SQLITE_DENY
        )

    def columns(self, table: str) -> list[tuple[str, str]]:
        rows = self._connection.execute(f"SELECT * FROM {quoted(table)} LIMIT 0")  # noqa: S608
        names = [each[0] for each in rows.description]
        kinds = self._connection.execute(
            f"SELECT {', '.join(f'max(typeof({quoted(name)}))' for name in names)} FROM {quoted(table)}"  # noqa: S608
        ).fetchone()
        return [(name, str(kind or "null").upper()) for name, kind in zip(names, kinds)]

    def interrupt(self) -> None:
        self._connection.interrupt()

    def close(self) -> None:
        self._connection.close()

    def answer(self, query: str) -> Answer:
        """Run one reading query. Raises Problem and Interrupted."""
        with self._errors():
            cursor = self._connection.execute(query)
        if cursor.description is None:
            raise Problem(READ_ONLY)
        return Answer([str(each[0]) for each in cursor.description], self._rows(cursor))

    def _rows(self, cursor: sqlite3.Cursor) -> Iterator[tuple[Any, ...]]:
        while True:
            with self._errors():
                rows = cursor.fetchmany(FETCHED_ROWS)
            if not rows:
                return
            yield from rows

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if "interrupted" in str(error):
                raise Interrupted from error
            refused = "not authorized" in str(error) or "one statement" in str(error)
            raise Problem(READ_ONLY if refused else f"{error}. The engine is SQLite.") from error
        except sqlite3.Warning as error:  # Python 3.9 and 3.10, for several statements
            raise Problem(READ_ONLY) from error
        except MemoryError as error:
            raise Problem("The query needs more than --memory-mb.") from error


CHUNK_CHARS = 1 << 20


def first_lines(error: Exception) -> str:
    """Return what a person needs of an engine's error."""
    return "\n".join(str(error).strip().splitlines()[:8])[:1500]


def unique_names(head: list[str]) -> list[str]:
    """Return names for columns: none empty, none twice (SQLite ignores case)."""
    names: list[str] = []
    taken: set[str] = set()
    for index, text in enumerate(head, 1):
        plain = name = text.strip() or f"column_{index}"
        count = 1
        while name.lower() in taken:
            count += 1
            name = f"{plain}_{count}"
        taken.add(name.lower())
        names.append(name)
    return names


def recognize_columns(rows: Iterator[list[str]], width: int) -> tuple[list[str], set[int]]:
    """Return the type of each column, and the columns that are text only because of leading zeros."""
    whole, real, zeros = [True] * width, [True] * width, set[int]()
    for row in rows:
        for index, cell in enumerate(row[:width]):
            text = cell.strip()
            if text and real[index]:
                whole[index] = whole[index] and bool(INTEGER.fullmatch(text))
                real[index] = bool(re.search(r"\d", text)) and bool(REAL.fullmatch(text))
                if not real[index] and re.fullmatch(r"[+-]?0\d+", text):
                    zeros.add(index)
    return ["INTEGER" if whole[i] else "REAL" if real[i] else "TEXT" for i in range(width)], zeros


def typed_row(row: list[str], kinds: list[str]) -> list[Any]:
    return [
        None if not cell.strip() else int(cell) if kind == "INTEGER" else float(cell) if kind == "REAL" else cell
        for cell, kind in zip(row, kinds)
    ]


def plain_value(value: Any) -> Any:
    """Return a JSON value as SQLite stores it: lists and objects as JSON text."""
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return str(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else value
