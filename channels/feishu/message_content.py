"""Parse the content of a Feishu message: text with mentioned names, cards, entries of other kinds, and files.

Shapes: open.feishu.cn/document/server-docs/im-v1/message-content-description/message_content

Read what a person sees of a Feishu message that is no text: cards, polls, places, tasks, events, contacts.

open.feishu.cn/document/uAjLw4CM/ukTMukTMukTM/im-v1/message/events/message_content, and of cards as their senders wrote
them …/feishu-cards/card-json-v2-structure; that those come with `user_card_content` only, and otherwise as "upgrade
your client": github.com/openclaw/openclaw/issues/78289, github.com/riba2534/feishu-cli/pull/127.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import orjson

from agent.messages import Attachment, Author
from catalogue import N_
from channels.shared.texts import remove_bot_mention
from channels.shared.visible_text import dict_of, dicts_in, join_visible, labelled, linked, text_of

CONTACT = "Contact: "  # before the id of a person, whom `enrich` names
ENTRIES = frozenset(
    {"share_calendar_event", "calendar", "general_calendar", "share_chat", "share_user", "location", "video_chat"}
    | {"todo", "vote"}
)
MAX_DEPTH = 10  # of elements in elements
MAX_ELEMENTS = 400  # of a card, which has at most 200

CardJson = dict[str, Any]


def entry_lines(kind: str, raw: CardJson) -> Iterator[str]:
    """Yield the text of one of `ENTRIES`, a line for each part."""
    match kind:
        case "location":
            place = ", ".join(filter(None, (text_of(raw.get("name")), _coordinates(raw))))
            yield labelled("Place", place or "unknown")
        case "share_user":
            yield f"{CONTACT}{raw.get('user_id', 'somebody')}"
        case "share_chat":
            yield labelled("Group", raw.get("chat_id"))
        case "vote":
            yield labelled("Poll", raw.get("topic"))
            options = raw.get("options")
            yield from (f"• {each}" for each in (options if isinstance(options, list) else ()))
        case "todo":
            summary = dict_of(raw.get("summary"))
            rows = summary.get("content")
            parts = (part for row in (rows if isinstance(rows, list) else ()) for part in dicts_in(row))
            said = "".join(text_of(part.get("text")) for part in parts)
            yield labelled("Task", " ".join(filter(None, (text_of(summary.get("title")), said))) or "without a name")
            yield _dated("Due", raw.get("due_time"))
        case "video_chat":
            yield labelled("Call", raw.get("topic"))
            yield _dated("Begins", raw.get("start_time"))
        case _:
            yield labelled("Calendar", raw.get("summary"))
            yield _dated("Begins", raw.get("start_time"))
            yield _dated("Ends", raw.get("end_time"))


def is_written_card(card: CardJson) -> bool:
    """Return whether a card is as its sender wrote it, and not the rows of text that Feishu makes of one."""
    elements = card.get("elements")
    rows = isinstance(elements, list) and any(isinstance(each, list) for each in elements)
    return not rows and any(name in card for name in ("schema", "header", "body", "elements", "i18n_elements"))


def unwrapped_card(raw: CardJson) -> CardJson:
    """Return the card of an event, which may come as JSON in JSON (github.com/larksuite/cli/pull/1480)."""
    written = raw.get("user_dsl")
    return dict_of(orjson.loads(written)) if isinstance(written, str) else raw


def card_lines(card: CardJson) -> Iterator[str]:
    """Yield the text of a card as its sender wrote it."""
    budget = [MAX_ELEMENTS]
    header = dict_of(card.get("header")) or _first_language(card.get("i18n_header"))
    for name in ("title", "subtitle"):
        yield _content(header.get(name))
    body = dict_of(card.get("body"))
    elements = body.get("elements") or card.get("elements")
    if not elements and isinstance(languages := card.get("i18n_elements"), dict):
        elements = next(iter(languages.values()), ())
    for element in dicts_in(elements):
        yield from _element_lines(element, budget, 0)


def _element_lines(element: CardJson, budget: list[int], depth: int) -> Iterator[str]:
    """Yield the text of an element: its own, and that of the elements, columns and fields in it."""
    budget[0] -= 1
    if depth > MAX_DEPTH or budget[0] < 0:
        return
    match element.get("tag"):
        case "markdown" | "plain_text" | "lark_md":
            yield _content(element)
        case "button" | "overflow":
            address = _address(element)
            yield linked(_content(element.get("text")), address) if address else ""
        case "img":
            yield _content(element.get("alt")) or _content(element.get("title"))
        case "table":
            yield from _table_lines(element)
        case _:
            yield _content(element.get("text")) or text_of(element.get("content"))
            yield _content(dict_of(element.get("header")).get("title"))
            for name in ("fields", "elements", "columns", "actions"):
                for inner in dicts_in(element.get(name)):
                    yield from _element_lines(inner, budget, depth + 1)
            if extra := dict_of(element.get("extra")):
                yield from _element_lines(extra, budget, depth + 1)


def _table_lines(table: CardJson) -> Iterator[str]:
    columns = [(str(each.get("name")), _content(each.get("display_name"))) for each in dicts_in(table.get("columns"))]
    yield " | ".join(shown or name for name, shown in columns)
    for row in dicts_in(table.get("rows")):
        yield " | ".join(str(row.get(name, "")) for name, _shown in columns)


def _address(button: CardJson) -> str:
    opens = [each.get("default_url") for each in dicts_in(button.get("behaviors"))]
    every = (button.get("url"), dict_of(button.get("multi_url")).get("url"), *opens)
    return next((each for each in every if isinstance(each, str) and each), "")


def _content(value: object) -> str:
    """Return a text, or that of a text element."""
    return text_of(value.get("content") if isinstance(value, dict) else value)


def _first_language(value: object) -> CardJson:
    return next((each for each in value.values() if isinstance(each, dict)), {}) if isinstance(value, dict) else {}


def _coordinates(raw: CardJson) -> str:
    latitude, longitude = raw.get("latitude"), raw.get("longitude")
    return f"({latitude}, {longitude})" if latitude and longitude else ""


def _dated(label: str, value: object) -> str:
    """Return a time of milliseconds with its label; "" for none, and 0 stands for none."""
    try:
        seconds = int(str(value)) / 1000
        return f"{label}: {datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC" if seconds else ""
    except (ValueError, OverflowError, OSError):
        return ""


MAX_NAMED = 20  # people whom a message mentions
FORWARDED_TEXT = "(forwarded messages)"  # text of a bundle until `enrich` reads it

_UNSUPPORTED = {"sticker": N_("stickers"), "hongbao": N_("red packets"), "folder": N_("folders")}
_MENTION_KEY = re.compile(r"@_user_\d+|@_all")

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MessageContent:
    """The text without the bot's mention, and the files. `unsupported` names a content that is not read."""

    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    mentions_bot: bool = False
    mentions_others: bool = False
    unsupported: str = ""
    named: tuple[Author, ...] = ()  # people whom it mentions


