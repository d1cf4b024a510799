"""Show the schema of tables in files, or answer one SQL query over them. The files are never changed.

CSV, TSV, JSON, JSON lines, Excel and Parquet, by DuckDB; without it, by SQLite (not Parquet).
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import importlib.util
import json
import math
import resource
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn, Union

from skill_program import run_main
from sql_engines import Answer, DuckEngine, Interrupted, LiteEngine, quoted
from table_sources import MissingPackage, Problem, Source, find_sources

Engine = Union[DuckEngine, LiteEngine]
EXIT_MISSING_PACKAGE = 3
MAX_WRITTEN_ROWS = 1_000_000
MAX_CELL_CHARS = 120
SAMPLED_ROWS = 200_000
FORMATS = (".csv", ".tsv", ".json", ".md")
SQLITE_NOTE = "DuckDB is not installed (pip install duckdb): SQLite answers, with its own functions and dates as text."


def plain(value: Any) -> Any:
    """Return a value that JSON has; dates and decimals become text and numbers."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return (
            str(value)
            if not math.isfinite(value)
            else int(value)
            if value.is_integer() and abs(value) < 1e15
            else value
        )
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, bytes):
        return value.hex()
    if type(value).__name__ == "Decimal":
        return int(value) if value == value.to_integral_value() else float(value)
    return str(value)


def cell(value: Any) -> str:
    """Return a value as the text of a cell; "" for NULL."""
    value = plain(value)
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def markdown(columns: list[str], rows: list[tuple[Any, ...]]) -> list[str]:
    """Return the lines of a table; long cells are cut."""

    def line(cells: list[str]) -> str:
        short = [text if len(text) <= MAX_CELL_CHARS else text[: MAX_CELL_CHARS - 1] + "…" for text in cells]
        return "| " + " | ".join(" ".join(text.split()).replace("|", "\\|") for text in short) + " |"

    return [line(columns), "|" + " --- |" * len(columns), *(line([cell(value) for value in row]) for row in rows)]


def describe_column(engine: Engine, table: str, name: str, kind: str) -> dict[str, Any]:
    """Return the type, missing values, range and examples of a column."""
    column, place = quoted(name), quoted(table)
    found: dict[str, Any] = {"name": name, "type": kind}
    bounds = f"SELECT count(*) - count({column}), min({column}), max({column}) FROM {place}"  # noqa: S608
    missing, low, high = next(engine.answer(bounds).rows)
    found["missing"] = missing
    if low is not None and not isinstance(low, (dict, list)):
        found["from"], found["to"] = cell(low)[:MAX_CELL_CHARS], cell(high)[:MAX_CELL_CHARS]
    head = f"SELECT {column} AS v FROM {place} LIMIT {SAMPLED_ROWS}"  # noqa: S608
    groups = f"SELECT v, count(*) FROM ({head}) WHERE v IS NOT NULL GROUP BY v ORDER BY 2 DESC, 1 LIMIT 4"  # noqa: S608
    found["examples"] = [cell(row[0])[:MAX_CELL_CHARS] for row in engine.answer(groups).rows]
    return found


def describe(engine: Engine, source: Source, full: bool) -> dict[str, Any]:
    rows = next(engine.answer(f"SELECT count(*) FROM {quoted(source.table)}").rows)[0]  # noqa: S608
    columns = engine.columns(source.table)
    found: dict[str, Any] = {"name": source.table, "from": source.origin, "rows": rows}
    if full:
        return found | {"columns": [describe_column(engine, source.table, *column) for column in columns]}
    return found | {"columns": [f"{name} {kind}" for name, kind in columns]}


def write_rows(path: Path, answer: Answer, first: list[tuple[Any, ...]]) -> int:
    """Write all rows, the first ones and then those still to come, a million at most. Returns their number."""
    count = 0

    def rows() -> Iterator[tuple[Any, ...]]:
        nonlocal count
        for row in (*first, *islice(answer.rows, MAX_WRITTEN_ROWS - len(first))):
            count += 1
            yield row

    path.parent.mkdir(parents=True, exist_ok=True)
    kind = path.suffix.lower()
    with path.open("w", encoding="utf-8", newline="") as file:
        if kind == ".json":
            json.dump([dict(zip(answer.columns, map(plain, row))) for row in rows()], file, ensure_ascii=False)
        elif kind == ".md":
            file.write("\n".join(markdown(answer.columns, list(rows()))) + "\n")
        else:
            writer = csv.writer(file, delimiter="\t" if kind == ".tsv" else ",")
            writer.writerow(answer.columns)
            writer.writerows([cell(value) for value in row] for row in rows())
    return count


