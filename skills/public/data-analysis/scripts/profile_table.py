"""Profile a table: types, missing values, statistics, outliers, correlations, groups. Writes a report with charts.

CSV, TSV and JSON need only the standard library, spreadsheets python-calamine or openpyxl, charts matplotlib.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import re
import statistics
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from table_reader import Column, MissingPackage, read_columns, read_rows

EXIT_MISSING_PACKAGE = 3
STRONG_CORRELATION = 0.6
MAX_CHARTS = 8


def rounded(value: float) -> float:
    return float(f"{value:.6g}")


def correlation(left: list[Any], right: list[Any]) -> tuple[float, int]:
    """Return Pearson's r of the rows that have both values, and their count; nan without variation."""
    pairs = [(a, b) for a, b in zip(left, right) if a is not None and b is not None]
    if len(pairs) < 3:
        return math.nan, len(pairs)
    mean_a, mean_b = statistics.fmean(a for a, _ in pairs), statistics.fmean(b for _, b in pairs)
    spread = math.sqrt(math.fsum((a - mean_a) ** 2 for a, _ in pairs) * math.fsum((b - mean_b) ** 2 for _, b in pairs))
    return (math.fsum((a - mean_a) * (b - mean_b) for a, b in pairs) / spread if spread else math.nan), len(pairs)


