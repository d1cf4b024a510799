"""Telegram's rules for text: UTF-16 lengths, entities, trimming, and the exact words of its refusals.

The wording follows the open source server (tdlib/telegram-bot-api, td/telegram/MessageEntity.cpp).
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from contextlib import suppress
from html.parser import HTMLParser
from typing import NoReturn

from tests.fakes.server import Json

TEXT_UNITS = 4096
CAPTION_UNITS = 1024
MOST_ENTITIES = 100  # later ones are silently ignored

KINDS = frozenset(
    [
        "mention",
        "hashtag",
        "cashtag",
        "bot_command",
        "url",
        "email",
        "phone_number",
        "bold",
        "italic",
        "underline",
        "strikethrough",
        "spoiler",
        "blockquote",
        "expandable_blockquote",
        "code",
        "pre",
        "text_link",
        "text_mention",
        "custom_emoji",
        "date_time",
    ]
)
TAGS = {
    "b": "bold",
    "strong": "bold",
    "i": "italic",
    "em": "italic",
    "u": "underline",
    "s": "strikethrough",
    "del": "strikethrough",
    "code": "code",
    "pre": "pre",
    "a": "text_link",
    "blockquote": "blockquote",
    "tg-spoiler": "spoiler",
}


RICH_TAGS = {  # core.telegram.org/bots/api#rich-message-formatting-options, those without media
    *("a", "b", "strong", "i", "em", "u", "ins", "s", "strike", "del", "code", "mark", "sub", "sup", "tg-spoiler"),
    *("tg-time", "tg-math", "h1", "h2", "h3", "h4", "h5", "h6", "p", "pre", "footer", "hr", "ul", "ol", "li", "input"),
    *("blockquote", "aside", "cite", "br", "table", "caption", "tr", "th", "td", "details", "summary", "tg-math-block"),
}
RICH_BLOCKS = {"h1", "h2", "h3", "h4", "h5", "h6", "p", "pre", "footer", "hr", "ul", "ol", "li", "blockquote", "table"}
RICH_UNITS, RICH_BLOCK_COUNT, RICH_COLUMNS = 32_768, 500, 20
VOID = {"br", "hr", "input"}


class BadText(Exception):
    """Text or entities that Telegram refuses; the message is the description after "Bad Request: "."""


def units(text: str) -> int:
    """The length Telegram counts: UTF-16 code units."""
    return len(text.encode("utf-16-le")) // 2


def found_entities(text: str) -> list[Json]:
    """The mentions and commands that Telegram marks by itself in what a person writes."""
    return [
        {
            "type": "mention" if match[0].startswith("@") else "bot_command",
            "offset": units(text[: match.start()]),
            "length": units(match[0]),
        }
        for match in re.finditer(r"(?<!\S)(?:@\w{3,}|/[a-z0-9_]{1,32}(?:@\w+)?)(?!\w)", text, re.IGNORECASE)
    ]


def formatted(text: str, entities: list[Json], parse_mode: str, limit: int) -> tuple[str, list[Json]]:
    """Text and entities as Telegram keeps them: parsed, checked, trimmed at both ends.

    Raises BadText; an empty result is the caller's to judge (a caption may be empty).
    """
    if parse_mode:
        text, entities = _parsed(text, parse_mode)
    _check(text, entities)
    lead = units(text) - units(text.lstrip())
    text = text.strip()
    if units(text) > limit:
        raise BadText("message is too long" if limit == TEXT_UNITS else "message caption is too long")
    length = units(text)
    kept = []
    for entity in entities[:MOST_ENTITIES]:
        start = max(0, entity["offset"] - lead)
        end = min(length, entity["offset"] + entity["length"] - lead)
        if end > start:
            kept.append({**_link_of(entity), "offset": start, "length": end - start})
    return text, kept


def marked(text: str, entities: list[Json], people: Mapping[int, Json]) -> list[Json]:
    """Return the text with entities that the server adds: "@name" outside code and links is a mention, a link to
    tg://user?id=… a mention without a username; mentions of unknown people are dropped."""
    known: list[Json] = []
    for entity in entities:
        link = re.match(r"tg:(?://)?user\?id=(\d+)", str(entity.get("url") or ""), re.IGNORECASE)
        if link or entity["type"] == "text_mention":
            user = int(link[1] if link else entity["user"]["id"])
            if user not in people:
                continue
            place = {key: entity[key] for key in ("offset", "length")}
            entity = {"type": "text_mention", **place, "user": people[user]}
        known.append(entity)
    opaque = [
        range(entity["offset"], entity["offset"] + entity["length"])
        for entity in known
        if entity["type"] in ("code", "pre", "text_link", "text_mention")
    ]
    urls = [range(*match.span()) for match in re.finditer(r"https?://\S+", text, re.IGNORECASE)]
    for match in re.finditer(r"(?<!\w)@[a-zA-Z0-9_]{3,32}(?!\w)", text):
        start = units(text[: match.start()])
        if not any(start in place for place in opaque) and not any(match.start() in url for url in urls):
            known.append({"type": "mention", "offset": start, "length": units(match[0])})
    return known


