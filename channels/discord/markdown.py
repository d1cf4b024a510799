"""The model's Markdown as Discord shows it: tables as aligned code, links without previews while they cannot be off."""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from markdown_it.token import Token

from channels.shared.text_table import align_table

_TABLES = MarkdownIt("commonmark").enable("table")
_BLOCKS = MarkdownIt("commonmark").enable("table").disable("inline")  # where tables are; a fraction of the work
LONGEST = 2000  # characters of a line of a table; no message shows a longer one in columns
_PIPE = re.compile(r"(?<!\\)\|")
_LINK = re.compile(
    r"(?P<code>(?<!`)(?P<mark>`++).*?(?P=mark)|<https?://[^\s>]*>)|(?P<url>https?://[^\s<>)\]]+)", re.DOTALL
)


def to_discord_markdown(text: str) -> str:
    """Markdown with its top-level tables as code blocks."""
    if "|" not in text:
        return text
    lines = text.split("\n")
    tables = [
        token.map
        for token in _BLOCKS.parse(text)
        if token.type == "table_open" and token.level == 0 and token.map is not None
    ]
    for start, end in reversed(tables):
        if max(map(len, lines[start:end])) <= LONGEST:
            lines[start:end] = _align_table(lines[start:end])
    return "\n".join(lines)


def without_previews(text: str) -> str:
    """Links outside of code in angle brackets, which take their preview away."""
    return _LINK.sub(lambda found: found["code"] or f"<{found['url']}>", text)


def _align_table(lines: list[str]) -> list[str]:
    """A table as a code block, its columns as wide as people see them (CJK is two wide)."""
    rows: list[list[str]] = []
    for token in _TABLES.parse("\n".join(_widen_header(lines))):
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline":
            rows[-1].append(_cell_text(token))
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", str(rows))), default=0))
    return [fence, *align_table(rows), fence]


def _widen_header(lines: list[str]) -> list[str]:
    """The same with a head as wide as the widest row: the parser leaves out what goes beyond it."""
    columns = [len(_PIPE.findall(line.strip().removeprefix("|").removesuffix("|"))) for line in lines]
    more = max(columns) - columns[0]
    if not more:
        return lines
    head, rule = (line.rstrip().removesuffix("|") + "|" for line in lines[:2])
    return [head + " |" * more, rule + "-|" * more, *lines[2:]]


def _cell_text(token: Token) -> str:
    """The words of a cell; in code Markdown would show its marks, and a link has to be written out."""
    words, href = "", ""
    for child in token.children or ():
        words += child.content
        if child.type == "link_open":
            href = str(child.attrs["href"])
        elif child.type == "link_close" and not words.endswith(href):
            words += f" ({href})"
    return words
