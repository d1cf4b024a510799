"""Draw one chart from a CSV, TSV or JSON file. PNG and PDF need matplotlib; without it, the chart is an SVG file.

The columns are numbers, except x, which may also be dates (ISO) or categories.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import html
import importlib
import json
import logging
import math
import re
import sys
import warnings
from pathlib import Path
from typing import Any

from skill_program import run_main

# Okabe and Ito's colors, which people with color blindness can tell apart.
COLORS = ["#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#666666", "#F0E442"]
CJK_FONTS = [
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans SC",
    "Source Han Sans SC",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "Droid Sans Fallback",
]
KINDS = ("line", "bar", "barh", "scatter", "area", "hist", "pie", "box")
CJK = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uff00-\uffef]")
MISSING = ("", "na", "n/a", "nan", "null", "none", "-")
MAX_CATEGORIES = 30


class Problem(Exception):
    """The chart cannot be drawn. The text says why and what to do."""


def read_table(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the head and the rows of a file."""
    text = path.read_text("utf-8-sig")
    if path.suffix.lower() == ".json":
        data = json.loads(text)
        if isinstance(data, dict):  # {column: [values]}
            names = list(data)
            return names, [list(map(str, row)) for row in zip(*data.values())]
        names = list(dict.fromkeys(key for row in data for key in row))
        return names, [["" if row.get(name) is None else str(row[name]) for name in names] for row in data]
    delimiter = max(",;\t|", key=text.split("\n", 1)[0].count)
    rows = [row for row in csv.reader(text.splitlines(keepends=True), delimiter=delimiter) if any(row)]
    if len(rows) < 2:
        raise Problem("The file needs a head and at least one row.")
    return rows[0], rows[1:]


def number(text: str) -> float:
    """Return a number, nan if it is missing. Raises ValueError."""
    bare = re.sub(r"[,$€£¥%\s]", "", text)
    return math.nan if bare.lower() in MISSING else float(bare)


def is_number(text: str) -> bool:
    try:
        number(text)
    except ValueError:
        return False
    return True


def parse_x(cells: list[str]) -> list[Any]:
    """Return x as numbers if all are, as dates if all are, otherwise as text."""
    if all(cell.strip() and is_number(cell) for cell in cells):
        return [number(cell) for cell in cells]
    try:
        return [datetime.datetime.fromisoformat(cell.strip()) for cell in cells]
    except ValueError:
        return cells


def choose_columns(options: argparse.Namespace, names: list[str], rows: list[list[str]]) -> tuple[str, list[str]]:
    """Return the columns of x and y. By default, x is the first column and y are the others that contain numbers."""
    numeric = [
        name for index, name in enumerate(names) if all(is_number(row[index]) for row in rows if index < len(row))
    ]
    x = options.x or ("" if options.kind in ("hist", "box") else names[0])
    y = options.y or [name for name in numeric if name != x][: 1 if options.kind in ("pie", "hist") else 6]
    for name in [*filter(None, [x]), *y]:
        if name not in names:
            raise Problem(f"There is no column {name!r}; there are: {', '.join(names)}.")
    if bad := [name for name in y if name not in numeric]:
        raise Problem(f"Column {bad[0]!r} contains text that is not a number.")
    if not y:
        raise Problem("No column contains numbers only; name one with --y.")
    return x, y


def load_data(options: argparse.Namespace) -> tuple[str, list[Any], dict[str, list[float]]]:
    """Return the name and values of x, and the numbers of each y. Raises Problem."""
    names, rows = read_table(options.data)
    rows = [row + [""] * (len(names) - len(row)) for row in rows]
    x, y = choose_columns(options, names, rows)
    cells = [row[names.index(x)] for row in rows] if x else [str(index + 1) for index in range(len(rows))]
    order = list(range(len(rows)))
    if options.sort:
        first = [number(row[names.index(y[0])]) for row in rows]
        order.sort(key=lambda index: first[index], reverse=options.sort == "down")
    if options.top:
        order = order[: options.top]
    cells = [cells[index] for index in order]
    values = cells if options.kind in ("bar", "barh", "pie") else parse_x(cells)
    if options.kind in ("bar", "barh", "pie") and len(cells) > MAX_CATEGORIES:
        raise Problem(
            f"{len(cells)} categories are not readable; use --sort down --top {MAX_CATEGORIES // 2}, or another kind."
        )
    return x, values, {name: [number(rows[index][names.index(name)]) for index in order] for name in y}


