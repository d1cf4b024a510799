"""Parse the Markdown that reports are written in: blocks, and bold, italic and code inside of them."""

from __future__ import annotations

import re
from typing import NamedTuple

INLINE = re.compile(
    r"\*\*(?P<bold>.+?)\*\*|(?<![*\w])\*(?P<italic>[^*\s][^*]*?)\*(?!\w)|`(?P<code>[^`]+)`|\[(?P<link>[^\]]+)\]\((?P<url>[^)\s]+)\)"
)


class Block(NamedTuple):
    """A block: "heading", "paragraph", "bullet", "number", "code", "quote", "table", "image", "rule"."""

    kind: str
    text: str = ""
    level: int = 1  # of a heading, or of a nested list item
    rows: tuple[tuple[str, ...], ...] = ()  # of a table, the first is its head


class Run(NamedTuple):
    """A piece of text in one style: "", "bold", "italic", "code" or "link"."""

    text: str
    style: str = ""
    url: str = ""


def parse_runs(text: str) -> list[Run]:
    runs, end = [], 0
    for match in INLINE.finditer(text):
        if match.start() > end:
            runs.append(Run(text[end : match.start()]))
        style = next(name for name in ("bold", "italic", "code", "link") if match[name])
        runs.append(Run(match[style], style, match["url"] or ""))
        end = match.end()
    return [*runs, Run(text[end:])] if end < len(text) else runs


def split_cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")))


def parse_line(line: str) -> Block | None:
    """Return the block that one line makes by itself, or None if it is a line of a paragraph."""
    if match := re.match(r"(#{1,6})\s+(.*)", line):
        return Block("heading", match[2].rstrip("# "), len(match[1]))
    if match := re.match(r"( *)([-*+]|\d+[.)])\s+(.*)", line):
        return Block("number" if match[2][0].isdigit() else "bullet", match[3], len(match[1]) // 2 + 1)
    if match := re.fullmatch(r"!\[([^\]]*)\]\(([^)\s]+)\)\s*", line):
        return Block("image", match[2])
    if re.fullmatch(r"\s*(-{3,}|\*{3,})\s*", line):
        return Block("rule")
    if line.startswith(">"):
        return Block("quote", line.lstrip("> "))
    return None


def parse_markdown(text: str) -> list[Block]:
    blocks: list[Block] = []
    lines = text.replace("\r\n", "\n").split("\n")
    open_paragraph = False  # whether the next line continues the last block
    index = 0
    while index < len(lines):
        line = lines[index]
        index += 1
        if line.startswith("```"):
            end = next((i for i in range(index, len(lines)) if lines[i].startswith("```")), len(lines))
            blocks.append(Block("code", "\n".join(lines[index:end])))
            index, open_paragraph = end + 1, False
        elif (
            "|" in line
            and index < len(lines)
            and re.fullmatch(r"[\s|:-]*-[\s|:-]*", lines[index])
            and "|" in lines[index]
        ):
            rows = [split_cells(line)]
            index += 1
            while index < len(lines) and "|" in lines[index]:
                rows.append(split_cells(lines[index]))
                index += 1
            width = len(rows[0])
            fitted = tuple((*row, *[""] * (width - len(row)))[:width] for row in rows)
            blocks.append(Block("table", rows=fitted))
            open_paragraph = False
        elif not line.strip():
            open_paragraph = False
        elif block := parse_line(line):
            blocks.append(block)
            open_paragraph = block.kind in ("bullet", "number", "quote")
        elif open_paragraph:
            last = blocks.pop()
            blocks.append(last._replace(text=f"{last.text} {line.strip()}"))
        else:
            blocks.append(Block("paragraph", line.strip()))
            open_paragraph = True
    return blocks
