"""Convert Markdown to Telegram's plain text with entities, so that nothing needs escaping or is parsed again.

The parser is pulldown-cmark (through pyromark). The conversion drops no text and adds only list bullets and table
lines: HTML and mathematics stay as written, headings become bold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyromark

from channels.shared.markdown import (
    MAX_ALIGNED_CELLS,
    align_table,
    close_wide_emphasis,
    open_wide_emphasis,
    utf16_length,
)

Entity = dict[str, Any]  # a MessageEntity (core.telegram.org/bots/api#messageentity)

MAX_ENTITIES = 100  # in a message; Telegram ignores the rest

_Options = pyromark.Options
PARSER_OPTIONS = _Options.ENABLE_TABLES | _Options.ENABLE_STRIKETHROUGH | _Options.ENABLE_TASKLISTS
_MARKUP = re.compile(r"[\\`*_~\[<&|]|^[ \t]*(?:[#>+=-]|\d+[.)])|^(?: {4}|\t)", re.M)
# Because of any other target, Telegram refuses the message or makes a wrong link of it (tdlib, LinkManager.cpp:
# check_link_impl, HttpUrl.cpp: parse_url). A link to a person would be a mention.
LINK = re.compile(
    r"tg:(?://)?(?!user\b)[a-z0-9_-]+(?:[/?#]\S*)?"
    r"|https?://[\w-]+(?:\.[\w-]+)+\.?(?::(?!0+\b)\d{1,4}|:[1-5]\d{4}|:6[0-4]\d{3})?(?:[/?#]\S*)?",
    re.I,
)
_ADDRESS = re.compile(r"(?:https?://|(?<![\w@./:-])[\w-]++(?:\.[\w-]++)++/)[^\s<>\"]*", re.I)  # as people write it
_BREAK = re.compile(r"<br\s*/?>", re.I)
NAME = re.compile(r"(?<!\w)@(?=[A-Za-z0-9_]{2})")
ZERO_WIDTH_SPACE = "\u200b"
_INLINE = {"Strong": "bold", "Emphasis": "italic", "Strikethrough": "strikethrough"}


def to_entities(markdown: str) -> tuple[str, list[Entity]]:
    """Return the visible text and its entities, with offsets in UTF-16 units."""
    markdown = markdown if markdown.isascii() else markdown.encode("utf-8", "replace").decode()  # no lone surrogates
    if not _MARKUP.search(markdown):
        return markdown, []
    markdown = open_wide_emphasis(markdown)
    builder = _EntityBuilder(markdown.encode())
    for event, where in pyromark.events_with_range(markdown, options=PARSER_OPTIONS):
        builder.take_event(event, where["start"], where["end"])
    entities = builder.entities
    if len(entities) > MAX_ENTITIES:
        entities = sorted(entities, key=lambda entity: entity["type"] not in ("pre", "text_link"))[:MAX_ENTITIES]
    return "".join(builder.out), entities


def without_mentions(text: str, entities: list[Entity]) -> tuple[str, list[Entity]]:
    """Put a zero-width space into each "@name", so that the server makes it no mention.

    Code and addresses stay as they are: the server finds no mentions in code and links (td/telegram/MessageEntity.cpp,
    find_entities), so an address with a name becomes a link.
    """
    if "@" not in text:
        return text, entities
    if len(links := [*entities, *_named_addresses(text, entities)]) <= MAX_ENTITIES:
        entities = links
    opaque = [_entity_span(entity) for entity in entities if entity["type"] in ("code", "pre")]
    opaque += [_entity_span(entity) for entity in entities if "@" in entity.get("url", "")]
    marks = [(match.end(), utf16_length(text[: match.end()])) for match in NAME.finditer(text)]
    marks = [(at, units) for at, units in marks if not any(start < units <= end for start, end in opaque)]
    for at, _ in reversed(marks):
        text = f"{text[:at]}{ZERO_WIDTH_SPACE}{text[at:]}"

    def shifted(at: int) -> int:
        return at + sum(units <= at for _, units in marks)

    return text, [
        {**entity, "offset": shifted(start), "length": shifted(end) - shifted(start)}
        for entity, (start, end) in ((entity, _entity_span(entity)) for entity in entities)
    ]


def _named_addresses(text: str, entities: list[Entity]) -> Iterator[Entity]:
    """Yield links for the addresses that contain an "@name", outside of code and links."""
    taken = [_entity_span(entity) for entity in entities if entity["type"] in ("code", "pre", "text_link")]
    for match in _ADDRESS.finditer(text):
        address = match[0].rstrip(".,;:!?)]}'*_")
        url = address if "://" in address else f"http://{address}"
        start, length = utf16_length(text[: match.start()]), utf16_length(address)
        free = all(start + length <= begin or end <= start for begin, end in taken)
        if free and NAME.search(address) and LINK.fullmatch(url):
            yield {"type": "text_link", "offset": start, "length": length, "url": url}


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
    bullet: bool = False  # the last text written is an item's bullet
    rows: list[list[str]] = field(default_factory=list)
    cell: list[str] | None = None  # the parts of the table cell that is open
    edge: int = 0  # where the last cell ended

    def take_event(self, event: Any, start: int, end: int) -> None:  # events are the parser's nested dicts and names
        match event:
            case {"Text": text} | {"Html": text}:
                self.write(text)
            case {"InlineHtml": html}:
                self.write((" " if self.cell is not None else "\n") if _BREAK.fullmatch(html) else html)
            case {"Code": code}:
                self.open_entity("code")
                self.write(code)
                self.close_entity()
            case {"TaskListMarker": checked}:
                if self.bullet:
                    self.units -= utf16_length(self.out.pop())
                self.write("☑ " if checked else "☐ ")
                self.bullet = True
            case "SoftBreak" | "HardBreak":
                self.write(" " if self.cell is not None else "\n")
            case "Rule":
                self.begin_block(start)
                self.write("———")
            case {"Start": tag}:
                self.start_tag(tag, start)
            case {"End": tag}:
                self.end_tag(tag, end)

    def start_tag(self, tag: Any, at: int) -> None:
        match tag:
            case "Strikethrough" if self.source[at : at + 2] != b"~~":
                self.write("~")  # a single one means "about"
                self.open_entity("")
            case "Strong" | "Emphasis" | "Strikethrough":
                self.open_entity(_INLINE[tag])
            case "Paragraph" | "HtmlBlock":
                self.begin_block(at)
            case "Item":
                self.begin_item(at)
            case "TableRow" | "TableHead":
                self.rows.append([])
                self.edge = at
            case "TableCell":
                self.cell = []
            case {"Heading": _}:
                self.begin_block(at)
                self.open_entity("bold")
            case {"CodeBlock": kind}:
                self.begin_block(at)
                self.open_entity(
                    "pre", kind["Fenced"].split()[0] if isinstance(kind, dict) and kind["Fenced"].split() else ""
                )
            case {"BlockQuote": _}:
                self.begin_block(at)
                self.quotes += 1
                self.bullet = True  # its first paragraph begins here
                self.open_entity("blockquote" if self.quotes == 1 else "")  # Telegram has no quote in a quote
            case {"List": number}:
                self.lists.append(number)
            case {"Table": _}:
                self.begin_block(at)
                self.rows = []
            case {"Link": link} | {"Image": link}:
                self.open_entity("text_link", link["dest_url"])

    def end_tag(self, tag: Any, at: int) -> None:
        match tag:
            case "Strikethrough" if self.source[at - 2 : at] != b"~~":
                self.close_entity()
                self.write("~")
            case "Strong" | "Emphasis" | "Strikethrough" | {"Heading": _}:
                self.close_entity()
            case "CodeBlock" | "HtmlBlock":
                if self.out and self.out[-1].endswith("\n"):
                    self.out[-1] = self.out[-1][:-1]
                    self.units -= 1
                if tag == "CodeBlock":
                    self.close_entity()
            case {"BlockQuote": _}:
                self.quotes -= 1
                self.close_entity()
            case {"List": _}:
                self.lists.pop()
            case "TableCell":
                self.rows[-1].append("".join(self.cell or ()))
                self.cell, self.edge = None, at
            case "TableRow":  # the parser drops cells beyond the columns of the head
                if more := self.source[self.edge : at].decode().strip("| \t\r\n"):
                    self.rows[-1] += [cell.strip() for cell in more.split("|")]
            case "Table":
                self.open_entity("pre")
                self.write("\n".join(align_table(self.rows, MAX_ALIGNED_CELLS)))
                self.close_entity()
            case "Link" | "Image":
                self.close_link()

    # ------------------------------------------------------------ writing

    def write(self, text: str) -> None:
        text = close_wide_emphasis(text)
        if self.cell is not None:
            self.cell.append(text)
            return
        self.bullet = False
        self.out.append(text)
        self.units += utf16_length(text)

    def begin_block(self, at: int) -> None:
        """Begin a block on a new line, after a blank line if the source has one."""
        if not self.out or self.bullet:
            return
        before = self.source[max(0, at - 80) : at]
        blank = before[len(before.rstrip(b" \t\r\n\f\v>")) :]
        wanted = "\n\n" if blank.count(b"\n") > 1 else "\n"
        tail = "".join(self.out[-2:])
        missing = len(wanted) - (len(tail) - len(tail.rstrip("\n")))
        if missing > 0:
            self.write("\n" * missing)

    def begin_item(self, at: int) -> None:
        self.begin_block(at)
        number = self.lists[-1]
        if number is not None:
            self.lists[-1] = number + 1
        self.write("  " * (len(self.lists) - 1))
        self.write("• " if number is None else f"{number}. ")
        self.bullet = True

    def open_entity(self, kind: str, extra: str = "") -> None:
        self.open.append((kind, self.units, extra))

    def close_entity(self) -> None:
        """Close the innermost entity. Drop it if it has no kind or no length, or is in a table cell."""
        kind, start, extra = self.open.pop()
        if kind and self.units > start and self.cell is None:
            language: Entity = {"language": extra} if extra else {}
            self.entities.append({"type": kind, "offset": start, "length": self.units - start, **language})

    def close_link(self) -> None:
        """Close a link. Write out a target that Telegram does not link, and every target in a table."""
        _, start, url = self.open.pop()
        shown = "".join(self.cell[-1:] if self.cell is not None else self.out[-1:])
        if self.cell is None and LINK.fullmatch(url) and self.units > start:
            if shown != url:
                self.entities.append({"type": "text_link", "offset": start, "length": self.units - start, "url": url})
        elif url and shown != url and shown != url.removeprefix("mailto:"):
            self.write(f" ({url})")