def checked_url(url: str) -> str:
    """Return a link as the server keeps it. Raises BadText.

    The rules and words are those of td/telegram/LinkManager.cpp (check_link_impl) and tdutils/td/utils/HttpUrl.cpp.
    """

    def refuse(why: str) -> NoReturn:
        raise BadText(f"entity URL '{url}' is invalid: {why}")

    internal = re.match(r"(tg|ton):(?://)?", url, re.IGNORECASE)
    rest = url[internal.end() :] if internal else url
    scheme, found, after = rest.partition("://")
    if not found or re.search(r"[:/?#@\[\]]", scheme):
        scheme, after = "http", rest
    elif scheme.lower() not in ("http", "https"):
        refuse("Unsupported URL protocol")
    place = re.split(r"[/?#]", after, maxsplit=1)[0]
    before, colon, port = place.rpartition(":")
    if not colon or not before or re.search(r"[\]@]", port):
        before, port = place, ""
    elif not (port.isascii() and port.isdigit() and 0 < int(port) <= 65535):
        refuse("Wrong port number specified in the URL")
    userinfo, _, host = before.rpartition("@")
    if not host:
        refuse("URL host is empty")
    literal = re.fullmatch(r"\[[\da-f:.]+\]", host, re.IGNORECASE)
    if not literal and re.search(r"[^\w.!$,~*'();&+=%\x80-\U0010ffff-]", host):
        refuse("Disallowed character in URL host")
    if internal:
        if userinfo or port or literal or scheme.lower() == "https":
            refuse(f"Wrong {internal[1]} URL")
        if not re.fullmatch(r"[A-Za-z0-9_-]+", host):
            refuse("Unallowed characters in URL host")
        return f"{internal[1].lower()}://{host}{after[len(place) :]}"
    if "." not in host and not literal:
        refuse("Wrong HTTP URL")
    path = after[len(place) :]
    return f"{scheme.lower()}://{place}{'' if path.startswith('/') else '/'}{path}"


def _link_of(entity: Json) -> Json:
    """Return the entity with its link checked; one to a person is a mention."""
    url = str(entity.get("url") or "")
    if entity["type"] != "text_link" or re.match(r"tg:(?://)?user\?id=\d+", url, re.IGNORECASE):
        return entity
    return {**entity, "url": checked_url(url)}


def _check(text: str, entities: list[Json]) -> None:
    length = units(text)
    starts = _starts(text) if entities else ()
    for entity in entities:
        if entity.get("type") not in KINDS:
            raise BadText("can't parse MessageEntity: Unsupported type specified")
        offset, size = entity["offset"], entity["length"]
        if offset < 0 or size < 0:
            raise BadText(f"receive an entity with incorrect offset {offset}")
        if offset >= length and size:
            raise BadText(f"entity begins after the end of the text at UTF-16 offset {offset}")
        if offset + size > length:
            raise BadText(
                f"entity beginning at UTF-16 offset {offset} ends after the end of the text at UTF-16 offset"
                f" {offset + size}"
            )
        if offset not in starts:
            raise BadText(f"entity begins in a middle of a UTF-16 symbol at byte offset {offset}")
        if offset + size not in starts:
            raise BadText(f"entity beginning at UTF-16 offset {offset} ends in a middle of a UTF-16 symbol")