def parse_content(message: Json, bot: str) -> MessageContent:
    """Parse a message of an event, or of the history in the same shape; `bot` is the bot's open id."""
    kind = str(message["message_type"])
    raw = orjson.loads(message.get("content") or "{}")
    if kind in _UNSUPPORTED:
        return MessageContent(unsupported=_UNSUPPORTED[kind])
    if kind == "merge_forward":
        return MessageContent(FORWARDED_TEXT)
    id = str(message["message_id"])
    text, files = "", list[Attachment]()
    if kind in ENTRIES:
        text = join_visible("", entry_lines(kind, dict_of(raw)))
    elif kind == "text":
        text = str(raw.get("text", ""))
        if message.get("updated"):  # edited messages contain paragraph tags
            text = text.replace("</p><p>", "\n").removeprefix("<p>").removesuffix("</p>")
    elif kind == "interactive":
        card = unwrapped_card(dict_of(raw))
        written = is_written_card(card)
        text, files = (join_visible("", card_lines(card)), []) if written else _parse_rich_text(card, id)
    elif kind == "post":
        text, files = _parse_rich_text(raw, id)
    elif attachment := _parse_file(kind, raw, id):
        files = [attachment]
    else:
        return MessageContent(unsupported=f"“{kind}” messages")
    mentions = {str(mention["key"]): mention for mention in message.get("mentions") or ()}
    own = {key for key, mention in mentions.items() if _mentioned_id(mention) == bot}
    names = {key: "\0" if key in own else f"@{each.get('name') or 'somebody'}" for key, each in mentions.items()}
    people = [(_mentioned_id(each), str(each.get("name") or "")) for key, each in mentions.items() if key not in own]
    named = tuple(Author(id, name or id) for id, name in people if isinstance(id, str) and id.startswith("ou_"))
    return MessageContent(
        _text_with_names(text, names), tuple(files), bool(own), own != mentions.keys(), named=named[:MAX_NAMED]
    )


