"""Splitting Markdown: nothing is lost, nothing exceeds the limit, fences and tables stay intact."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from channels.console.markdown import LiveMarkdown, render_markdown
from channels.matrix.html import to_html
from channels.shared.markdown import JOINER, open_wide_emphasis, split_markdown, utf16_length
from channels.telegram.markdown import to_entities
from channels.telegram.rich import to_rich_html
from channels.whatsapp.markdown import to_whatsapp

MARKDOWN = MarkdownIt("commonmark").enable("table")
WORD = st.text(st.characters(categories=["L", "N", "So"]), min_size=1, max_size=12)
LINE = st.lists(WORD, min_size=1, max_size=12).map(" ".join)
FENCE = st.lists(LINE, max_size=20).map(lambda lines: "```py\n" + "\n".join(lines) + "\n```")
TABLE = st.lists(WORD, min_size=1, max_size=20).map(
    lambda cells: "| head | value |\n|---|---|\n" + "\n".join(f"| {cell} | {cell} |" for cell in cells)
)
LIST = st.lists(LINE, min_size=1, max_size=10).map(lambda lines: "\n".join(f"- {line}" for line in lines))
BLOCK = st.one_of(LINE, FENCE, TABLE, LIST, LINE.map(lambda line: f"> {line}"), LINE.map(lambda line: f"# {line}"))
DOCUMENT = st.lists(BLOCK, max_size=12).map("\n\n".join)
WILD = st.text(st.sampled_from("`~>|-*#1. \n\tab中😀\\[]()<!\r"), max_size=400)


def open_fences(chunk: str) -> list[str]:
    """Return the fences of a chunk that are not closed."""
    last = chunk.rstrip().split("\n")[-1].strip(" >")
    return [
        token.info
        for token in MARKDOWN.parse(chunk)
        if token.type == "fence" and token.map and token.map[1] >= chunk.count("\n") + 1 and last.strip("`~")
    ]


def test_utf16_counts_what_telegram_counts() -> None:
    assert [utf16_length(text) for text in ("abc", "你好", "😀", "\ud800")] == [3, 2, 2, 1]


@pytest.mark.parametrize("size", [len, utf16_length])
@given(text=DOCUMENT, limit=st.integers(40, 400))
@settings(max_examples=60, deadline=None)
def test_words_appear_once_in_order_and_within_the_limit(size: object, text: str, limit: int) -> None:
    measure = utf16_length if size is utf16_length else len
    chunks = split_markdown(text, limit, measure)
    assert all(measure(chunk) <= limit for chunk in chunks)
    assert not any(open_fences(chunk) for chunk in chunks)
    repeated = re.compile(r"^(```(py)?|\| head \| value \||\|---\|---\|)$", re.M)

    def content(part: str) -> str:
        return "".join(repeated.sub("", part).split())

    assert "".join(map(content, chunks)) == content(text)


@given(text=WILD, limit=st.integers(8, 60))
@settings(max_examples=300, deadline=None)
def test_any_text_is_split_within_the_limit_without_loss(text: str, limit: int) -> None:
    chunks = split_markdown(text, limit, utf16_length)
    assert all(utf16_length(chunk) <= limit for chunk in chunks)
    kept = [char for char in "".join(chunks) if char in "中😀"]
    assert kept == [char for char in text if char in "中😀"]


def test_text_that_fits_is_unchanged() -> None:
    assert split_markdown("  a\r\nb  \n", 100) == ["  a\r\nb  \n"]
    assert split_markdown(" \n ", 100) == []


def test_a_fence_is_closed_and_reopened_with_its_language() -> None:
    code = "\n".join(f"line {number:03}" for number in range(30))
    chunks = split_markdown(f"Before.\n\n```python\n{code}\n```\n\nAfter.", 120)
    assert len(chunks) > 2
    inner = [chunk for chunk in chunks if "line" in chunk]
    assert all("```python\n" in chunk and chunk.count("```") == 2 for chunk in inner)
    assert chunks[0] == "Before."
    assert chunks[-1].endswith("After.")


def test_a_fence_in_a_list_keeps_its_indentation() -> None:
    code = "\n".join(f"  line {number:03}" for number in range(30))
    chunks = split_markdown(f"- first\n- ```sh\n{code}\n  ```\n- last", 100)
    assert all(chunk.count("```") % 2 == 0 for chunk in chunks)
    assert chunks[1].startswith("  ```sh\n  line")
    assert re.findall(r"line (\d+)", "\n".join(chunks)) == [f"{number:03}" for number in range(30)]


def test_a_split_after_an_opening_fence_leaves_no_empty_block() -> None:
    chunks = split_markdown("> words words words words\n> ```py\n> " + "x" * 40 + "\n> ```", 60)
    assert all("```py\n> ```" not in chunk for chunk in chunks)


def test_the_header_of_a_table_is_repeated() -> None:
    rows = "\n".join(f"| {number} | 值 {number} |" for number in range(50))
    chunks = split_markdown(f"| n | value |\n|--:|---|\n{rows}", 200, utf16_length)
    assert len(chunks) > 3
    assert all(chunk.startswith("| n | value |\n|--:|---|\n|") for chunk in chunks)
    assert re.findall(r"^\| (\d+) ", "\n".join(chunks), re.M) == [str(number) for number in range(50)]


def test_a_line_without_spaces_is_split_at_the_limit() -> None:
    assert split_markdown("长" * 25, 10) == ["长" * 10, "长" * 10, "长" * 5]
    assert split_markdown("aaaa bbbb cccc", 10) == ["aaaa bbbb ", "cccc"]


WIDE = {  # Markdown → as WhatsApp shows it
    "**标题：**内容": "*标题：*内容",
    "这是**“取出”模式**。": "这是*“取出”模式*。",
    "边界：**社区显示：**某某 与 **有效**。": "边界：*社区显示：*某某 与 *有效*。",
    "使用**`pip install`**命令": "使用*`pip install`*命令",
    "日本語の**「強調」**です": "日本語の*「強調」*です",
    "*斜体。*后文": "_斜体。_后文",
    "价格是**¥5**元": "价格是*¥5*元",
    "**굵게.**다음": "*굵게.*다음",
    "**「A」**と**「B」**": "*「A」*と*「B」*",
    "`**不。**动` 与 a*b": "`**不。**动` 与 a*b",
    "```\n**不。**动\n```": "```\n**不。**动\n```",
}


@pytest.mark.parametrize(("markdown", "shown"), WIDE.items())
def test_emphasis_beside_wide_punctuation_works_in_every_parser(markdown: str, shown: str) -> None:
    """What else each of them does with a text has tests of its own: here, no star may be left, and no joiner."""
    assert to_whatsapp(markdown) == shown
    table = f"| a |\n|---|\n| {markdown} |" if "\n" not in markdown else markdown
    live = "".join(LiveMarkdown().render(markdown, 60))
    for text in (
        to_entities(markdown)[0],
        to_html(markdown),
        render_markdown(markdown, 60),
        live,
        to_rich_html(table, mentions=True),
    ):
        assert JOINER not in text
        assert "**" not in text or "不。" in text


def test_stars_without_end_cost_no_time() -> None:
    for text in ("。*" * 50_000, "字`" * 50_001, "字``" * 50_001, "字\\" * 50_000):
        open_wide_emphasis(text)