def count_rest(answer: Answer, shown: int) -> int:
    return shown + sum(1 for _row in islice(answer.rows, MAX_WRITTEN_ROWS - shown))


@contextlib.contextmanager
def limited(timeout: float, memory_mb: int, stop: Callable[[], None]) -> Iterator[None]:
    """End Python code by a signal and a query by `stop` after `timeout`; memory beyond the engine's is bounded, too."""

    def ring(_number: int, _frame: object) -> NoReturn:
        raise Interrupted

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, timeout + 1)
    clock = threading.Timer(timeout, stop)
    clock.daemon = True
    clock.start()
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    wanted = (memory_mb * 2 + 1024) << 20
    resource.setrlimit(resource.RLIMIT_DATA, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
    try:
        yield
    finally:
        clock.cancel()
        signal.setitimer(signal.ITIMER_REAL, 0)


def choose_engine(options: argparse.Namespace, folder: Path) -> tuple[Engine, list[str]]:
    if options.engine != "sqlite" and importlib.util.find_spec("duckdb"):
        return DuckEngine(options.memory_mb, folder), []
    if options.engine == "duckdb":
        raise MissingPackage("duckdb")
    return LiteEngine(options.memory_mb), [] if options.engine == "sqlite" else [SQLITE_NOTE]


def work(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Load the files, then show their schema or answer the query."""
    began = time.monotonic()
    if options.out and options.out.suffix.lower() not in FORMATS:
        raise Problem(f"--out needs a name that ends in {', '.join(FORMATS)}.")
    engine, notes = choose_engine(options, folder)
    try:
        with limited(options.timeout, options.memory_mb, engine.interrupt):
            sources, said = find_sources(options.files, folder, options.sheet)
            if options.out and options.out.resolve() in {source.given.resolve() for source in sources}:
                raise Problem("--out is one of the sources, which are never changed.")
            notes += said + [note for source in sources for note in engine.load(source)]
            engine.close_sources()
            tables = [describe(engine, source, not options.query) for source in sources]
            result: dict[str, Any] = {"engine": engine.name, "tables": tables}
            result |= answer_query(engine, options) if options.query else {}
    finally:
        engine.close()
    if result.get("rows") == MAX_WRITTEN_ROWS:
        notes.append(f"The result was cut after {MAX_WRITTEN_ROWS} rows.")
    return result | {"notes": notes, "seconds": round(time.monotonic() - began, 2)}


def answer_query(engine: Engine, options: argparse.Namespace) -> dict[str, Any]:
    """Return the first rows as a table, and the number of all rows, which go to --out."""
    query = Path(options.query[1:]).read_text("utf-8") if options.query.startswith("@") else options.query
    answer = engine.answer(query)
    shown = list(islice(answer.rows, options.rows))
    count = write_rows(options.out, answer, shown) if options.out else count_rest(answer, len(shown))
    found: dict[str, Any] = {"table": markdown(answer.columns, shown), "rows": count, "shown": len(shown)}
    return found | ({"written": str(options.out)} if options.out else {})


def fail(code: int, **facts: Any) -> NoReturn:
    print(json.dumps(facts, ensure_ascii=False))
    sys.exit(code)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", help="FILE, or NAME=FILE to name the table")
    parser.add_argument("--query", default="", help="one SELECT, or @FILE; without it, the schema is shown")
    parser.add_argument("--out", type=Path, help="all rows of the result as .csv, .tsv, .json or .md")
    parser.add_argument("--rows", type=int, default=50, help="rows that are shown (default 50)")
    parser.add_argument("--sheet", default="", help="only this sheet of workbooks")
    parser.add_argument("--timeout", type=float, default=60, metavar="SECONDS")
    parser.add_argument("--memory-mb", type=int, default=512)
    parser.add_argument("--engine", choices=("auto", "duckdb", "sqlite"), default="auto")
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as folder:
            result = work(options, Path(folder))
    except MissingPackage as missing:
        fail(EXIT_MISSING_PACKAGE, error=f"This needs {missing}.", missing=[str(missing)], fix=f"pip install {missing}")
    except Interrupted:
        fail(1, error=f"It took longer than {options.timeout:g} s. Aggregate less, filter first, or raise --timeout.")
    except MemoryError:
        fail(1, error="It needs more memory than --memory-mb allows.")
    except (Problem, OSError) as problem:
        fail(1, error=str(problem))
    print(json.dumps(result, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    run_main(main, ("files",))