def _text_with_names(text: str, names: Mapping[str, str]) -> str:
    """Replace the keys of mentions by names; the bot's own name is "\\0" and is removed."""
    text = _MENTION_KEY.sub(lambda key: "@all" if key[0] == "@_all" else names.get(key[0], key[0]), text)
    return remove_bot_mention(text)


def _mentioned_id(mention: Json) -> object:
    """Return the open id: events have several ids, the history has one."""
    id = mention.get("id")
    return id.get("open_id") if isinstance(id, dict) else id


def _parse_rich_text(raw: Any, message_id: str) -> tuple[str, list[Attachment]]:
    """Return the text of a post or card, and its images and files in order."""
    body = raw
    if "content" not in raw and "elements" not in raw:  # one body for each language
        body = next((part for part in raw.values() if isinstance(part, dict)), {})
    rows = body.get("content") or body.get("elements") or []
    files: list[Attachment] = []
    lines = [
        _line_text(row if isinstance(row, list) else [row], message_id, files)
        for row in (rows if isinstance(rows, list) else ())
    ]
    title = body.get("title")
    return "\n".join([str(title), *lines] if title else lines).strip(), files


def _line_text(parts: list[Any], message_id: str, files: list[Attachment]) -> str:
    """Return the text of a line, and append its files."""
    line = ""
    for part in parts:
        match part.get("tag"):
            case "a":
                text, link = str(part.get("text", "")), str(part.get("href", ""))
                line += text if text == link else f"{text} ({link})"
            case "at":
                key = str(part.get("user_id", ""))
                line += key if _MENTION_KEY.fullmatch(key) else f"@{part.get('user_name') or key}"
            case "img" | "media" as tag:
                files.append(_parse_file("image" if tag == "img" else "media", part, message_id, len(files)))  # type: ignore[arg-type] # both kinds are known
                line += f"[{files[-1].kind}: {files[-1].name}]"
            case "code_block":
                line += f"```{str(part.get('language', '')).lower()}\n{part.get('text', '')}\n```"
            case "emotion":
                line += f":{part.get('emoji_type', '')}:"
            case "hr":
                line += "---"
            case _:
                line += str(part.get("text") or part.get("content") or "")
    return line


def _parse_file(kind: str, raw: Json, message_id: str, index: int = 0) -> Attachment | None:
    """Return the file of a message. `ref` is "message id/file key/type", as the download needs them."""
    described: tuple[str, str, Literal["file", "image", "audio", "video"]]
    short = f"{message_id[-6:]}_{index}" if index else message_id[-6:]
    match kind:
        case "image":
            described = (f"image_{short}.png", "image/png", "image")
        case "file":
            described = (str(raw.get("file_name") or f"file_{short}"), "application/octet-stream", "file")
        case "audio":
            described = (f"voice_{short}.opus", "audio/ogg", "audio")
        case "media":
            described = (str(raw.get("file_name") or f"video_{short}.mp4"), "video/mp4", "video")
        case _:
            return None
    key = raw["image_key"] if kind == "image" else raw["file_key"]
    ref = f"{message_id}/{key}/{'image' if kind == 'image' else 'file'}"
    name, mime, family = described
    return Attachment(ref, name, mime, None, family)