def _starts(text: str) -> Container[int]:
    """Every UTF-16 offset at which a character begins, and the end."""
    if max(text, default="") <= "\uffff":
        return range(len(text) + 1)
    at, starts = 0, {0}
    for char in text:
        at += 2 if ord(char) > 0xFFFF else 1
        starts.add(at)
    return starts


def _parsed(text: str, mode: str) -> tuple[str, list[Json]]:
    match mode.lower():
        case "html":
            parser = _Html()
            parser.feed(text)
            parser.close()
            return parser.result()
        case "markdownv2":
            if odd := re.search(
                r"(?<!\\)[.!=|{}#+-]", re.sub(r"```.*?```|`[^`]*`|\[.*?\]\(.*?\)", "", text, flags=re.S)
            ):
                raise BadText(
                    f"can't parse entities: Character '{odd[0]}' is reserved and must be escaped with the preceding"
                    " '\\'"
                )
            return re.sub(r"\\(.)", r"\1", text), []
        case "markdown":
            if text.count("*") % 2 or text.count("_") % 2 or text.count("`") % 2:
                raise BadText("can't parse entities: Can't find end of the entity starting at byte offset 0")
            return text, []
    raise BadText("unsupported parse_mode")


class _Html(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._text = ""
        self._open: list[tuple[str, int, Json]] = []
        self._entities: list[Json] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in TAGS:
            raise BadText(f'can\'t parse entities: Unsupported start tag "{tag}" at byte offset {self.getpos()[1]}')
        href = dict(attrs).get("href")
        self._open.append((tag, units(self._text), {"url": href} if href else {}))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1][0] != tag:
            raise BadText(f"can't parse entities: Unexpected end tag at byte offset {self.getpos()[1]}")
        name, start, extra = self._open.pop()
        with suppress(BadText):  # a wrong link in markup is dropped (td/telegram/MessageEntity.cpp, get_link_user_id)
            entity = {"type": TAGS[name], "offset": start, "length": units(self._text) - start, **extra}
            self._entities.append(_link_of(entity))

    def handle_data(self, data: str) -> None:
        self._text += data

    def result(self) -> tuple[str, list[Json]]:
        if self._open:
            raise BadText(
                f"can't parse entities: Can't find end tag corresponding to start tag \"{self._open[-1][0]}\""
            )
        return self._text, sorted(self._entities, key=lambda entity: entity["offset"])


class RichHtml(HTMLParser):
    """The HTML of a rich message: its text, its tables, whom it mentions; it raises BadText for what is refused."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.shown: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.mentioned: list[str] = []
        self._open: list[str] = []
        self._blocks = 0
        self.feed(html)
        self.close()
        if self._open:
            raise BadText(f"can't parse entities: can't find end tag corresponding to start tag \"{self._open[-1]}\"")
        if units("".join(self.shown)) > RICH_UNITS or self._blocks > RICH_BLOCK_COUNT:
            raise BadText("rich message is too long")
        if any(len(row) > RICH_COLUMNS for table in self.tables for row in table):
            raise BadText("too many columns in a table")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in RICH_TAGS:
            raise BadText(f'can\'t parse entities: unsupported start tag "{tag}"')
        self._blocks += tag in RICH_BLOCKS or tag == "tr"
        named = dict(attrs)
        if tag == "a" and (found := re.fullmatch(r"tg://user\?id=(\d+)", named.get("href") or "")):
            self.mentioned.append(found[1])
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        elif tag == "input":
            self.shown.append("☑ " if "checked" in named else "☐ ")
        elif tag == "br" or (tag in RICH_BLOCKS and self.shown):
            self.shown.append("\n")
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        if not self._open or self._open.pop() != tag:
            raise BadText(f'can\'t parse entities: unmatched end tag "{tag}"')
        if tag in ("tr", "summary", "details"):
            self.shown.append("\n")
        elif tag in ("td", "th"):
            self.shown.append(" ")

    def handle_data(self, data: str) -> None:
        self.shown.append(data)
        if {"td", "th"} & set(self._open):
            self.tables[-1][-1][-1] += data
        if not {"code", "pre"} & set(self._open):
            self.mentioned += re.findall(r"(?<!\w)@(\w{3,})", data)

    @property
    def text(self) -> str:
        return "".join(self.shown).strip()
