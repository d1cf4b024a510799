"""The index of the decisions, kept and archived. `python -m tests.support.decision_index` writes it."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"
INDEX = FOLDER / "README.md"
HEAD = """# Decisions

Choices that surprise, each with its reason. A page begins with its title and a line `YYYY-MM-DD, in force.` or
`YYYY-MM-DD, replaced by NNNN.` A decision that is replaced, or that the code shows by now, is a paragraph of a page
of the archive, with the same line. Numbers stay. `make docs` writes this list.

| | decision | made | status |
|---|---|---|---|
"""
ARCHIVED = """
## Archived

| | decision | made | status |
|---|---|---|---|
"""
TITLE = re.compile(r"# (?:\d+[.:] )?(.+)")
SECTION = re.compile(r"(\d{4})\. (.+)")
STATUS = re.compile(r"(\d{4}-\d\d-\d\d), (in force|replaced by \d{4})\.")


def decision_index() -> str:
    """Return the index. Raises ValueError for one without title, date or status, and for a number twice."""
    kept = [_kept(page) for page in sorted(FOLDER.glob("[0-9]*.md"))]
    archived = sorted(row for page in FOLDER.glob("archive-*.md") for row in _archived(page))
    numbers = [row[2:6] for row in kept + archived]
    if twice := {number for number in numbers if numbers.count(number) > 1}:
        raise ValueError(f"decisions have one number each, unlike {sorted(twice)}")
    return HEAD + "".join(kept) + ARCHIVED + "".join(archived)


def _kept(page: Path) -> str:
    lines = page.read_text("utf-8").splitlines()
    title = TITLE.fullmatch(lines[0])
    return _row(page.name, page.name[:4], title and title[1], lines[2], page.name)


def _archived(page: Path) -> list[str]:
    rows = []
    for section in page.read_text("utf-8").split("\n## ")[1:]:
        lines = section.splitlines()
        found = SECTION.fullmatch(lines[0])
        number, title = (found[1], found[2]) if found else ("", None)
        anchor = re.sub(r"[^\w -]", "", lines[0].lower()).replace(" ", "-")  # as GitHub makes it
        rows.append(_row(page.name, number, title, lines[2], f"{page.name}#{anchor}"))
    return rows


def _row(name: str, number: str, title: str | None, line: str, target: str) -> str:
    status = STATUS.fullmatch(line)
    if not (title and status):
        raise ValueError(f"{name}: {number or 'a decision'} begins with no title and `YYYY-MM-DD, in force.`")
    return f"| {number} | [{title[0].upper() + title[1:]}]({target}) | {status[1]} | {status[2]} |\n"


if __name__ == "__main__":
    INDEX.write_text(decision_index(), "utf-8")
