"""Check minutes against their transcript: sections, sources of decisions, and owner and date of each task."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

from parse_transcript import Line, clock_of, parse_transcript, seconds_of

SECTIONS = {
    "attendees": ("attendees", "participants", "参会人", "与会者"),
    "summary": ("summary", "摘要", "概要"),
    "decisions": ("decisions", "决定", "决议"),
    "action items": ("action items", "actions", "行动项", "待办"),
    "open questions": ("open questions", "未决问题", "待定问题"),
}
OPTIONAL = {"chapters": ("chapters", "章节")}
CHAPTER = re.compile(r"((?:\d+:)?\d\d:\d\d)\s+\S.*")
NOTHING = ("none", "none.", "无", "无。")
NO_OWNER = ("unassigned", "未指定")
NO_DATE = ("not agreed", "未定")
REFERENCE = re.compile(r"\bL(\d+)(?:\s*[-–]\s*L?(\d+))?")


class Findings(NamedTuple):
    """What is wrong, what to look at, and the counts."""

    problems: list[str]
    warnings: list[str]
    counts: dict[str, int]


def split_sections(text: str) -> dict[str, list[str]]:
    """Return the lines of each section under its English name."""
    sections: dict[str, list[str]] = {}
    current = ""
    for line in text.splitlines():
        if match := re.match(r"##\s+(.*\S)", line):
            title = match[1].lower().rstrip(":：")
            current = next((name for name, titles in {**SECTIONS, **OPTIONAL}.items() if title in titles), title)
            sections.setdefault(current, [])
        elif line.strip() and current:
            sections[current].append(line.strip())
    return sections


def cited_lines(text: str) -> set[int]:
    return {number for first, last in REFERENCE.findall(text) for number in range(int(first), int(last or first) + 1)}


def list_items(lines: list[str]) -> list[str]:
    """Return the items of a list; a line that is no item continues the one before it."""
    items: list[str] = []
    for line in lines:
        if match := re.match(r"(?:[-*]|\d+[.)])\s+(.*)", line):
            items.append(match[1])
        elif items:
            items[-1] += f" {line}"
        elif line.lower() not in NOTHING:
            items.append(line)
    return [item for item in items if item.lower() not in NOTHING]


def check_actions(lines: list[str], people: set[str]) -> tuple[list[str], int]:
    """Check the table `| Task | Owner | Due | Source |`. Returns the problems and the number of tasks."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    body = [row for row in rows[1:] if not re.fullmatch(r"[-:\s]*", "".join(row))]
    if not body:
        return (
            [] if any(line.lower() in NOTHING for line in lines) else ["Action items: write a table, or `None`."]
        ), 0
    problems = []
    for number, row in enumerate(body, 1):
        task, owner, due, source = (row + [""] * 4)[:4]
        if not task:
            problems.append(f"Action {number}: no task.")
        unknown = [
            name
            for name in re.split(r"\s*[,、&]\s*|\s+and\s+", owner)
            if name.lower() not in people and name not in NO_OWNER
        ]
        if unknown:
            problems.append(
                f"Action {number}: owner {', '.join(unknown)!r} is not an attendee; "
                f"write `{NO_OWNER[0]}` if nobody took it."
            )
        if not re.fullmatch(r"\d{4}-\d\d-\d\d", due) and due not in NO_DATE:
            problems.append(f"Action {number}: due {due!r} is neither a date (YYYY-MM-DD) nor `{NO_DATE[0]}`.")
        if not cited_lines(source):
            problems.append(f"Action {number}: no source line, such as L12.")
    return problems, len(body)


def check_chapters(items: list[str], transcript: list[Line]) -> list[str]:
    """Check `00:12:30 Title (L40-L72)`: times rise, and each is that of its first line."""
    problems, before = [], -1
    times = {line.number: seconds_of(line.time) for line in transcript}
    for number, item in enumerate(items, 1):
        found, cited = CHAPTER.fullmatch(item), sorted(cited_lines(item))
        if not cited or not (found or all(seconds is None for seconds in times.values())):
            problems.append(f"Chapter {number}: write `12:30 Title (L40-L72)`.")
            continue
        at, known = seconds_of(found[1]) if found else None, times.get(cited[0])
        if at is not None and known is not None and at != known:
            problems.append(f"Chapter {number}: L{cited[0]} is at {clock_of(known)}, not {clock_of(at)}.")
        if cited[0] <= before:
            problems.append(f"Chapter {number} does not begin after the one before it.")
        before = cited[0]
    return problems


def check_minutes(text: str, transcript: list[Line]) -> Findings:
    sections = split_sections(text)
    problems = [f"The section `## {name.capitalize()}` is missing." for name in SECTIONS if name not in sections]
    if not re.search(r"\b\d{4}-\d\d-\d\d\b", text.split("\n## ")[0]):
        problems.append("The head has no date (YYYY-MM-DD).")
    attendees = {re.split(r"\s*[(（,:–]", item)[0].lower() for item in list_items(sections.get("attendees", []))}
    speakers = {line.speaker for line in transcript if line.speaker}
    problems += [
        f"{name} speaks in the transcript but is not among the attendees."
        for name in sorted(speakers)
        if name.lower() not in attendees
    ]
    decisions = list_items(sections.get("decisions", []))
    problems += [
        f"Decision {number}: no source line, such as (L12)."
        for number, item in enumerate(decisions, 1)
        if not cited_lines(item)
    ]
    found, actions = check_actions(sections.get("action items", []), attendees)
    found += check_chapters(list_items(sections.get("chapters", [])), transcript)
    body = "\n".join(line for name, lines in sections.items() if name != "chapters" for line in lines)
    cited = cited_lines(text)
    covered = cited_lines(body)  # a chapter does not report what was decided in it
    known = {line.number for line in transcript}
    problems += found + [f"L{number} is cited but not in the transcript." for number in sorted(cited - known)]
    warnings = [
        f"L{line.number} may be {'an action' if 'action' in line.hints else 'a decision'} and is not cited: "
        f"{line.speaker}: {line.text[:80]}"
        for line in transcript
        if line.number not in covered and {"action", "decision"} & {*line.hints}
    ]
    return Findings(
        problems,
        warnings,
        {"attendees": len(attendees), "decisions": len(decisions), "actions": actions, "cited_lines": len(cited)},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("minutes", type=Path, help="Markdown; SKILL.md shows the structure")
    parser.add_argument("transcript", type=Path)
    options = parser.parse_args()
    found = check_minutes(
        options.minutes.read_text("utf-8"), parse_transcript(options.transcript.read_text("utf-8-sig"))
    )
    print(json.dumps({"ok": not found.problems, **found._asdict()}, ensure_ascii=False, indent=1))
    sys.exit(1 if found.problems else 0)


if __name__ == "__main__":
    main()
