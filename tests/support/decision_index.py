"""The index of the decisions, made from the pages. `python -m tests.support.decision_index` writes it."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"
INDEX = FOLDER / "README.md"
HEAD = """# Decisions

Choices that surprise, each with its reason. A decision that is replaced stays here with its new status. A page begins
with its title and a line `YYYY-MM-DD, in force.` or `YYYY-MM-DD, replaced by NNNN.`; `make docs` writes this list.

| | decision | made | status |
|---|---|---|---|
"""
TITLE = re.compile(r"# (?:\d+[.:] )?(.+)")
STATUS = re.compile(r"(\d{4}-\d\d-\d\d), (in force|replaced by \d{4})\.")


def decision_index() -> str:
    """Return the index. Raises ValueError for a page without a title, or without date and status in its third line."""
    return HEAD + "".join(map(_row, sorted(FOLDER.glob("[0-9]*.md"))))


def _row(page: Path) -> str:
    lines = page.read_text("utf-8").splitlines()
    title, status = TITLE.fullmatch(lines[0]), STATUS.fullmatch(lines[2])
    if not (title and status):
        raise ValueError(f"{page.name} begins with no title and `YYYY-MM-DD, in force.`")
    name = title[1][0].upper() + title[1][1:]
    return f"| {page.name[:4]} | [{name}]({page.name}) | {status[1]} | {status[2]} |\n"


if __name__ == "__main__":
    INDEX.write_text(decision_index(), "utf-8")
