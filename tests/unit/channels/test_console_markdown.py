"""Markdown on the console: block by block while it streams, with the same rows at the end."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from channels.console.markdown import LiveMarkdown, render_markdown, split_blocks

TEXTS = {
    "words": "Hello! I am **a built-in demo** that plays *fixed* scenes: `plot` and ~~more~~.\n\nSecond ***one***.",
    "list": "Before:\n- `plot`: I write and run a small program, and send its chart\n- **ask**: a question\n\nAfter.",
    "numbers": "1. first\n2. second with snake_case_words and 2 * 3 * 4\n   more of it\n\n3. third",
    "code": "See:\n\n```python\nfor x in range(3):\n    print(x)\n\n```\n\nDone **well**.",
    "link": "Read [the manual](https://example.com/manual) first, then [x] and a[1].",
    "quote": "> quoted **words**\n> go on\n\n## A `head`\n\ntext\n\n---\n\nend",
    "nested": "- a\n  - b **c**\n\n    more of b\n- d\n\n  ```sh\n  ls -la\n  ```\n\nend",
}
MARKS = re.compile(r"\*\*|`|\]\(|~~|https:")
SGR = re.compile(r"\x1b\[[\d;]*m")
LINK = re.compile(r"\x1b\]8;[^\x1b]*\x1b\\")


def plain(rows: list[str]) -> list[str]:
    return [SGR.sub("", LINK.sub("", row)).rstrip() for row in rows]


def frames(text: str, columns: int, step: int = 1) -> list[list[str]]:
    """Return the rows after each piece of `step` characters."""
    live = LiveMarkdown()
    return [plain(live.render(text[:end], columns)) for end in [*range(step, len(text), step), len(text)]]


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("columns", [30, 60])
def test_a_growing_text_shows_no_marks_and_no_row_jumps(name: str, columns: int) -> None:
    shown = frames(TEXTS[name], columns)
    for before, after in pairwise(shown):
        assert not any(MARKS.search(row) for row in after), after
        settled = max(len(before) - 2, 0)  # the last word can move to the next row, and code ends with a blank row
        assert after[:settled] == before[:settled]
    assert shown[-1] == plain(render_markdown(TEXTS[name], columns).rstrip("\n").split("\n"))


def test_a_table_is_shown_when_it_is_complete() -> None:
    head, rest = "Numbers:\n\n| a | b |\n|---|---|\n| 1 | 2 |\n", "| 3 | 4 |\n"
    live = LiveMarkdown()
    assert plain(live.render(head, 40)) == ["Numbers:", "", "…"]
    assert not any(
        "|" in row for end in range(len(head), len(head + rest)) for row in live.render((head + rest)[:end], 40)
    )
    assert " 3  4" in plain(live.render(head + rest + "\nAfter", 40))


def test_a_text_that_is_taken_back_begins_anew() -> None:
    live = LiveMarkdown()
    live.render("One.\n\nTwo.\n\nThree", 40)
    assert plain(live.render("Other", 40)) == ["Other"]


def test_only_the_growing_block_is_rendered_again() -> None:
    """A long answer costs no more per word than a short one."""
    live = LiveMarkdown()
    text = "".join(f"Paragraph {n} has **words**.\n\n" for n in range(400))
    live.render(text, 40)
    assert split_blocks(text)[-1][1] == len(live._closed)
    assert len(live.render(text + "end", 40)) <= 502


def test_a_long_open_block_is_shown_from_near_its_end() -> None:
    rows = plain(LiveMarkdown().render("```\n" + "".join(f"line {n}\n" for n in range(20_000)), 40))
    assert " line 19999" in rows
    assert len(rows) < 2000


def test_commands_below_a_bold_title_stand_in_columns() -> None:
    text = "**Work**\n`/new` begin anew\n`/permissions` what I may do, and what I ask first\n\nNo columns: `a` b"
    rows = plain(render_markdown(text, 40).rstrip("\n").split("\n"))
    assert rows == [
        "Work",
        "/new          begin anew",
        "/permissions  what I may do, and what I",
        "              ask first",
        "",
        "No columns: a b",
    ]


def test_no_entity_becomes_a_control_character() -> None:
    assert "\x1b]0" not in render_markdown("&#27;]0;owned&#7; \x1b]0;owned\x07", 40)
