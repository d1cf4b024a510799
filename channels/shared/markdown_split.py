"""Split Markdown into chunks within a platform's limit, each valid Markdown on its own."""

from __future__ import annotations

import re
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
