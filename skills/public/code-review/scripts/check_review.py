"""Check a review against the tree: places exist, quotes are on their lines, every piece of the diff was reviewed."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from source_files import read_text

SEVERITIES = ("critical", "high", "medium", "low")
FINDING = re.compile(r"### (\d+)\. \[([^\]]*)\] (.+)")
PLACE = re.compile(r"`([^`\s:]+):(\d+)(?:[-–](\d+))?`")
SKELETON = """# Review

## Summary

## Findings

### 1. [high] Say the fault, not the place
`path/file.py:1-2`
```
the lines, copied
```
What happens, for which input; what to do instead.

## Reviewed

{pieces}

## Not reviewed

{left_out}
"""


class Finding(NamedTuple):
    """One finding: where its heading is in the report, and the lines below it."""

    number: int
    severity: str
    title: str
    lines: list[str]


def split_report(text: str) -> tuple[dict[str, list[str]], list[Finding]]:
    """Return the sections by their lower-case titles, and the findings. Headings in code blocks do not count."""
    sections: dict[str, list[str]] = {}
    findings: list[Finding] = []
    section, fenced = "", False
    for line in text.splitlines():
        fenced ^= line.lstrip().startswith("```")
        if not fenced and line.startswith("## "):
            section = line[3:].strip().lower()
            sections[section] = []
        elif not fenced and section == "findings" and (found := FINDING.fullmatch(line.strip())):
            findings.append(Finding(int(found[1]), found[2].strip().lower(), found[3], []))
        elif section:
            sections[section].append(line)
            if section == "findings" and findings:
                findings[-1].lines.append(line)
    return sections, findings


def squeezed(line: str) -> str:
    return " ".join(line.split())


def first_block(lines: list[str]) -> list[str]:
    """Return the first code block, without empty lines and indentation."""
    block: list[str] = []
    inside = False
    for line in lines:
        if line.lstrip().startswith("```"):
            if inside:
                break
            inside = True
        elif inside and line.strip():
            block.append(squeezed(line))
    return block


def check_finding(finding: Finding, root: Path) -> tuple[list[str], list[tuple[str, int]]]:
    """Return what is wrong with a finding, and the places that it names."""
    name = f"Finding {finding.number}"
    problems = (
        [] if finding.severity in SEVERITIES else [f"{name}: [{finding.severity}] is none of {', '.join(SEVERITIES)}."]
    )
    text = "\n".join(finding.lines)
    places = [(found[1], int(found[2]), int(found[3] or found[2])) for found in PLACE.finditer(text)]
    if not places:
        return [*problems, f"{name} names no place, such as `path/file.py:12`."], []
    quote = first_block(finding.lines)
    if not quote:
        problems.append(f"{name} quotes no line: copy the lines of its place into a block.")
    for at, (file, start, end) in enumerate(places):
        path = root / file
        if ".." in Path(file).parts or Path(file).is_absolute() or not path.is_file():
            problems.append(f"{name}: there is no file {file}.")
            continue
        rows = (read_text(path) or "").splitlines()
        if not 1 <= start <= end <= len(rows):
            problems.append(f"{name}: {file} has {len(rows)} lines, not {start}-{end}.")
        elif at == 0 and quote:
            problems += check_quote(name, quote, rows, file, start, end)
    return problems, [(file, start) for file, start, _end in places]


def check_quote(name: str, quote: list[str], rows: list[str], file: str, start: int, end: int) -> list[str]:
    """Return a problem if the quoted lines are not among the named ones, in their order."""
    named = [squeezed(row) for row in rows[start - 1 : end] if row.strip()]
    place = 0
    for row in named:
        if place < len(quote) and row == quote[place]:
            place += 1
    if place == len(quote):
        return []
    elsewhere = [number for number, row in enumerate(rows, 1) if squeezed(row) == quote[place]][:3]
    where = f"it is in line {', '.join(map(str, elsewhere))}" if elsewhere else "it is nowhere in this file"
    return [f"{name}: `{quote[place][:80]}` is not in {file}:{start}-{end}; {where}."]


def check_report(text: str, root: Path, pieces: Path | None) -> dict[str, Any]:
    sections, findings = split_report(text)
    wanted = ("summary", "findings", "reviewed", "not reviewed")
    problems = [f"The section `## {name.capitalize()}` is missing." for name in wanted if name not in sections]
    problems += [] if "".join(sections.get("summary", [])).strip() else ["The summary is empty."]
    if [each.number for each in findings] != list(range(1, len(findings) + 1)):
        problems.append("The findings are not numbered 1, 2, 3, …")
    if not findings and not re.search(
        r"\bnone\b|\bno findings\b|无", " ".join(sections.get("findings", [])), re.IGNORECASE
    ):
        problems.append("There are no findings; write `None.` if that is so.")
    places: list[tuple[str, int]] = []
    for finding in findings:
        said, named = check_finding(finding, root)
        problems += said
        places += named
    warnings: list[str] = []
    if pieces:
        index = json.loads((pieces / "pieces.json").read_text("utf-8"))
        reviewed = set(re.findall(r"\b\d{2,4}\b", " ".join(sections.get("reviewed", []))))
        missed = [piece["piece"] for piece in index["pieces"] if piece["piece"] not in reviewed]
        problems += [f"Piece {', '.join(missed)} is not listed under `## Reviewed`."] if missed else []
        lines = {
            (each["file"], low, high)
            for piece in index["pieces"]
            for each in piece["files"]
            for low, high in each["lines"]
        }
        warnings = [
            f"{file}:{start} is outside of the diff."
            for file, start in places
            if not any(file == name and low <= start <= high for name, low, high in lines)
        ]
    counts = {severity: sum(each.severity == severity for each in findings) for severity in SEVERITIES}
    return {"ok": not problems, "problems": problems, "warnings": warnings, "findings": counts}


def skeleton(pieces: Path | None) -> str:
    index = json.loads((pieces / "pieces.json").read_text("utf-8")) if pieces else {"pieces": [], "left_out": []}
    left_out = "\n".join(f"- {name} (generated or binary)" for name in index["left_out"]) or "None."
    return SKELETON.format(
        pieces=", ".join(each["piece"] for each in index["pieces"]) or "The files read:", left_out=left_out
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path, nargs="?", help="Markdown; SKILL.md shows its form")
    parser.add_argument("--root", type=Path, default=Path(), help="the repository (default: here)")
    parser.add_argument("--pieces", type=Path, metavar="FOLDER", help="of split_diff.py")
    parser.add_argument("--skeleton", type=Path, metavar="FILE", help="write an empty report here")
    options = parser.parse_args()
    if bool(options.report) == bool(options.skeleton):
        parser.error("name a report, or --skeleton FILE")
    try:
        if options.skeleton:
            if options.skeleton.exists():
                parser.error(f"{options.skeleton} exists already")
            options.skeleton.write_text(skeleton(options.pieces), encoding="utf-8")
            result: dict[str, Any] = {"ok": True, "written": str(options.skeleton)}
        else:
            result = check_report(options.report.read_text("utf-8"), options.root, options.pieces)
    except (OSError, ValueError, KeyError) as error:
        print(json.dumps({"error": str(error)}))
        sys.exit(2)
    print(json.dumps(result, ensure_ascii=False, indent=1))
    sys.exit(0 if result["ok"] else 1)


if __name__ == "__main__":
    main()