def prepare_matplotlib(text: str) -> tuple[Any, list[str]]:
    """Set fonts and defaults. Returns pyplot, and notes about missing fonts. Raises ImportError."""
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("agg")
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # no note of a font without a bold form
    installed = {font.name for font in importlib.import_module("matplotlib.font_manager").fontManager.ttflist}
    fonts = [font for font in CJK_FONTS if font in installed]
    matplotlib.rcParams.update({
        "font.family": ["DejaVu Sans", *fonts[:1]], "font.size": 11,
        "axes.spines.top": False, "axes.spines.right": False,
        "axes.grid": True, "axes.grid.axis": "y", "date.converter": "concise",
        "grid.alpha": 0.3, "axes.axisbelow": True, "axes.unicode_minus": False,
        "axes.titlelocation": "left", "axes.titlesize": 14, "axes.titleweight": "bold",
        "axes.prop_cycle": importlib.import_module("cycler").cycler(color=COLORS),
    })  # fmt: skip
    warnings.filterwarnings("ignore", message="Glyph")  # the note says it once
    lacking = ["no font for Chinese, Japanese or Korean is installed: those characters appear as boxes"]
    return importlib.import_module("matplotlib.pyplot"), lacking if CJK.search(text) and not fonts else []


def draw_bars(axes: Any, options: argparse.Namespace, x: list[Any], series: dict[str, list[float]]) -> None:
    """Draw grouped or stacked bars, with their values if they are few."""
    places = list(range(len(x)))
    count = 1 if options.stacked else len(series)
    size = 0.8 / count
    base = [0.0] * len(x)
    for index, (name, values) in enumerate(series.items()):
        shifted = places if options.stacked else [place + (index - (count - 1) / 2) * size for place in places]
        if options.kind == "barh":
            bars = axes.barh(shifted, values, size, left=base if options.stacked else None, label=name)
        else:
            bars = axes.bar(shifted, values, size, bottom=base if options.stacked else None, label=name)
        if options.stacked:
            base = [low + (0 if math.isnan(value) else value) for low, value in zip(base, values)]
        elif len(x) * count <= 24:
            labels = ["" if math.isnan(value) else f"{value:,.6g}" for value in values]
            axes.bar_label(bars, labels, padding=2, fontsize=9)
    if options.kind == "barh":
        axes.set_yticks(places, x)
        axes.invert_yaxis()
        axes.grid(visible=False)
    else:
        long = max(map(len, x)) * len(x) > 80
        axes.set_xticks(places, x, rotation=35 if long else 0, ha="right" if long else "center")


def draw_matplotlib(
    options: argparse.Namespace, x_name: str, x: list[Any], series: dict[str, list[float]]
) -> list[str]:
    """Write the chart. Returns notes about it. Raises ImportError."""
    plot, notes = prepare_matplotlib(f"{options.title}{x_name}{''.join(series)}{''.join(map(str, x))}")
    figure, axes = plot.subplots(figsize=(options.width / 120, options.height / 120), dpi=120, layout="constrained")
    if options.kind in ("bar", "barh"):
        draw_bars(axes, options, x, series)
    elif options.kind == "pie":
        axes.pie(
            next(iter(series.values())), labels=x, autopct="%.0f %%", startangle=90, counterclock=False, colors=COLORS
        )
    elif options.kind == "hist":
        for name, values in series.items():
            axes.hist([value for value in values if not math.isnan(value)], bins=options.bins, label=name, alpha=0.8)
    elif options.kind == "box":
        axes.boxplot([[v for v in values if not math.isnan(v)] for values in series.values()])
        axes.set_xticks(range(1, len(series) + 1), list(series))
    elif options.kind == "area":
        axes.stackplot(x, *series.values(), labels=list(series), alpha=0.85)
    else:
        for name, values in series.items():
            if options.kind == "scatter":
                axes.scatter(x, values, label=name, alpha=0.75)
            else:
                axes.plot(x, values, label=name, linewidth=2, marker="o" if len(x) <= 30 else "")
    axes.set_title(options.title)
    flipped = options.kind == "barh"
    if options.kind != "pie":
        axes.set_xlabel(
            options.y_label if flipped else options.x_label or ("" if options.kind in ("bar", "box") else x_name)
        )
        axes.set_ylabel(options.x_label if flipped else options.y_label)
    if len(series) > 1 and options.kind not in ("box", "pie"):
        axes.legend(frameon=False)
    figure.savefig(options.out)
    plot.close(figure)
    return notes


