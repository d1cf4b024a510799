"""Parse the content of a Feishu message: text with mentioned names, cards, entries of other kinds, and files.

Shapes: open.feishu.cn/document/server-docs/im-v1/message-content-description/message_content
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from agent.messages import Attachment, Author
from catalogue import N_
from channels.feishu.visible_text import ENTRIES, card_lines, entry_lines, is_written_card, unwrapped_card
from channels.shared.texts import remove_bot_mention
from channels.shared.visible_text import dict_of, join_visible

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
