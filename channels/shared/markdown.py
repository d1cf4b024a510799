"""Fit Markdown to a platform: chunks within its limit, links for images, tables as text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from markdown_it import MarkdownIt

Size = Callable[[str], int]

# Only the boundaries of blocks are needed: without the inline rules parsing is several times faster.
_BLOCKS = MarkdownIt("commonmark").enable("table").disable("inline")
_NEWLINE = re.compile(r"\r\n?")
_FENCE = re.compile(r"(?P<lead>(?:[ \t>]|[-*+][ \t]|\d{1,9}[.)][ \t])*)(?P<mark>`{3,}+|~{3,}+)(?P<info>[^`]*)")
_FENCED = frozenset({"fence", "bullet_list_open", "ordered_list_open", "blockquote_open"})


def utf16_length(text: str) -> int:
    """Return the length in UTF-16 units, as Telegram counts (core.telegram.org/api/entities)."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def cut_units(text: str, limit: int) -> str:
    """Return the text cut to `limit` UTF-16 units."""
    if utf16_length(text) <= limit:
        return text
    return text.encode("utf-16-le", "surrogatepass")[: 2 * (limit - 1)].decode("utf-16-le", "ignore").rstrip() + "…"


def split_markdown(text: str, limit: int, size: Size = len) -> list[str]:
    """Split Markdown into chunks of at most `limit`, measured by `size`, which must be additive.

    Splits between blocks if possible, else between lines, else between words. Closes a split fence and reopens it with
    its language, and repeats the head of a split table. Returns text that fits unchanged, and no chunk for blank text.
    No platform takes a lone surrogate, which becomes "?". `limit` is at least 8.
    """
    text = text if text.isascii() else text.encode("utf-8", "replace").decode()
    if size(text) <= limit:
        return [text] if text.strip() else []
    text = _NEWLINE.sub("\n", text)
    chunks: list[str] = []
    current: list[str] = []
    used = -1
    for kind, lines in _split_blocks(text):
        block = "\n".join(lines)
        cost = size(block) + 1
        if used + cost <= limit:
            current.append(block)
            used += cost
            continue
        chunks.append("\n".join(current))
        pieces = [block] if cost <= limit + 1 else list(_split_block(kind, lines, limit, size))
        chunks += pieces[:-1]
        current = pieces[-1:]
        used = size(current[0])
    chunks.append("\n".join(current))
    return [chunk.strip("\n") for chunk in chunks if chunk.strip()]


