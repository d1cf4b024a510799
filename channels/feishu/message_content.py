"""Parse the content of a Feishu message: text with names, and files.

Shapes: open.feishu.cn/document/server-docs/im-v1/message-content-description/message_content
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from agent.messages import Attachment

FORWARDED_TEXT = "(forwarded messages)"  # the text of a bundle until `enrich` has read it

_UNSUPPORTED = {
    "sticker": "stickers",
    "hongbao": "red packets",
    "share_calendar_event": "calendar entries",
    "calendar": "calendar entries",
    "general_calendar": "calendar entries",
    "share_chat": "shared groups",
    "share_user": "contact cards",
    "location": "locations",
    "folder": "folders",
    "video_chat": "calls",
    "todo": "tasks",
    "vote": "polls",
}
_KEY = re.compile(r"@_user_\d+|@_all")

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MessageContent:
    """The text without the bot's mention; `mentioned`: the bot was named, `others`: somebody else was.
    `unsupported` is what it is when it is nothing we read."""

    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    mentioned: bool = False
    others: bool = False
    unsupported: str = ""


def parse_content(message: Json, bot: str) -> MessageContent:
    """What an event's (or the history's) message says; `bot` is the bot's open id."""
    kind = str(message["message_type"])
    raw = orjson.loads(message.get("content") or "{}")
    if kind in _UNSUPPORTED:
        return MessageContent(unsupported=_UNSUPPORTED[kind])
    if kind == "merge_forward":
        return MessageContent(FORWARDED_TEXT)
    names = _MentionNames(message.get("mentions") or (), bot)
    number = str(message["message_id"])
    text, files = "", tuple[Attachment, ...]()
    if kind == "text":
        text = str(raw.get("text", ""))
        if message.get("updated"):  # the editor leaves its paragraphs in it
            text = text.replace("</p><p>", "\n").removeprefix("<p>").removesuffix("</p>")
    elif kind in ("post", "interactive"):
        text, files = _parse_rich_text(raw, number)
    elif attachment := _parse_file(kind, raw, number):
        files = (attachment,)
    else:
        return MessageContent(unsupported=f"“{kind}” messages")
    return MessageContent(names.readable(text), files, names.mentioned, names.others)


class _MentionNames:
    """The people that a message names: their placeholders become their names, the bot's own goes."""

    def __init__(self, mentions: Any, bot: str) -> None:
        self._names: dict[str, str] = {}
        self.mentioned = self.others = False
        for mention in mentions:
            known = mention.get("id")
            own = (known.get("open_id") if isinstance(known, dict) else known) == bot
            self._names[str(mention["key"])] = "" if own else f"@{mention.get('name') or 'somebody'}"
            self.mentioned |= own
            self.others |= not own

    def readable(self, text: str) -> str:
        def named(found: re.Match[str]) -> str:
            return "@all" if found[0] == "@_all" else self._names.get(found[0], found[0]) or "\0"

        return re.sub(r"(?m)^\0[ \t,:，：]*|(?<![ \t])[ \t]*\0|\0", "", _KEY.sub(named, text)).strip()


def _parse_rich_text(raw: Any, number: str) -> tuple[str, tuple[Attachment, ...]]:
    """A post's (or card's) text with its images and files, in order."""
    body = raw
    if "content" not in raw and "elements" not in raw:  # by language
        body = next((part for part in raw.values() if isinstance(part, dict)), {})
    files: list[Attachment] = []
    lines = [_line_text(line if isinstance(line, list) else [line], number, files) for line in _body_lines(body)]
    title = body.get("title")
    return "\n".join([str(title), *lines] if title else lines).strip(), tuple(files)


def _body_lines(body: Json) -> Iterator[Any]:
    rows = body.get("content") or body.get("elements") or []
    yield from rows if isinstance(rows, list) else ()


def _line_text(parts: list[Any], number: str, files: list[Attachment]) -> str:
    said = ""
    for part in parts:
        match part.get("tag"):
            case "a":
                text, link = str(part.get("text", "")), str(part.get("href", ""))
                said += text if text == link else f"{text} ({link})"
            case "at":
                key = str(part.get("user_id", ""))
                said += key if _KEY.fullmatch(key) else f"@{part.get('user_name') or key}"
            case "img" | "media" as tag:
                files.append(_parse_file("image" if tag == "img" else "media", part, number, len(files)))  # type: ignore[arg-type] # both kinds are known
                said += f"[{files[-1].kind}: {files[-1].name}]"
            case "code_block":
                said += f"```{str(part.get('language', '')).lower()}\n{part.get('text', '')}\n```"
            case "emotion":
                said += f":{part.get('emoji_type', '')}:"
            case "hr":
                said += "---"
            case _:
                said += str(part.get("text") or part.get("content") or "")
    return said


def _parse_file(kind: str, raw: Json, number: str, index: int = 0) -> Attachment | None:
    """The file of a message. `ref` is the message, the file's key and its kind, as the download wants them."""
    made: tuple[str, str, Literal["file", "image", "audio", "video"]]
    short = f"{number[-6:]}_{index}" if index else number[-6:]
    match kind:
        case "image":
            made = (f"image_{short}.png", "image/png", "image")
        case "file":
            made = (str(raw.get("file_name") or f"file_{short}"), "application/octet-stream", "file")
        case "audio":
            made = (f"voice_{short}.opus", "audio/ogg", "audio")
        case "media":
            made = (str(raw.get("file_name") or f"video_{short}.mp4"), "video/mp4", "video")
        case _:
            return None
    key = raw["image_key"] if kind == "image" else raw["file_key"]
    ref = f"{number}/{key}/{'image' if kind == 'image' else 'file'}"
    return Attachment(ref, made[0], made[1], None, made[2])
