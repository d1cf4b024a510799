"""Markdown as rows of a terminal: whole, or block by block while it streams.

Only this file and `tui.py` import rich. This one does when it renders: call it in a thread, because the import is slow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from io import StringIO
from itertools import accumulate, dropwhile
from typing import TYPE_CHECKING

from prompt_toolkit.utils import is_dumb_terminal

from channels.console.view import strip_controls
from channels.shared.markdown import close_wide_emphasis, open_wide_emphasis

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token
    from rich.console import Group
    from rich.markdown import Markdown

OPEN_CHARS = 8000  # of the block that still grows that are shown: more than any screen shows
KEPT_ROWS = 500  # of the blocks before it
COMMAND_CELLS = 12  # for the names of commands, so that the columns of several groups begin below each other
MAX_LINK_CHARS = 300  # of a link that is left out until it is complete
HELD_BACK = "…"  # stands for a table that still grows
_UNDECIDED = re.compile(r"[ \t]*+(?:[-=*+#>`~|_ ]*+|\d++[.)]?)")  # a last line that can become any kind of block
_FENCE = re.compile(r"[ ]{0,3}(?:`{3,}+|~{3,}+)[^\n]*+\n")
_MARK = re.compile(r"\\.|`+|\*+|_+|~~|\[", re.DOTALL)
_BACKTICKS = re.compile("`+")
_SGR = re.compile(r"\x1b\[[\d;]*m")
_LEAVES = ("inline", "fence", "code_block", "html_block")
_LINK = re.compile(r"\x1b\]8;[^\x1b\x07]*(?:\x1b\\|\x07)")


def render_markdown(text: str, columns: int) -> str:
    """Render Markdown as styled terminal text."""
    blocks = split_blocks(open_wide_emphasis(strip_controls(text)))
    return "".join(f"{row}\n" for row in join_blocks([(tokens, render_block(tokens, columns)) for tokens, _ in blocks]))


class LiveMarkdown:
    """A text that grows. A block is rendered for good when the next one begins; until then its open marks count as
    closed, so that no row changes its place when they are."""

    def __init__(self) -> None:
        self._columns = 0
        self._closed = ""  # the text of the blocks that are rendered
        self._rows: list[str] = []
        self._last: Sequence[Token] = ()  # the last block of them

    def render(self, text: str, columns: int) -> list[str]:
        """Return the rows of the text so far, without links."""
        text = open_wide_emphasis(_without_undecided(strip_controls(text)))
        if columns != self._columns or not text.startswith(self._closed):
            self._columns, self._closed, self._rows, self._last = columns, "", [], ()
        blocks = split_blocks(text[len(self._closed) :])
        if not blocks:
            return self._rows
        *closed, (_tokens, begin) = blocks
        for tokens, _begin in closed:
            self._append(tokens, render_block(tokens, columns))
        self._closed = text[: len(self._closed) + begin]
        return self._with_open_block(text[len(self._closed) :])

    def _append(self, tokens: Sequence[Token], rows: Sequence[str]) -> None:
        between = [""] if self._last and has_space_after(self._last) else []
        self._rows = [*self._rows, *between, *map(_without_links, rows)][-KEPT_ROWS:]
        self._last = tokens

    def _with_open_block(self, text: str) -> list[str]:
        text, has_table = _without_open_table(text)
        rows: list[str] = []
        if blocks := split_blocks(text := _tail(text)):
            blocks = split_blocks(close_marks(text, blocks[-1][0]))
            rows = join_blocks([(tokens, render_block(tokens, self._columns)) for tokens, _ in blocks])
        if has_table:
            rows = [*rows, *([""] if rows else []), HELD_BACK]
        between = [""] if rows and self._last and has_space_after(self._last) else []
        return [*self._rows, *between, *map(_without_links, rows)]


# ------------------------------------------------------------ blocks


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt().enable("strikethrough").enable("table")


def split_blocks(text: str) -> list[tuple[Sequence[Token], int]]:
    """Return the tokens of each top-level block and the offset in `text` where it begins."""
    starts = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
    blocks: list[tuple[Sequence[Token], int]] = []
    block: list[Token] = []
    for token in _parser().parse(text):
        block.append(token)
        if token.level == 0 and token.nesting <= 0:
            line = (block[0].map or [0])[0]
            blocks.append((block, starts[line]))
            block = []
    return blocks


def join_blocks(blocks: Sequence[tuple[Sequence[Token], Sequence[str]]]) -> list[str]:
    """Return the rows of all blocks, with a blank one between two."""
    joined: list[str] = []
    for index, (_tokens, rows) in enumerate(blocks):
        joined += [""] if index and has_space_after(blocks[index - 1][0]) else []
        joined += rows
    return joined


def has_space_after(tokens: Sequence[Token]) -> bool:
    return tokens[0].type != "hr"


def render_block(tokens: Sequence[Token], columns: int) -> list[str]:
    """Return the rows of one block as styled text."""
    from rich.console import Console
    from rich.theme import Theme

    for child in (child for token in tokens for child in token.children or ()):
        if child.type == "softbreak":  # a new line in a chat stays one
            child.type = "hardbreak"
    page = StringIO()
    console = Console(
        file=page,
        width=max(columns, 1),
        force_terminal=True,
        color_system="standard",
        legacy_windows=False,
        theme=Theme({"markdown.code": "magenta", "markdown.code_block": "magenta"}),
    )
    console.print(_command_table(tokens) or _document(tokens))
    rows = [row.rstrip() for row in close_wide_emphasis(page.getvalue()).split("\n")]
    while rows and _is_blank(rows[-1]):
        rows.pop()
    return [*dropwhile(_is_blank, rows)]


def _is_blank(row: str) -> bool:
    return not _SGR.sub("", row).strip()


def _document(tokens: Sequence[Token]) -> Markdown:
    from rich.markdown import Markdown

    document = Markdown("", code_theme="ansi_light", hyperlinks=not is_dumb_terminal())
    document.parsed = list(tokens)
    return document


def _command_table(tokens: Sequence[Token]) -> Group | None:
    """Return columns for a paragraph with a bold title, below which each line begins with a command; else None."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    if [token.type for token in tokens] != ["paragraph_open", "inline", "paragraph_close"]:
        return None
    first, inline, last = tokens
    title, *lines = _split_lines(inline.children or [])
    if not (lines and _is_bold(title) and all(line and line[0].type == "code_inline" for line in lines)):
        return None
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, min_width=COMMAND_CELLS)
    table.add_column()
    for name, *rest in lines:
        words = inline.copy(children=[_without_blank(rest[0]), *rest[1:]] if rest else [])
        table.add_row(Text(name.content, "markdown.code"), _document([first, words, last]))
    return Group(_document([first, inline.copy(children=title), last]), table)


