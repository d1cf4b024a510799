"""Build a page or dashboard as one HTML file from tables and a description in JSON; SKILL.md has its fields.

The file has its data inside and loads nothing: its content security policy allows only its own style and script.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import html
import json
import math
import sys
from pathlib import Path
from typing import Any, NoReturn

from page_data import (
    MAX_GROUPS,
    OTHER,
    Problem,
    Table,
    Value,
    aggregate,
    by_time,
    choose_rows,
    day_number,
    plain,
    read_table,
)
from skill_program import run_main
from svg_charts import Chart, Series, draw, full_number, short_number, ticks

STYLE, SCRIPT = (Path(__file__).with_name(name).read_text("utf-8") for name in ("page.css", "page.js"))
KINDS = ("line", "area", "bar", "barh", "scatter", "hist")
FIELDS = {
    "": {"title", "subtitle", "language", "figures", "charts", "tables", "text"},
    "figures": {"label", "value", "column", "aggregate", "unit", "note", "where", "data"},
    "charts": {
        *("title", "kind", "x", "y", "group", "aggregate", "by", "sort", "top", "stacked", "unit", "note", "wide"),
        *("where", "data", "bins"),
    },
    "tables": {"title", "columns", "sort", "rows", "where", "data", "note"},
}
MAX_BARS, MAX_POINTS, MAX_TABLE_ROWS = 60, 4000, 2000
BY = ("day", "month", "year")


def check_fields(part: dict[str, Any], kind: str, place: str) -> None:
    if not isinstance(part, dict):
        raise Problem(f"{place or 'The description'} is not an object.")
    if unknown := sorted(part.keys() - FIELDS[kind]):
        raise Problem(
            f"{place or 'The description'} has unknown fields: {', '.join(unknown)};"
            f" there are: {', '.join(sorted(FIELDS[kind]))}."
        )


def find_table(tables: list[Table], part: dict[str, Any], place: str) -> Table:
    name = part.get("data", tables[0].name)
    for table in tables:
        if table.name == name:
            return table
    raise Problem(f"{place}.data: there is no table {name!r}; there are: {', '.join(table.name for table in tables)}.")


def make_figure(tables: list[Table], part: dict[str, Any], place: str) -> dict[str, str]:
    """Return the label, value, unit and note of one number."""
    check_fields(part, "figures", place)
    value = str(part.get("value", ""))
    if not value:
        table = find_table(tables, part, place)
        name, function = aggregate(part, place)
        rows = choose_rows(table, part, place)
        if name in ("count", "distinct") and "column" in part:
            index = table.place_of(part["column"], f"{place}.column")
        elif name == "count":
            index = -1
        else:
            index = table.numbers(part.get("column"), f"{place}.column")
        found = function([row[index] for row in rows if index < 0 or row[index] is not None])
        value = "no data" if found is None else full_number(found)
    return {
        "label": str(part.get("label", "")),
        "value": value,
        **{key: str(part.get(key, "")) for key in ("unit", "note")},
    }


def split_series(
    table: Table, rows: list[list[Value]], part: dict[str, Any], place: str
) -> dict[str, list[tuple[Value, Value]]]:
    """Return the pairs of x and y for each series: one for each y, or for each value of `group`."""
    x = table.place_of(part.get("x"), f"{place}.x")
    wanted = part.get("y", [])
    names = wanted if isinstance(wanted, list) else [wanted]
    counted = not names
    ys = [table.numbers(name, f"{place}.y") for name in names]
    unit = part.get("by", "")
    if unit and unit not in BY:
        raise Problem(f"{place}.by: {unit!r} is none of {', '.join(BY)}.")
    if "group" not in part:
        columns = zip([str(name) for name in names] or ["count"], ys or [x])
        return {name: [(by_time(row[x], unit), 1.0 if counted else row[y]) for row in rows] for name, y in columns}
    if len(ys) > 1:
        raise Problem(f"{place}: `group` goes with one y.")
    group = table.place_of(part["group"], f"{place}.group")
    sizes: dict[str, float] = {}
    for row in rows:
        weight = 1.0 if counted else row[ys[0]]
        sizes[plain(row[group])] = sizes.get(plain(row[group]), 0.0) + abs(weight if isinstance(weight, float) else 0.0)
    kept = sorted(sizes, key=lambda name: -sizes[name])
    kept = kept if len(kept) <= MAX_GROUPS else kept[: MAX_GROUPS - 1]
    found: dict[str, list[tuple[Value, Value]]] = {name or "(none)": [] for name in kept}
    for row in rows:
        name = plain(row[group]) if plain(row[group]) in kept else OTHER
        found.setdefault(name or "(none)", []).append((by_time(row[x], unit), 1.0 if counted else row[ys[0]]))
    return found


def make_chart(tables: list[Table], part: dict[str, Any], place: str) -> Chart:
    """Return what a chart shows. Raises Problem."""
    check_fields(part, "charts", place)
    kind = part.get("kind", "bar")
    if kind not in KINDS:
        raise Problem(f"{place}.kind: {kind!r} is none of {', '.join(KINDS)}.")
    table = find_table(tables, part, place)
    rows = choose_rows(table, part, place)
    if not rows:
        raise Problem(f"{place}: no row fits `where`.")
    if kind == "hist":
        return make_histogram(table, rows, part, place)
    x_kind = table.kinds[table.place_of(part.get("x"), f"{place}.x")]
    pairs = split_series(table, rows, part, place)
    if kind == "scatter":
        return make_scatter(pairs, x_kind, part, place)
    _name, function = aggregate(part, place)
    sums: dict[str, dict[Value, float | None]] = {}
    for name, each in pairs.items():
        groups: dict[Value, list[float]] = {}
        for x, y in each:
            if x is not None:
                groups.setdefault(x, []).extend([y] if isinstance(y, float) else [])
        sums[name] = {x: function(values) for x, values in groups.items()}
    xs = order_x(sums, x_kind, part)
    if kind in ("bar", "barh") and len(xs) > MAX_BARS:
        raise Problem(f"{place}: {len(xs)} bars are not readable; use `top`, `by`, or a line.")
    if len(xs) > MAX_POINTS:
        raise Problem(f"{place}: {len(xs)} points are too many; use `by`.")
    places = x_places([plain(x) for x in xs], xs, x_kind)
    series = [Series(name, [values.get(x) for x in xs]) for name, values in sums.items()]
    stacked = bool(part.get("stacked")) and kind in ("bar", "barh")
    return Chart(kind, [plain(x) for x in xs], places, series, str(part.get("unit", "")), stacked, x_kind == "date")


def order_x(sums: dict[str, dict[Value, float | None]], kind: str, part: dict[str, Any]) -> list[Value]:
    """Return x in order: by value with `sort` or `top`, numbers and dates by size, text as it comes."""
    xs = list(dict.fromkeys(x for values in sums.values() for x in values))
    if part.get("sort") or part.get("top"):
        whole = {x: sum(values.get(x) or 0.0 for values in sums.values()) for x in xs}
        xs.sort(key=lambda x: whole[x], reverse=part.get("sort", "down") == "down")
        return xs[: int(part["top"])] if part.get("top") else xs
    if kind == "text":
        return xs
    return sorted(xs, key=lambda x: (isinstance(x, str), x))


def x_places(labels: list[str], xs: list[Value], kind: str) -> list[float] | None:
    if kind == "number":
        return [x for x in xs if isinstance(x, float)]
    padded = [label + "-01-01"[: max(0, 10 - len(label))] if len(label) == 4 else label for label in labels]
    days = [day_number(label) for label in padded] if kind == "date" else [None]
    known = [day for day in days if day is not None]
    return known if len(known) == len(labels) else None


def make_scatter(pairs: dict[str, list[tuple[Value, Value]]], kind: str, part: dict[str, Any], place: str) -> Chart:
    points = [(x, y, at) for at, each in enumerate(pairs.values()) for x, y in each if x is not None and y is not None]
    places = x_places([plain(x) for x, _y, _at in points], [x for x, _y, _at in points], kind)
    if places is None or not points:
        raise Problem(f"{place}.x: a scatter chart needs numbers or dates.")
    if len(points) > MAX_POINTS:
        raise Problem(f"{place}: {len(points)} points are too many; use `where`, or a histogram.")
    series = [
        Series(name, [y if at == index and isinstance(y, float) else None for _x, y, at in points])
        for index, name in enumerate(pairs)
    ]
    labels = [plain(x) for x, _y, _at in points]
    return Chart("scatter", labels, places, series, str(part.get("unit", "")), False, kind == "date")


def make_histogram(table: Table, rows: list[list[Value]], part: dict[str, Any], place: str) -> Chart:
    """Count the values of x in bins with round edges."""
    index = table.numbers(part.get("x"), f"{place}.x")
    values = [value for row in rows if isinstance(value := row[index], float) and math.isfinite(value)]
    if not values:
        raise Problem(f"{place}.x: there are no values.")
    edges = ticks(min(values), max(values), int(part.get("bins", 12)))
    counts = [0.0] * (len(edges) - 1)
    for value in values:
        bin_at = int((value - edges[0]) / (edges[1] - edges[0]))
        counts[min(max(bin_at, 0), len(counts) - 1)] += 1
    labels = [f"{short_number(low)}–{short_number(high)}" for low, high in zip(edges, edges[1:])]
    return Chart("hist", labels, None, [Series("count", list(counts))])


def table_html(tables: list[Table], part: dict[str, Any], place: str) -> tuple[str, int]:
    """Return a table that sorts by its heads, and the number of its rows."""
    check_fields(part, "tables", place)
    table = find_table(tables, part, place)
    rows = choose_rows(table, part, place)
    names = part.get("columns", table.columns)
    chosen = [table.place_of(name, f"{place}.columns") for name in names]
    if sort := str(part.get("sort", "")):
        index = table.place_of(sort.lstrip("-"), f"{place}.sort")
        present = [row for row in rows if row[index] is not None]
        present.sort(key=lambda row: row[index], reverse=sort.startswith("-"))  # type: ignore[arg-type, return-value]  # of one kind
        rows = present + [row for row in rows if row[index] is None]
    limit = min(int(part.get("rows", 200)), MAX_TABLE_ROWS)
    marks = {at: " class=n" if table.kinds[at] == "number" else "" for at in chosen}
    titles = [html.escape(name) for name in table.columns]
    head = "".join(f'<th scope="col"{marks[at]}><button>{titles[at]}</button></th>' for at in chosen)
    body = "".join(
        "<tr>" + "".join(cell_html(row[at], table.kinds[at]) for at in chosen) + "</tr>" for row in rows[:limit]
    )
    more = f"<p class=note>{limit:,} of {len(rows):,} rows.</p>" if len(rows) > limit else ""
    search = '<input type="search" placeholder="Filter" aria-label="Filter">'
    return (
        f"{search}<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}",
        min(limit, len(rows)),
    )


def cell_html(value: Value, kind: str) -> str:
    if kind == "number":
        return (
            f"<td class=n data-v={value!r}>{full_number(value)}</td>"
            if isinstance(value, float)
            else "<td class=n></td>"
        )
    return f"<td>{html.escape(plain(value))}</td>"


def chart_html(chart: Chart, part: dict[str, Any]) -> str:
    title = str(part.get("title", ""))
    legend = ""
    if len(chart.series) > 1:
        items = "".join(
            f'<li><i class="k{at}"></i>{html.escape(each.name)}</li>' for at, each in enumerate(chart.series)
        )
        legend = f"<ul class=legend>{items}</ul>"
    unit = f" <small>{html.escape(chart.unit)}</small>" if chart.unit else ""
    note = f"<p class=note>{html.escape(str(part['note']))}</p>" if part.get("note") else ""
    wide = " wide" if part.get("wide") else ""
    caption = f"<figcaption>{html.escape(title)}{unit}</figcaption>"
    return f'<figure class="card{wide}">{caption}{legend}{draw(chart, title)}{note}</figure>'


def figure_html(figure: dict[str, str]) -> str:
    safe = {key: html.escape(value) for key, value in figure.items()}
    unit = f" <small>{safe['unit']}</small>" if safe["unit"] else ""
    note = f"<p class=note>{safe['note']}</p>" if safe["note"] else ""
    return f"<div class=card><p class=label>{safe['label']}</p><p class=value>{safe['value']}{unit}</p>{note}</div>"


def digest(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def page_html(page: dict[str, Any], body: str) -> str:
    """Return the file. Its policy names the hashes of its style and its script; nothing else runs or loads."""
    policy = f"default-src 'none'; style-src {digest(STYLE)}; script-src {digest(SCRIPT)}"
    policy += "; base-uri 'none'; form-action 'none'"
    title, subtitle = html.escape(str(page.get("title", "Page"))), html.escape(str(page.get("subtitle", "")))
    language = html.escape(str(page.get("language", "en")), quote=True)
    return (
        f'<!doctype html>\n<html lang="{language}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<header><h1>{title}</h1>"
        f"{f'<p>{subtitle}</p>' if subtitle else ''}</header>\n<main>\n{body}\n</main>\n"
        f"<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def build(page: dict[str, Any], tables: list[Table]) -> tuple[str, dict[str, Any]]:
    """Return the page, and what is on it. Raises Problem."""
    check_fields(page, "", "")
    for name in ("figures", "charts", "tables", "text"):
        if not isinstance(page.get(name, []), list):
            raise Problem(f"{name} is not a list.")
    figures = [make_figure(tables, part, f"figures[{at}]") for at, part in enumerate(page.get("figures", []))]
    charts = [(make_chart(tables, part, f"charts[{at}]"), part) for at, part in enumerate(page.get("charts", []))]
    parts = [f"<section class=figures>{''.join(map(figure_html, figures))}</section>" if figures else ""]
    parts.append(f"<section class=charts>{''.join(chart_html(*each) for each in charts)}</section>" if charts else "")
    shown = []
    for at, part in enumerate(page.get("tables", [])):
        body, rows = table_html(tables, part, f"tables[{at}]")
        title = f"<h2>{html.escape(str(part['title']))}</h2>" if part.get("title") else ""
        note = f"<p class=note>{html.escape(str(part['note']))}</p>" if part.get("note") else ""
        parts.append(f'<section class="card table">{title}{body}{note}</section>')
        shown.append({"title": str(part.get("title", "")), "rows": rows})
    words = "".join(f"<p>{html.escape(str(each))}</p>" for each in page.get("text", []))
    parts.append(f"<section class=text>{words}</section>" if words else "")
    drawn = [
        {
            "title": str(part.get("title", "")),
            "kind": chart.kind,
            "x": len(chart.labels),
            "series": [each.name for each in chart.series],
        }
        for chart, part in charts
    ]
    found = {"figures": {each["label"]: each["value"] for each in figures}, "charts": drawn, "tables": shown}
    return page_html(page, "\n".join(filter(None, parts))), found


def fail(code: int, **facts: Any) -> NoReturn:
    print(json.dumps(facts, ensure_ascii=False))
    sys.exit(code)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("description", help="a JSON file, or the JSON itself")
    parser.add_argument("out", type=Path, help="the .html file to write")
    parser.add_argument("data", nargs="+", help="FILE, or NAME=FILE: .csv, .tsv, .json, .jsonl")
    options = parser.parse_args()
    try:
        given = options.description
        page = json.loads(given if given.lstrip().startswith("{") else Path(given).read_text("utf-8-sig"))
        text, found = build(page, [read_table(word) for word in options.data])
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text, encoding="utf-8")
    except (Problem, OSError, ValueError) as problem:
        fail(1, error=str(problem))
    print(json.dumps({"written": str(options.out), "bytes": len(text.encode()), **found}, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    run_main(main, ("description", "out", "data"))
