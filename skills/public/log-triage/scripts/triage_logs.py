"""Triage logs: messages as templates, the burst of errors, what began before it, a timeline and a summary.

Plain, JSON lines, nginx, Apache, syslog and stack traces; also in .gz and .zip.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import html
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from incident_analysis import (
    Burst,
    Change,
    Course,
    Timeline,
    courses,
    find_burst,
    find_changes,
    make_timeline,
    peak_rate,
)
from log_entries import UTC, Clock, Entry, parse_entries
from log_files import LogReader, Problem, RawLine
from log_templates import Grouping, Template
from skill_program import run_main

MAX_ENTRIES = 5_000_000
MAX_FOUND = 100
LEVELS = ("error", "warning", "info", "debug", "none")


class Triage(NamedTuple):
    """All that was found."""

    grouping: Grouping
    courses: list[Course]
    timeline: Timeline | None
    burst: Burst | None
    changes: list[Change]
    kinds: Counter[str]
    found: list[str]
    notes: list[str]


def clock_text(at: float, zone: datetime.tzinfo, seconds: bool = True) -> str:
    moment = datetime.datetime.fromtimestamp(at, zone)
    return moment.strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M")


def parse_zone(text: str) -> datetime.tzinfo:
    found = re.fullmatch(r"([+-])(\d\d):?(\d\d)", text)
    if not found:
        return UTC
    minutes = int(found[2]) * 60 + int(found[3])
    return datetime.timezone(datetime.timedelta(minutes=-minutes if found[1] == "-" else minutes))


def parse_moment(text: str, zone: datetime.tzinfo) -> float:
    """Return a time of the command line. Raises ValueError."""
    moment = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()


def read_lines(reader: LogReader, paths: list[Path]) -> Iterator[RawLine]:
    for path in paths:
        if not path.is_file():
            raise Problem(f"{path}: there is no such file.")
        yield from reader.lines(path)


def wanted(entries: Iterator[Entry], options: argparse.Namespace, zone: datetime.tzinfo) -> Iterator[Entry]:
    """Leave out what is outside of --from and --to. Entries without a time stay only if neither is given."""
    low = parse_moment(options.start, zone) if options.start else None
    high = parse_moment(options.end, zone) if options.end else None
    for entry in entries:
        at = entry.at
        if (low is None and high is None) or (at is not None and (low or at) <= at and (high is None or at < high)):
            yield entry


def triage(options: argparse.Namespace) -> Triage:
    """Read everything once, then analyse. Raises Problem, OSError and ValueError."""
    zone = parse_zone(options.zone)
    reader, grouping, kinds = LogReader(options.max_mb << 20), Grouping(), Counter[str]()
    found: list[str] = []
    for count, entry in enumerate(wanted(parse_entries(read_lines(reader, options.files), Clock(zone)), options, zone)):
        if count == MAX_ENTRIES:
            reader.notes.append(f"Only the first {MAX_ENTRIES} entries were read.")
            break
        grouping.add(entry)
        kinds[entry.kind] += 1
        if options.find and options.find.lower() in entry.line.text.lower() and len(found) < MAX_FOUND:
            found.append(f"{entry.line.file}:{entry.line.number}: {entry.line.text[:300]}")
    made = courses(grouping)
    timeline = make_timeline(grouping, options.step)
    burst = find_burst(grouping, timeline) if timeline else None
    changes = find_changes(grouping, made, burst, options.before * 60) if burst else []
    if kinds["no time"] and timeline:
        reader.notes.append(f"{kinds['no time']} entries have no time; they are counted, but not in the timeline.")
    return Triage(grouping, made, timeline, burst, changes, kinds, found, reader.notes)


def template_row(result: Triage, number: int, zone: datetime.tzinfo) -> dict[str, Any]:
    """Return what is known of a template."""
    template, times = result.grouping.templates[number], result.courses[number].times
    peak, minute = peak_rate(times)
    row: dict[str, Any] = {"level": template.level, "count": template.count, "template": template.name}
    if times:
        row |= {"first": clock_text(times[0], zone), "last": clock_text(times[-1], zone)}
        row |= {"peak_per_minute": peak, "peak_at": clock_text(minute, zone, seconds=False)}
    row |= {"example": template.example, "text": template.text}
    return row | ({"frame": template.frame} if template.frame else {})


def ranked(result: Triage, level: str = "") -> list[int]:
    """Return the templates of a level, or of all, the most frequent first."""
    templates = result.grouping.templates
    chosen = [number for number, each in enumerate(templates) if not level or each.level == level]
    return sorted(chosen, key=lambda number: (-templates[number].count, number))


def exceptions(templates: list[Template]) -> list[dict[str, Any]]:
    """Return the exceptions with their number, the most frequent first."""
    counts = Counter[str]()
    places: dict[str, Template] = {}
    for each in templates:
        if each.exception:
            counts[each.exception] += each.count
            places.setdefault(each.exception, each)
    return [
        {"exception": name, "count": count, "frame": places[name].frame, "example": places[name].example}
        for name, count in counts.most_common(20)
    ]


def as_json(result: Triage, options: argparse.Namespace) -> dict[str, Any]:
    zone = parse_zone(options.zone)
    levels = Counter[str]()
    for template in result.grouping.templates:
        levels[template.level] += template.count
    known = [course.times for course in result.courses if course.times]
    found: dict[str, Any] = {
        "entries": len(result.grouping.which),
        "formats": dict(result.kinds.most_common()),
        "levels": {level: levels[level] for level in LEVELS if levels[level]},
        "templates": len(result.grouping.templates),
    }
    if known:
        found["from"] = clock_text(min(times[0] for times in known), zone)
        found["to"] = clock_text(max(times[-1] for times in known), zone)
    if result.burst:
        burst = result.burst
        found["burst"] = {
            "onset": clock_text(burst.start, zone),
            "last": clock_text(burst.end, zone),
            "errors": burst.errors,
            "peak": f"{burst.peak_errors} errors in {span_text(result.timeline)} from {clock_text(burst.peak, zone)}",
        }
    found["before"] = [
        {
            "change": change.kind,
            "at": clock_text(change.at, zone),
            "times": change.times,
            "expected": round(change.before, 1),
        }
        | {"level": template.level, "template": template.name, "example": template.example, "text": template.text}
        for change in result.changes[: options.top]
        for template in [result.grouping.templates[change.number]]
    ]
    found["errors"] = [template_row(result, number, zone) for number in ranked(result, "error")[: options.top]]
    found["warnings"] = [template_row(result, number, zone) for number in ranked(result, "warning")[: options.top // 2]]
    found["exceptions"] = exceptions(result.grouping.templates)
    if options.find:
        found["found"] = result.found
    return found | {"notes": result.notes}


def span_text(timeline: Timeline | None) -> str:
    step = timeline.step if timeline else 0
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if step >= unit:
            return f"{step // unit} {name}"
    return f"{step} s"


def table(columns: str, rows: list[dict[str, Any]]) -> list[str]:
    """Return the lines of a table. What comes from logs is code, so that a reader sees its marks and no markup."""

    def cell(row: dict[str, Any], name: str) -> str:
        text = " ".join(str(row.get(name, "")).split()).replace("|", "\\|")[:200]
        return f"`{text.replace('`', chr(39))}`" if text and name in ("template", "text", "frame", "example") else text

    head = columns.split()
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *([cell(row, name) for name in head] for row in rows))]
    return ["", lines[0], "|" + " --- |" * len(head), *lines[1:], ""] if rows else ["", "None.", ""]


def write_summary(found: dict[str, Any], options: argparse.Namespace, path: Path) -> None:
    zone = f"UTC{options.zone}" if options.zone else "UTC"
    levels = ", ".join(
        f"{count} {level if level != 'none' else 'without a level'}" for level, count in found["levels"].items()
    )
    lines = ["# Log triage", "", f"{found['entries']} entries ({levels}) in {found['templates']} templates."]
    if "from" in found:
        lines.append(f"From {found['from']} to {found['to']} ({zone}).")
    lines += ["", "## Burst of errors", ""]
    if burst := found.get("burst"):
        lines.append(
            f"It began at **{burst['onset']}**, lasted until {burst['last']}, and has {burst['errors']} errors."
        )
        lines.append(f"The peak: {burst['peak']}.")
    else:
        lines.append("No entry with a time is an error.")
    lines += ["", f"## New or more frequent in the {options.before:g} minutes before, or silent since then"]
    lines += table("change at times expected level text example", found["before"])
    lines += ["## Errors", *table("count first last peak_per_minute template example", found["errors"])]
    lines += ["## Warnings", *table("count first last peak_per_minute template example", found["warnings"])]
    lines += ["## Exceptions", *table("exception count frame example", found["exceptions"])]
    lines += ["## Notes", "", *([f"- {note}" for note in found["notes"]] or ["None."])]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_tables(result: Triage, options: argparse.Namespace, folder: Path) -> None:
    zone = parse_zone(options.zone)
    keys = ["level", "count", "first", "last", "peak_per_minute", "peak_at", "template", "example", "frame", "text"]
    with (folder / "templates.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, keys)
        writer.writeheader()
        writer.writerows(template_row(result, number, zone) for number in ranked(result))
    with (folder / "timeline.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["time", "lines", "warnings", "errors"])
        if timeline := result.timeline:
            for place, counts in enumerate(zip(timeline.lines, timeline.warnings, timeline.errors)):
                rows.writerow([clock_text(timeline.start + place * timeline.step, zone), *counts])


def draw_timeline(result: Triage, options: argparse.Namespace, path: Path) -> None:
    """Draw lines, warnings and errors as stacked bars, with the onset."""
    timeline, zone = result.timeline, parse_zone(options.zone)
    if not timeline:
        return
    width, height, left, bottom = 960, 280, 60, 40
    size, most = len(timeline.lines), max(timeline.lines)
    each = (width - left - 20) / size
    scale = (height - bottom - 50) / most
    sized = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="sans-serif"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {sized} font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="{left}" y="20" font-size="14">Entries in {span_text(timeline)}</text>',
    ]
    for place, (whole, warnings, errors) in enumerate(zip(timeline.lines, timeline.warnings, timeline.errors)):
        y = float(height - bottom)
        for count, color in ((errors, "#D55E00"), (warnings, "#E69F00"), (whole - warnings - errors, "#9bb3c8")):
            y -= count * scale
            if count:
                bar = f'width="{max(each - 0.5, 0.5):.2f}" height="{count * scale:.2f}" fill="{color}"'
                parts.append(f'<rect x="{left + place * each:.2f}" y="{y:.2f}" {bar}/>')
    for index, (name, color) in enumerate((("errors", "#D55E00"), ("warnings", "#E69F00"), ("others", "#9bb3c8"))):
        parts.append(f'<rect x="{width - 270 + index * 85}" y="10" width="10" height="10" fill="{color}"/>')
        parts.append(f'<text x="{width - 256 + index * 85}" y="20">{name}</text>')
    parts.append(f'<text x="{left - 6}" y="{height - bottom - most * scale + 4:.0f}" text-anchor="end">{most}</text>')
    parts.append(f'<text x="{left - 6}" y="{height - bottom}" text-anchor="end">0</text>')
    for place in sorted({0, size // 2, size - 1}):
        label = html.escape(clock_text(timeline.start + place * timeline.step, zone))
        anchor = "start" if place == 0 else "end" if place == size - 1 else "middle"
        parts.append(
            f'<text x="{left + (place + 0.5) * each:.0f}" y="{height - 20}" text-anchor="{anchor}">{label}</text>'
        )
    if result.burst:
        x = left + (result.burst.start - timeline.start) / timeline.step * each
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="34" y2="{height - bottom}" stroke="#000" stroke-dasharray="4 3"/>'
        )
        side = "end" if x > width / 2 else "start"
        shown = clock_text(result.burst.start, zone)[11:]
        parts.append(
            f'<text x="{x + (-5 if side == "end" else 5):.1f}" y="42" text-anchor="{side}">onset {shown}</text>'
        )
    path.write_text("\n".join([*parts, "</svg>"]) + "\n", encoding="utf-8")


def fail(code: int, **facts: Any) -> NoReturn:
    print(json.dumps(facts, ensure_ascii=False))
    sys.exit(code)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="write summary.md, timeline and templates here")
    parser.add_argument("--from", dest="start", metavar="TIME", help="such as '2026-11-23 10:40'")
    parser.add_argument("--to", dest="end", metavar="TIME")
    parser.add_argument("--before", type=float, default=15, metavar="MINUTES", help="looked at ahead of the onset")
    parser.add_argument(
        "--step", type=int, default=0, metavar="SECONDS", help="of the timeline; default: by its length"
    )
    parser.add_argument("--zone", default="", help="of times without one, such as +02:00; default: UTC")
    parser.add_argument("--find", default="", metavar="TEXT", help="list lines that contain it")
    parser.add_argument("--top", type=int, default=20, help="templates that are listed")
    parser.add_argument("--max-mb", type=int, default=500, help="that are unpacked")
    options = parser.parse_args()
    try:
        result = triage(options)
    except (Problem, OSError, ValueError) as problem:
        fail(1, error=str(problem))
    if not result.grouping.which:
        fail(1, error="There are no entries.", notes=result.notes)
    found = as_json(result, options)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        write_summary(found, options, options.out / "summary.md")
        write_tables(result, options, options.out)
        draw_timeline(result, options, options.out / "timeline.svg")
        names = ["summary.md", "templates.csv", "timeline.csv", *(["timeline.svg"] if result.timeline else [])]
        found["written"] = [str(options.out / name) for name in names]
    print(json.dumps(found, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    run_main(main, ("files",))