def _split_lines(children: Sequence[Token]) -> Iterator[list[Token]]:
    line: list[Token] = []
    for child in children:
        if child.type == "hardbreak":
            yield line
            line = []
        elif child.content or child.type != "text":  # the parser leaves empty texts
            line.append(child)
    yield line


def _is_bold(line: Sequence[Token]) -> bool:
    kinds = [token.type for token in line]
    return kinds[:1] == ["strong_open"] and kinds[-1:] == ["strong_close"] and kinds.count("strong_open") == 1


def _without_blank(token: Token) -> Token:
    return token.copy(content=token.content.lstrip()) if token.type == "text" else token


# ------------------------------------------------------------ the block that still grows


def _without_undecided(text: str) -> str:
    """Leave out a last line that does not show yet what it becomes, such as "-", "1." or the end of a block of code."""
    head, newline, last = text.rpartition("\n")
    return head + newline if _UNDECIDED.fullmatch(last) else text


def _without_open_table(text: str) -> tuple[str, bool]:
    """Leave out a table at the end, which still grows. Return whether there was one, too."""
    lines = [] if _FENCE.match(text) else text.splitlines(keepends=True)
    shown = len(lines)
    while shown and lines[shown - 1].lstrip(" ").startswith("|"):
        shown -= 1
    return ("".join(lines[:shown]), True) if shown < len(lines) else (text, False)


def _tail(text: str) -> str:
    """Return the end of a long block, which begins with a whole line, and is still code where it was code."""
    if len(text) <= OPEN_CHARS:
        return text
    fence = _FENCE.match(text)
    end = text[-OPEN_CHARS:]
    _cut, newline, lines = end.partition("\n")
    return (fence[0] if fence else "") + (lines if newline else end)


def close_marks(text: str, tokens: Sequence[Token]) -> str:
    """Return the text of a block with an end for each mark that its last words are inside of."""
    leaf = next((token for token in reversed(tokens) if token.type in _LEAVES), None)
    text = text.rstrip()
    if leaf is None or leaf.type != "inline" or not text.endswith(leaf.content[-1:]):
        return text
    cut, closing = _open_marks(leaf.content)
    return text[: len(text) - cut].rstrip() + closing


def _open_marks(words: str) -> tuple[int, str]:
    """Return how many characters at the end are left out, and what closes the marks before them."""
    opened: list[str] = []
    position = 0
    while found := _MARK.search(words, position):
        mark, position = found[0], found.end()
        if mark[0] == "`":
            end = next((run for run in _BACKTICKS.finditer(words, position) if run[0] == mark), None)
            if end is None:
                is_last = not words[position:].strip()
                return (len(words) - found.start(), _ends(opened)) if is_last else (0, mark + _ends(opened))
            position = end.end()
        elif mark == "[":
            if left_out := _open_link(words, found.start()):
                return left_out, _ends(opened)
        elif mark[0] in "*_~":
            _note_mark(words, found, opened)
            if position == len(words) and opened and opened[-1] == mark:
                return len(mark), _ends(opened[:-1])
    return 0, _ends(opened)


def _ends(opened: Sequence[str]) -> str:
    return "".join(reversed(opened))


def _note_mark(words: str, found: re.Match[str], opened: list[str]) -> None:
    """Close what this mark closes, or note that it opens something."""
    mark = found[0]
    before, after = words[found.start() - 1 : found.start()], words[found.end() : found.end() + 1]
    if mark in opened and before and not before.isspace():
        del opened[opened.index(mark) :]
    elif not after.isspace() and not (mark[0] == "_" and before.isalnum()) and mark not in opened:
        opened.append(mark)


def _open_link(words: str, begin: int) -> int:
    """Return how many characters to leave out of a link that is not complete; 0 for a complete one or none."""
    close = words.find("]", begin)
    is_open = close < 0 or close + 1 == len(words) or (words[close + 1] == "(" and words.find(")", close) < 0)
    rest = words[begin:]
    return len(rest) if is_open and len(rest) <= MAX_LINK_CHARS and "\n" not in rest else 0


def _without_links(row: str) -> str:
    return _LINK.sub("", row)
