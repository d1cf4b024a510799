"""Convert the model's Markdown for Discord, which knows a part of it."""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from markdown_it.token import Token

from channels.shared.markdown import align_table, images_as_links

_TABLES = MarkdownIt("commonmark").enable("table")
_BLOCKS = MarkdownIt("commonmark").enable("table").disable("inline")  # finds blocks; far cheaper
_UNKNOWN = re.compile(  # or perhaps: a rule may also be the end of a line
    r"(?m)\||^[ >]*+(?:[-*+] ++|\d++[.)] ++)*+(?:#{4}|\[[ xX]\])|[-*_=][ \t]*+[-*_=][ \t]*+[-*_=][ \t]*+$"
)
_ITEM_OR_QUOTE = re.compile(r"[ >]*+(?:(?:[-*+]|\d++[.)]) ++)*+")
_TASK = re.compile(r"\[([ xX])\] ")
_DEEP_HEADING = re.compile(r"#{4,6}[ \t]++(.*)")
RULE = "⎯" * 12
MAX_TABLE_LINE_CHARS = 2000  # no message shows a longer line in columns
_PIPE = re.compile(r"(?<!\\)\|")
_LINK = re.compile(
    r"(?P<code>(?<!`)(?P<mark>`++).*?(?P=mark)|<https?://[^\s<>]*+>)|(?P<url>https?://[^\s<>)\]]+)", re.DOTALL
)


def to_discord_markdown(text: str) -> str:
    """Write what Discord's Markdown lacks in what it has.

    Tables become code, deep and underlined headings bold or "#" lines, rules a line, tasks boxes, images links.
    """
    text = images_as_links(text)
    if not _UNKNOWN.search(text):
        return text
    lines = text.split("\n")
    for token in reversed(_BLOCKS.parse(text)):
        if token.map is None:
            continue
        start, end = token.map
        if token.type == "table_open" and max(map(len, lines[start:end])) <= MAX_TABLE_LINE_CHARS:
            lines[start:end] = _table_as_code(lines[start:end])
        elif token.type == "heading_open":
            lines[start:end] = _heading(lines[start:end], token)
        elif token.type == "hr":
            lines[start] = lines[start][: len(lines[start]) - len(lines[start].lstrip(" >"))] + RULE
        elif token.type == "list_item_open":
            prefix, rest = _prefix(lines[start])
            lines[start] = prefix + _TASK.sub(lambda task: "☐ " if task[1] == " " else "☑ ", rest, count=1)
    return "\n".join(lines)


def _prefix(line: str) -> tuple[str, str]:
    """Split a line behind the marks of its quotes and lists."""
    prefix = _ITEM_OR_QUOTE.match(line)
    assert prefix  # noqa: S101 — it matches the empty text
    return prefix[0], line[prefix.end() :]


def _heading(lines: list[str], token: Token) -> list[str]:
    """Return a heading of a level that Discord knows, else in bold."""
    prefix, first = _prefix(lines[0])
    if token.markup in ("=", "-"):  # underlined; by less, it is a list that is still streaming
        if lines[-1].count(token.markup) < 3:
            return lines
        words = " ".join([first.strip(), *(_prefix(line)[1].strip() for line in lines[1:-1])])
        return [f"{prefix}{'#' if token.markup == '=' else '##'} {words}"]
    deep = _DEEP_HEADING.match(first)
    words = _without_closing_marks(deep[1].rstrip()) if deep else ""
    return [f"{prefix}**{words.replace('**', '')}**"] if words else lines


def _without_closing_marks(words: str) -> str:
    """Remove the `##` at the end of a heading. In `C#`, it belongs to the word."""
    bare = words.rstrip("#")
    return words if bare and not bare[-1].isspace() else bare.rstrip()


def _table_as_code(lines: list[str]) -> list[str]:
    """Turn a table into a code block; in a quote it stays there, out of a list it moves to the left."""
    quote = "> " if lines[1].lstrip().startswith(">") else ""
    bare = [_prefix(lines[0])[1], *(line.lstrip(" >") for line in lines[1:])]
    return [quote + line for line in _align_table(bare)]


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
