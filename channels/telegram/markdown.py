"""Markdown as Telegram shows it: plain text and entities, so that nothing must be escaped or is parsed again.

The parser is pulldown-cmark (through pyromark, as in telegramify-markdown). No text is dropped and none is added but
list bullets and table lines: HTML and mathematics stay as they were written, headings are just bold.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyromark

from channels.shared.markdown_split import utf16_length

Entity = dict[str, Any]  # a MessageEntity (core.telegram.org/bots/api#messageentity)

MAX_ENTITIES = 100  # entities that Telegram shows in a message; it ignores the rest
MAX_TABLE_COLUMNS = 100  # columns from which padding a table helps nobody

_OPTIONS = pyromark.Options.ENABLE_TABLES | pyromark.Options.ENABLE_STRIKETHROUGH | pyromark.Options.ENABLE_TASKLISTS
_MARKUP = re.compile(r"[\\`*_~\[<&|]|^[ \t]*(?:[#>+=-]|\d+[.)])|^(?: {4}|\t)", re.M)
_URL = re.compile(r"(?!tg:(?://)?user)(?:https?|tg|mailto|tel):\S+", re.I)  # a link to a person is a mention
_BREAK = re.compile(r"<br\s*/?>", re.I)
_NAME = re.compile(r"(?<!\w)@(?=[A-Za-z0-9_]{2})")
_THIN = "\u200b"
_INLINE = {"Strong": "bold", "Emphasis": "italic", "Strikethrough": "strikethrough"}


def to_entities(markdown: str) -> tuple[str, list[Entity]]:
    """The visible text and its entities, with offsets in UTF-16 units. Text without markup comes back as it is."""
    markdown = markdown if markdown.isascii() else markdown.encode("utf-8", "replace").decode()  # no lone surrogates
    if not _MARKUP.search(markdown):
        return markdown, []
    walk = _EntityBuilder(markdown.encode())
    for event, where in pyromark.events_with_range(markdown, options=_OPTIONS):
        walk.take(event, where["start"], where["end"])
    entities = walk.entities
    if len(entities) > MAX_ENTITIES:
        entities = sorted(entities, key=lambda entity: entity["type"] not in ("pre", "text_link"))[:MAX_ENTITIES]
    return "".join(walk.out), entities


def without_mentions(text: str, entities: list[Entity]) -> tuple[str, list[Entity]]:
    """The same for the eye, with no "@name" that the server would make a mention: a space without width in each.

    Code stays as it is: there the server looks for none (td/telegram/MessageEntity.cpp, find_entities).
    """
    if "@" not in text:
        return text, entities
    code = [_entity_span(entity) for entity in entities if entity["type"] in ("code", "pre")]
    marks = [(match.end(), utf16_length(text[: match.end()])) for match in _NAME.finditer(text)]
    marks = [(at, units) for at, units in marks if not any(start < units <= end for start, end in code)]
    for at, _ in reversed(marks):
        text = f"{text[:at]}{_THIN}{text[at:]}"

    def moved(at: int) -> int:
        return at + sum(units <= at for _, units in marks)

    return text, [
        {**entity, "offset": moved(start), "length": moved(end) - moved(start)}
        for entity, (start, end) in ((entity, _entity_span(entity)) for entity in entities)
    ]


def _entity_span(entity: Entity) -> tuple[int, int]:
    start = int(entity["offset"])
    return start, start + int(entity["length"])


@dataclass(slots=True)
class _EntityBuilder:
    """The state of one conversion."""

    source: bytes
    out: list[str] = field(default_factory=list)
    units: int = 0
    entities: list[Entity] = field(default_factory=list)
    open: list[tuple[str, int, str]] = field(default_factory=list)  # (type, start, url or language)
    lists: list[int | None] = field(default_factory=list)  # the next number, None for bullets
    quotes: int = 0
    bullet: bool = False  # the last thing written is an item's bullet
    rows: list[list[str]] = field(default_factory=list)
    cell: list[str] | None = None  # the parts of the table cell that is open
    edge: int = 0  # where the last cell ended

    def take(self, event: Any, start: int, end: int) -> None:  # events are the parser's nested dicts and names
        """One event of the parser."""
        match event:
            case {"Text": text} | {"Html": text}:
                self.write(text)
            case {"InlineHtml": html}:
                self.write((" " if self.cell is not None else "\n") if _BREAK.fullmatch(html) else html)
            case {"Code": code}:
                self.begin("code")
                self.write(code)
                self.end()
            case {"TaskListMarker": checked}:
                if self.bullet:
                    self.units -= utf16_length(self.out.pop())
                self.write("☑ " if checked else "☐ ")
                self.bullet = True
            case "SoftBreak" | "HardBreak":
                self.write(" " if self.cell is not None else "\n")
            case "Rule":
                self.block(start)
                self.write("———")
            case {"Start": tag}:
                self.start(tag, start)
            case {"End": tag}:
                self.stop(tag, end)

    def start(self, tag: Any, at: int) -> None:
        match tag:
            case "Strikethrough" if self.source[at : at + 2] != b"~~":
                self.write("~")  # a single one means "about"
                self.begin("")
            case "Strong" | "Emphasis" | "Strikethrough":
                self.begin(_INLINE[tag])
            case "Paragraph" | "HtmlBlock":
                self.block(at)
            case "Item":
                self.item(at)
            case "TableRow" | "TableHead":
                self.rows.append([])
                self.edge = at
            case "TableCell":
                self.cell = []
            case {"Heading": _}:
                self.block(at)
                self.begin("bold")
            case {"CodeBlock": kind}:
                self.block(at)
                self.begin(
                    "pre", kind["Fenced"].split()[0] if isinstance(kind, dict) and kind["Fenced"].split() else ""
                )
            case {"BlockQuote": _}:
                self.block(at)
                self.quotes += 1
                self.bullet = True  # its first paragraph begins here
                self.begin("blockquote" if self.quotes == 1 else "")  # Telegram has no quote in a quote
            case {"List": number}:
                self.lists.append(number)
            case {"Table": _}:
                self.block(at)
                self.rows = []
            case {"Link": link} | {"Image": link}:
                self.begin("text_link", link["dest_url"])

    def stop(self, tag: Any, at: int) -> None:
        match tag:
            case "Strikethrough" if self.source[at - 2 : at] != b"~~":
                self.end()
                self.write("~")
            case "Strong" | "Emphasis" | "Strikethrough" | {"Heading": _}:
                self.end()
            case "CodeBlock" | "HtmlBlock":
                if self.out and self.out[-1].endswith("\n"):
                    self.out[-1] = self.out[-1][:-1]
                    self.units -= 1
                if tag == "CodeBlock":
                    self.end()
            case {"BlockQuote": _}:
                self.quotes -= 1
                self.end()
            case {"List": _}:
                self.lists.pop()
            case "TableCell":
                self.rows[-1].append("".join(self.cell or ()))
                self.cell, self.edge = None, at
            case "TableRow":  # the parser leaves out what goes beyond the columns of the head
                if more := self.source[self.edge : at].decode().strip("| \t\r\n"):
                    self.rows[-1] += [cell.strip() for cell in more.split("|")]
            case "Table":
                self.begin("pre")
                self.write(_format_table(self.rows))
                self.end()
            case "Link" | "Image":
                self.link()

    # ------------------------------------------------------------ writing

    def write(self, text: str) -> None:
        if self.cell is not None:
            self.cell.append(text)
            return
        self.bullet = False
        self.out.append(text)
        self.units += utf16_length(text)

    def block(self, at: int) -> None:
        """Begin a block on a line of its own, with a blank line before it where the source has one."""
        if not self.out or self.bullet:
            return
        before = re.search(rb"[\s>]*\Z", self.source[max(0, at - 80) : at])
        wanted = "\n\n" if before and before[0].count(b"\n") > 1 else "\n"
        tail = "".join(self.out[-2:])
        missing = len(wanted) - (len(tail) - len(tail.rstrip("\n")))
        if missing > 0:
            self.write("\n" * missing)

    def item(self, at: int) -> None:
        self.block(at)
        number = self.lists[-1]
        if number is not None:
            self.lists[-1] = number + 1
        self.write("  " * (len(self.lists) - 1))
        self.write("• " if number is None else f"{number}. ")
        self.bullet = True

    def begin(self, kind: str, extra: str = "") -> None:
        self.open.append((kind, self.units, extra))

    def end(self) -> None:
        """Close the innermost entity; one without a kind or without length is none. A table's cells carry none."""
        kind, start, extra = self.open.pop()
        if kind and self.units > start and self.cell is None:
            language: Entity = {"language": extra} if extra else {}
            self.entities.append({"type": kind, "offset": start, "length": self.units - start, **language})

    def link(self) -> None:
        """Close a link: Telegram knows web links; any other target, and every target in a table, is written out."""
        _, start, url = self.open.pop()
        shown = "".join(self.cell[-1:] if self.cell is not None else self.out[-1:])
        if self.cell is None and _URL.fullmatch(url) and self.units > start:
            if shown != url:
                self.entities.append({"type": "text_link", "offset": start, "length": self.units - start, "url": url})
        elif url and shown != url and shown != url.removeprefix("mailto:"):
            self.write(f" ({url})")


def _format_table(rows: list[list[str]]) -> str:
    """Columns aligned by what a screen shows: a Chinese character takes two places."""
    columns = max(map(len, rows), default=0)
    rows = [row + [""] * (columns - len(row)) for row in rows]
    widths = [max(_cell_width(row[column]) for row in rows) for column in range(columns)]
    if sum(widths) > MAX_TABLE_COLUMNS:
        widths = [0] * columns

    def line(row: list[str], fill: Callable[[str, int], str]) -> str:
        return fill(row[0], 0) if columns == 1 else " | ".join(fill(cell, i) for i, cell in enumerate(row)).rstrip()

    def pad(cell: str, column: int) -> str:
        return cell + " " * (widths[column] - _cell_width(cell))

    head, *body = [line(row, pad) for row in rows]
    rule = "-+-".join("-" * max(width, 1) for width in widths)
    return "\n".join([head, rule, *body])


def _cell_width(text: str) -> int:
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) > 0 for char in text)