def describe_numbers(values: list[float]) -> dict[str, Any]:
    """Return statistics, and the outliers beyond 1.5 interquartile ranges."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    fence = 1.5 * (high - low)
    outliers = [value for value in values if fence and not low - fence <= value <= high + fence]
    found = {
        "sum": math.fsum(values), "mean": statistics.fmean(values), "median": middle,
        "std": statistics.stdev(values) if len(values) > 1 else 0.0,
        "min": min(values), "q1": low, "q3": high, "max": max(values),
    }  # fmt: skip
    extreme = sorted(outliers, key=lambda value: -abs(value - middle))[:5]
    return {name: rounded(value) for name, value in found.items()} | {"outliers": len(outliers), "extreme": extreme}


def describe_column(column: Column) -> dict[str, Any]:
    values = [value for value in column.values if value is not None]
    found: dict[str, Any] = {
        "name": column.name, "type": column.kind,
        "missing": len(column.values) - len(values) - len(column.misfits), "distinct": len(set(values)),
    }  # fmt: skip
    if column.notes:
        found["notes"] = column.notes
    if not values:
        return found
    if column.kind == "number":
        return found | describe_numbers(values)
    if column.kind == "date":
        return found | {
            name: str(value).replace(" 00:00:00", "") for name, value in (("min", min(values)), ("max", max(values)))
        }
    return found | {"top": [[value, count] for value, count in Counter(map(str, values)).most_common(5)]}


def describe_groups(columns: list[Column], by: str, value: str) -> list[dict[str, Any]]:
    """Aggregate the numbers of `value` for each value of `by`, the largest sum first. Raises KeyError."""
    named = {column.name: column for column in columns}
    groups: dict[str, list[float]] = {}
    for key, number in zip(named[by].raw, named[value].values):
        if isinstance(number, float):
            groups.setdefault(key.strip() or "(missing)", []).append(number)
    rows = [
        {
            by: key,
            "count": len(numbers),
            "sum": rounded(math.fsum(numbers)),
            "mean": rounded(statistics.fmean(numbers)),
            "median": rounded(statistics.median(numbers)),
        }
        for key, numbers in groups.items()
    ]
    return sorted(rows, key=lambda row: -float(str(row["sum"])))


def profile(rows: list[list[str]], columns: list[Column]) -> dict[str, Any]:
    described = [describe_column(column) for column in columns]
    numbers = [column for column in columns if column.kind == "number"]
    related = []
    for index, left in enumerate(numbers):
        for right in numbers[index + 1 :]:
            r, count = correlation(left.values, right.values)
            if abs(r) >= STRONG_CORRELATION:
                related.append({"columns": [left.name, right.name], "r": round(r, 3), "rows": count})
    bodies = Counter(map(tuple, rows[1:]))
    return {
        "rows": len(rows) - 1,
        "duplicate_rows": sum(bodies.values()) - len(bodies),
        "ragged_rows": sum(len(row) != len(rows[0]) for row in rows[1:]),
        "columns": described,
        "correlations": sorted(related, key=lambda pair: -abs(float(str(pair["r"])))),
    }


def findings(result: dict[str, Any]) -> list[str]:
    """List what a reader should know before trusting the numbers, and what stands out."""
    rows = result["rows"]
    lines = [f"{result['duplicate_rows']} duplicate rows."] if result["duplicate_rows"] else []
    lines += (
        [f"{result['ragged_rows']} rows have another number of cells than the head."] if result["ragged_rows"] else []
    )
    for column in result["columns"]:
        name = column["name"]
        if column["missing"]:
            lines.append(
                f"`{name}`: {column['missing']} of {rows} values are missing ({column['missing'] / rows:.0%})."
            )
        lines += [f"`{name}`: {note}." for note in column.get("notes", [])]
        if column["distinct"] == 1 and rows > 1:
            lines.append(f"`{name}` has the same value in every row.")
        if column.get("outliers"):
            lines.append(
                f"`{name}`: {column['outliers']} outliers, such as {column['extreme'][0]:g} "
                f"(median {column['median']:g})."
            )
    return lines + [
        f"`{a}` and `{b}` correlate: r = {pair['r']} over {pair['rows']} rows."
        for pair in result["correlations"]
        for a, b in [pair["columns"]]
    ]


def draw_charts(columns: list[Column], folder: Path) -> list[str]:
    """Draw a histogram per number, bars per category, a line over the first date. Returns file names.

    Raises ImportError without matplotlib.
    """
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("agg")
    fonts = {font.name for font in importlib.import_module("matplotlib.font_manager").fontManager.ttflist}
    matplotlib.rcParams["font.family"] = ["DejaVu Sans", *sorted(font for font in fonts if "CJK" in font)[:1]]
    warnings.filterwarnings("ignore", message="Glyph")  # without such a font, those characters are boxes
    plot = importlib.import_module("matplotlib.pyplot")
    dates = next((column for column in columns if column.kind == "date"), None)
    written: list[str] = []
    for column in columns:
        values = [value for value in column.values if value is not None]
        if column.kind not in ("number", "text", "boolean") or len(set(values)) < 2 or len(written) == MAX_CHARTS:
            continue
        figure, axes = plot.subplots(figsize=(8, 4.5), dpi=120, layout="constrained")
        if column.kind == "number" and dates:
            points = sorted(
                (day, value) for day, value in zip(dates.values, column.values) if day is not None and value is not None
            )
            axes.plot(
                [day for day, _ in points], [value for _, value in points], marker="." if len(points) < 60 else ""
            )
            axes.set_title(f"{column.name} by {dates.name}")
            figure.autofmt_xdate()
        elif column.kind == "number":
            axes.hist(values, bins=min(40, max(8, int(math.sqrt(len(values))))))
            axes.set_title(f"Distribution of {column.name}")
        else:
            top = Counter(map(str, values)).most_common(12)[::-1]
            axes.barh([key[:40] for key, _ in top], [count for _, count in top])
            axes.set_title(f"Rows by {column.name}")
        axes.spines[["top", "right"]].set_visible(False)
        name = f"{len(written) + 1:02}_{re.sub(r'[^A-Za-z0-9]+', '_', column.name).strip('_') or 'column'}.png"
        figure.savefig(folder / name)
        plot.close(figure)
        written.append(name)
    return written


def write_report(result: dict[str, Any], columns: list[Column], folder: Path, title: str) -> None:
    """Write report.md and its charts, and add the names of the files or of the missing package to the result."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        charts = draw_charts(columns, folder)
    except ImportError:
        charts = []
        result["missing"] = ["matplotlib"]
    lines = [f"# {title}", "", f"{result['rows']} rows, {len(columns)} columns.", "", "## Findings", ""]
    lines += [f"- {line}" for line in result["findings"]] or ["Nothing stands out."]
    lines += [
        "",
        "## Columns",
        "",
        "| column | type | missing | distinct | min | median | mean | max |",
        "|" + " --- |" * 8,
    ]
    for column in result["columns"]:
        lines.append(
            "| "
            + " | ".join(
                str(column.get(key, ""))
                for key in ("name", "type", "missing", "distinct", "min", "median", "mean", "max")
            )
            + " |"
        )
    lines += [
        "",
        "## Charts",
        "",
        *([f"![{name}]({name})" for name in charts] or ["No charts: matplotlib is not installed."]),
    ]
    (folder / "report.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    result["written"] = [str(folder / name) for name in ["report.md", *charts]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help=".csv, .tsv, .json, .jsonl, .xlsx, .xls, .ods")
    parser.add_argument("--sheet", default="", help="of a spreadsheet; default: the first")
    parser.add_argument("--group-by", metavar="COLUMN", help="aggregate --value for each value of this column")
    parser.add_argument("--value", metavar="COLUMN", help="the numbers to aggregate")
    parser.add_argument("--report", type=Path, metavar="FOLDER", help="write report.md and charts here")
    options = parser.parse_args()
    if bool(options.group_by) != bool(options.value):
        parser.error("--group-by and --value belong together")
    try:
        rows, sheets = read_rows(options.file, options.sheet)
    except MissingPackage as missing:
        fix = f"pip install {missing}, or make CSV files: extract_document.py of the skill `documents` with --csv"
        print(
            json.dumps(
                {"error": f"{options.file.suffix} files need python-calamine.", "missing": [str(missing)], "fix": fix}
            )
        )
        sys.exit(EXIT_MISSING_PACKAGE)
    except (OSError, ValueError, KeyError) as error:
        print(json.dumps({"error": f"{options.file.name}: {error}"}))
        sys.exit(1)
    if len(rows) < 2:
        print(json.dumps({"error": "The table has no rows below its head.", "sheets": sheets}))
        sys.exit(1)
    columns = read_columns(rows)
    result = profile(rows, columns) | ({"sheets": sheets} if sheets else {})
    result["findings"] = findings(result)
    if options.group_by:
        known = {column.name for column in columns}
        if unknown := {options.group_by, options.value} - known:
            parser.error(f"there is no column {', '.join(unknown)}; there are: {', '.join(known)}")
        result["groups"] = describe_groups(columns, options.group_by, options.value)
    if options.report:
        write_report(result, columns, options.report, options.file.name)
    print(json.dumps(result, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
