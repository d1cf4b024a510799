"""Convert the model's Markdown for WhatsApp, which knows *bold*, _italic_, ~strike~, `code`, lists and quotes.

faq.whatsapp.com/539178204879377. It shows no links with a text, no headings and no tables.
"""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from markdown_it.token import Token

from channels.shared.markdown import align_table, close_wide_emphasis, images_as_links, open_wide_emphasis

MAX_TABLE_CELLS = 40  # of a line that a telephone shows without wrapping
_INLINE = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
_MARKS = {"strong_open": "*", "strong_close": "*", "em_open": "_", "em_close": "_", "s_open": "~", "s_close": "~"}
_TASK = re.compile(r"^\[([ xX])\] ")


def to_whatsapp(text: str) -> str:
    """Return Markdown as WhatsApp writes it."""
    tokens = _INLINE.parse(open_wide_emphasis(images_as_links(text)))
    lines, _end = _blocks(tokens, 0, "")
    return close_wide_emphasis("\n".join(lines)).strip("\n")


def _blocks(tokens: list[Token], at: int, until: str) -> tuple[list[str], int]:
    """Return the lines of the blocks up to the token `until`, and where that is."""
    lines: list[str] = []
    tight = until == "list_item_close"
    while at < len(tokens) and tokens[at].type != until:
        found, at = _block(tokens, at)
        if lines and found and not tight:
            lines.append("")
        lines += found
        at += 1
    return lines, at


def _block(tokens: list[Token], at: int) -> tuple[list[str], int]:
    """Return the lines of one block, and where it ends."""
    token = tokens[at]
    match token.type:
        case "paragraph_open":
            return _spans(tokens[at + 1]).split("\n"), at + 2
        case "heading_open":
            words = _spans(tokens[at + 1], plain=True)
            return [f"*{words}*"] if words else [], at + 2
        case "fence" | "code_block":
            return ["```", *token.content.rstrip("\n").replace("```", "'''").split("\n"), "```"], at
        case "blockquote_open":
            inner, end = _blocks(tokens, at + 1, "blockquote_close")
            return [f"> {line}".rstrip() for line in inner], end
        case "bullet_list_open" | "ordered_list_open":
            return _list(tokens, at)
        case "table_open":
            return _table(tokens, at)
        case "hr":
            return ["⎯⎯⎯⎯⎯⎯⎯⎯"], at
    return [], at


def _list(tokens: list[Token], at: int) -> tuple[list[str], int]:
    """Return the lines of a list; what is in an item stands below its first line, by two blanks."""
    opening = tokens[at]
    ordered = opening.type == "ordered_list_open"
    number = int(opening.attrGet("start") or 1)
    lines: list[str] = []
    at += 1
    while tokens[at].type == "list_item_open":
        inner, at = _blocks(tokens, at + 1, "list_item_close")
        mark = f"{number}. " if ordered else "- "
        first = _TASK.sub(lambda box: "☐ " if box[1] == " " else "☑ ", inner[0]) if inner else ""
        lines += [mark + first, *(f"  {line}".rstrip() for line in inner[1:])]
        number, at = number + 1, at + 1
    return lines, at


def _table(tokens: list[Token], at: int) -> tuple[list[str], int]:
    """Return a table as code with aligned columns."""
    rows: list[list[str]] = []
    while tokens[at].type != "table_close":
        if tokens[at].type == "tr_open":
            rows.append([])
        elif tokens[at].type == "inline":
            rows[-1].append(_spans(tokens[at], plain=True))
        at += 1
    return ["```", *align_table(rows, MAX_TABLE_CELLS), "```"], at


def _spans(inline: Token, *, plain: bool = False) -> str:
    """Return the words of a block with WhatsApp's marks, or without any."""
    text, link, begin = "", "", 0
    for child in inline.children or ():
        if child.type in _MARKS:
            text += "" if plain else _MARKS[child.type]
        elif child.type == "link_open":
            link, begin = str(child.attrGet("href") or ""), len(text)
        elif child.type == "link_close":
            shown = text[begin:].strip("*_~ ")
            same = shown in (link, link.removeprefix("mailto:"))
            text = text[:begin] + link.removeprefix("mailto:") if same else f"{text} ({link})"
        elif child.type == "code_inline":
            text += child.content if plain else f"`{child.content}`"
        elif child.type in ("softbreak", "hardbreak"):
            text += " " if plain else "\n"
        else:
            text += child.content
    return text