def svg_series(
    kind: str, points: list[tuple[float, float]], zero: float, shift: float, size: float, color: str
) -> list[str]:
    """Return the elements of one series: bars down to `zero`, a line, or points."""
    if kind == "bar":
        return [
            f'<rect x="{round(x + shift, 1)}" y="{min(y, zero)}" width="{size:.1f}" '
            f'height="{abs(zero - y):.1f}" fill="{color}"/>'
            for x, y in points
        ]
    if kind == "line":
        path = " ".join(f"{x},{y}" for x, y in points)
        return [f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2.5"/>']
    return [f'<circle cx="{x}" cy="{y}" r="4" fill="{color}"/>' for x, y in points]


def round_ticks(low: float, high: float) -> list[float]:
    """Return some five round numbers from the one below all values to the one above."""
    rough = ((high - low) or abs(high) or 1.0) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def day_labels(x: list[Any]) -> list[str]:
    """Return what stands below the points: months where every day is the first of one."""
    if all(isinstance(each, datetime.datetime) for each in x):
        return [f"{each:%Y-%m}" if all(one.day == 1 for one in x) else str(each.date()) for each in x]
    return [str(each.date() if isinstance(each, datetime.datetime) else each) for each in x]


def draw_svg(options: argparse.Namespace, x: list[Any], series: dict[str, list[float]]) -> Path:
    """Write a plain SVG chart of lines, points or bars without any package. Returns its path. Raises Problem."""
    if options.kind not in ("line", "bar", "scatter"):
        raise Problem(
            f"A {options.kind} chart needs matplotlib: pip install matplotlib. Without it: line, bar, scatter."
        )
    width, height, left, top, bottom = options.width, options.height, 80, 60, 60
    values = [value for numbers in series.values() for value in numbers if not math.isnan(value)]
    values += [0.0] if options.kind == "bar" else []
    ticks = round_ticks(min(values), max(values))
    low, high = ticks[0], ticks[-1]
    spread = high - low
    numeric = not isinstance(x[0], str) and options.kind != "bar"
    marks = (
        [value.timestamp() if isinstance(value, datetime.datetime) else float(value) for value in x]
        if numeric
        else list(map(float, range(len(x))))
    )
    first, last = (min(marks), max(marks)) if options.kind != "bar" else (-0.5, len(x) - 0.5)

    def at(mark: float, value: float) -> tuple[float, float]:
        across = (mark - first) / ((last - first) or 1.0)
        down = (high - value) / spread
        return round(left + across * (width - left - 30), 1), round(top + down * (height - top - bottom), 1)

    parts = [f'<text x="{left}" y="32" font-size="20" font-weight="bold">{html.escape(options.title)}</text>']
    if options.y_label:
        parts.append(f'<text x="{left}" y="50" fill="#555">{html.escape(options.y_label)}</text>')
    for value in ticks:
        _, y = at(first, value)
        parts.append(
            f'<path d="M{left} {y}H{width - 30}" stroke="#ddd"/>'
            f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{value:,.4g}</text>'
        )
    labels = day_labels(x)
    for index in range(0, len(x), max(1, -(-len(x) // 10))):
        across = at(marks[index], low)[0]
        anchor = "end" if across > width - 60 else "middle"
        parts.append(
            f'<text x="{across}" y="{height - bottom + 20}" text-anchor="{anchor}">{html.escape(labels[index])}</text>'
        )
    size = (width - left - 30) / len(x) * 0.8 / len(series)
    for order, (name, numbers) in enumerate(series.items()):
        color = COLORS[order % len(COLORS)]
        points = [
            at(index if options.kind == "bar" else marks[index], value)
            for index, value in enumerate(numbers)
            if not math.isnan(value)
        ]
        parts += svg_series(options.kind, points, at(0, 0)[1], (order - len(series) / 2) * size, size, color)
        parts.append(
            f'<text x="{width - 40}" y="{24 + 18 * order}" text-anchor="end" fill="{color}">{html.escape(name)}</text>'
        )
    out: Path = options.out.with_suffix(".svg")
    out.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="13">'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n',
        encoding="utf-8",
    )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help=".csv, .tsv or .json: [{…}] or {column: […]}")
    parser.add_argument("out", type=Path, help="the file to write: .png, .svg or .pdf")
    parser.add_argument("--kind", choices=KINDS, default="line")
    parser.add_argument("--x", default="", help="a column; default: the first")
    parser.add_argument("--y", action="append", default=[], help="a column of numbers; repeat for more; default: all")
    parser.add_argument("--title", default="", help="say the finding: 'Sales doubled in March'")
    parser.add_argument("--x-label", default="")
    parser.add_argument("--y-label", default="", help="name the unit")
    parser.add_argument("--stacked", action="store_true", help="of bars")
    parser.add_argument("--sort", choices=("up", "down"), help="by the first y")
    parser.add_argument("--top", type=int, default=0, help="only the first N rows, after sorting")
    parser.add_argument("--bins", type=int, default=20, help="of a histogram")
    parser.add_argument("--width", type=int, default=1080, help="pixels")
    parser.add_argument("--height", type=int, default=640, help="pixels")
    options = parser.parse_args()
    missing: list[str] = []
    try:
        x_name, x, series = load_data(options)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        try:
            notes, written = draw_matplotlib(options, x_name, x, series), options.out
        except ImportError:
            missing, notes = (
                ["matplotlib"],
                ["matplotlib is not installed (pip install matplotlib): a plain SVG file was written"],
            )
            written = draw_svg(options, x, series)
    except (Problem, OSError, ValueError) as problem:
        print(json.dumps({"error": str(problem)}, ensure_ascii=False))
        sys.exit(1)
    print(
        json.dumps(
            {"written": str(written), "points": len(x), "series": list(series), "notes": notes, "missing": missing},
            ensure_ascii=False,
        )
    )


if __name__ == "__main__":
    run_main(main, ("data", "out"))
