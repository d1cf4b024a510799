"""Convert the model's Markdown for Discord: tables become aligned code, links get no preview."""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from markdown_it.token import Token

from channels.shared.text_table import align_table

_TABLES = MarkdownIt("commonmark").enable("table")
_BLOCKS = MarkdownIt("commonmark").enable("table").disable("inline")  # finds tables; far cheaper
MAX_TABLE_LINE_CHARS = 2000  # no message shows a longer line in columns
_PIPE = re.compile(r"(?<!\\)\|")
_LINK = re.compile(
    r"(?P<code>(?<!`)(?P<mark>`++).*?(?P=mark)|<https?://[^\s>]*>)|(?P<url>https?://[^\s<>)\]]+)", re.DOTALL
)


def to_discord_markdown(text: str) -> str:
    """Turn top-level tables into code blocks."""
    if "|" not in text:
        return text
    lines = text.split("\n")
    tables = [
        token.map
        for token in _BLOCKS.parse(text)
        if token.type == "table_open" and token.level == 0 and token.map is not None
    ]
    for start, end in reversed(tables):
        if max(map(len, lines[start:end])) <= MAX_TABLE_LINE_CHARS:
            lines[start:end] = _align_table(lines[start:end])
    return "\n".join(lines)


def without_previews(text: str) -> str:
    """Put links outside of code in angle brackets, which hide their preview."""
    return _LINK.sub(lambda found: found["code"] or f"<{found['url']}>", text)


def _align_table(lines: list[str]) -> list[str]:
    """Turn a table into a code block with columns of equal display width (CJK characters are two wide)."""
    rows: list[list[str]] = []
    for token in _TABLES.parse("\n".join(_widen_header(lines))):
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline":
            rows[-1].append(_cell_text(token))
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", str(rows))), default=0))
    return [fence, *align_table(rows), fence]


def _widen_header(lines: list[str]) -> list[str]:
    """Give the header as many cells as the widest row has: the parser drops cells beyond the header."""
    columns = [len(_PIPE.findall(line.strip().removeprefix("|").removesuffix("|"))) for line in lines]
    missing = max(columns) - columns[0]
    if not missing:
        return lines
    head, rule = (line.rstrip().removesuffix("|") + "|" for line in lines[:2])
    return [head + " |" * missing, rule + "-|" * missing, *lines[2:]]


def _cell_text(token: Token) -> str:
    """Return a cell as plain text with links written out: code shows Markdown's marks as they are."""
    text, href = "", ""
    for child in token.children or ():
        text += child.content
        if child.type == "link_open":
            href = str(child.attrs["href"])
        elif child.type == "link_close" and not text.endswith(href):
            text += f" ({href})"
    return text