def _split_blocks(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield (kind, lines) of the top-level blocks and of the gaps between them (blank lines, link definitions)."""
    lines = text.split("\n")
    at = 0
    for token in _BLOCKS.parse(text):
        if token.level or token.nesting < 0 or not token.map:
            continue
        start, end = max(at, token.map[0]), token.map[1]
        if start > at:
            yield "gap", lines[at:start]
        if end > start:
            yield token.type, lines[start:end]
            at = end
    if at < len(lines):
        yield "gap", lines[at:]


@dataclass(frozen=True, slots=True)
class _Fence:
    """An open code fence: the line that reopens it in the next piece, and the one that closes it in this one."""

    reopen: str
    close: str

    def closed_by(self, line: str) -> bool:
        bare, mark = line.strip(" \t>"), self.close.strip(" \t>")
        return bare.startswith(mark) and not bare.strip(mark[0])


def _open_fence(line: str) -> _Fence | None:
    found = _FENCE.fullmatch(line)
    if not found:
        return None
    lead = re.sub(r"[^>\s]", " ", found["lead"])
    return _Fence(lead + found["mark"] + found["info"].rstrip(), lead + found["mark"])


def _split_block(kind: str, lines: list[str], limit: int, size: Size) -> Iterator[str]:
    """Split a block that exceeds the limit by itself; yields at least one piece."""
    head = lines[:2] if kind == "table_open" and size("\n".join(lines[:2])) < limit // 2 else []
    fence: _Fence | None = None
    piece: list[str] = []
    bare = 0  # lines at the start of the piece that repeat an earlier one
    opener = -1  # length of the piece when its fence had just been opened
    used = -1

    def cost(*added: str) -> int:
        return sum(size(line) + 1 for line in added)

    for line in lines:
        if fence and fence.closed_by(line):
            piece.append(fence.close)
            used += cost(fence.close)
            fence = None
            continue
        opened = None if fence or kind not in _FENCED else _open_fence(line)
        if opened and cost(opened.reopen, opened.close) > limit // 2:
            opened = None  # too long to repeat: split it like text
        frame = cost(fence.reopen, fence.close) if fence else cost(*head)
        tail = cost(opened.close) if opened else cost(fence.close) if fence else 0
        for part in _split_line(line.rstrip() if opened else line, limit - frame, size):
            if len(piece) > bare and used + cost(part) + tail > limit:
                if len(piece) == opener:
                    yield from ["\n".join(piece[:-1])] * (len(piece) > 1)  # the fence opens in the next piece
                else:
                    yield "\n".join([*piece, fence.close] if fence else piece)
                piece = [fence.reopen] if fence else list(head)
                bare, opener, used = len(piece), -1, cost(*piece) - 1
            piece.append(part)
            used += cost(part)
        if opened:
            fence, opener = opened, len(piece)
    if len(piece) > bare or not lines:
        yield "\n".join(piece)


def _split_line(line: str, limit: int, size: Size) -> Iterator[str]:
    """Split a line, at spaces if possible, into parts within the limit. An empty line is one part."""
    while size(line) > limit:
        low, high = 1, min(len(line), limit)
        while low < high:  # find the longest prefix that fits
            middle = (low + high + 1) // 2
            low, high = (middle, high) if size(line[:middle]) <= limit else (low, middle - 1)
        space = line.rfind(" ", low // 2, low) + 1
        yield line[: space or low]
        line = line[space or low :]
    yield line


_MARK = re.compile(r"`+|!\[|\]\(?|[)\n]")  # starts and ends of code and images


def images_as_links(text: str) -> str:
    """Turn images outside of code into links; one without a text is called "image". What only begins as one, such as an
    image by reference or with brackets in its text, loses its mark: some renderers show it.

    One pass over the marks: a single pattern would search the rest of the text from every mark that is never closed.
    """
    if "![" not in text:
        return text
    marks = list(_MARK.finditer(text))
    runs: dict[str, list[int]] = {}  # indices of marks, last first: code ends with a run of as many backticks
    for index in reversed(range(len(marks))):
        runs.setdefault(marks[index][0], []).append(index)
    kept, done, index = [], 0, 0
    start, target = -1, -1  # where an open image starts, and where its target does
    while index < len(marks):
        kind, at = marks[index][0], marks[index].start()
        index += 1
        if kind[0] == "`":
            while runs[kind] and runs[kind][-1] < index:
                runs[kind].pop()
            index = runs[kind][-1] + 1 if runs[kind] else index
        elif kind == "![":
            if start >= 0:
                kept += [text[done:start], "["]
                done = start + 2
            start, target = at, -1
        elif kind == "](" and start >= 0:
            target = at if target < 0 else target
        elif kind == ")" and target >= 0:
            kept += [text[done:start], "[", text[start + 2 : target].strip() or "image"]
            start, done, target = -1, target, -1
        elif start >= 0 and (kind == "\n" or (kind == "]" and target < 0)):
            kept += [text[done:start], "["]
            start, done, target = -1, start + 2, -1
    if start >= 0:
        kept += [text[done:start], "["]
        done = start + 2
    return "".join([*kept, text[done:]])


MAX_ALIGNED_CELLS = 100  # width from which a table wraps on every screen, so that padding does not help


def align_table(rows: list[list[str]], max_cells: int | None = None) -> list[str]:
    """Return head, rule and body lines, padded by what a screen shows: a Chinese character takes two cells.

    A table that is wider than `max_cells` is not padded.
    """
    columns = max(map(len, rows), default=0)
    rows = [row + [""] * (columns - len(row)) for row in rows]
    widths = [max(_cell_width(row[column]) for row in rows) for column in range(columns)]
    if max_cells is not None and sum(widths) > max_cells:
        widths = [0] * columns
    head, *body = [
        " | ".join(cell + " " * (width - _cell_width(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return [head, "-+-".join("-" * max(width, 1) for width in widths), *body]


def _cell_width(text: str) -> int:
    from wcwidth import wcswidth

    return max(wcswidth(text), 0)


JOINER = "\u2060"  # a word joiner: no punctuation, so that stars beside it can open and close
# Code, escapes and runs of stars: only the last are looked at.
_STARS = re.compile(r"```.*?(?:```|\Z)|``.*?(?:``|\Z)|`[^`\n]*`|\\.|\*{1,3}", re.DOTALL)


def open_wide_emphasis(text: str) -> str:
    """Return Markdown in which emphasis beside wide punctuation works, as in `**注意：**请`.

    CommonMark lets stars between punctuation and a letter only open or only close (spec.commonmark.org/0.31.2,
    left-flanking delimiter run), which suits languages with blanks between words. A `JOINER` on the side of the
    punctuation makes them do both; `close_wide_emphasis` takes it out of what a parser returns.
    """
    if text.isascii() or "*" not in text:
        return text

    def join(found: re.Match[str]) -> str:
        run = found[0]
        before, after = text[found.start() - 1 : found.start()], text[found.end() : found.end() + 1]
        sides = f"{before}{after}"
        if run[0] != "*" or len(sides) < 2 or before.isspace() or after.isspace() or sides.isascii():
            return run
        return f"{JOINER if _is_punctuation(before) else ''}{run}{JOINER if _is_punctuation(after) else ''}"

    return _STARS.sub(join, text)


def close_wide_emphasis(text: str) -> str:
    """Return a text without what `open_wide_emphasis` put into it."""
    return text.replace(JOINER, "")


def _is_punctuation(char: str) -> bool:
    return unicodedata.category(char)[0] in "PS" and char != "*"
