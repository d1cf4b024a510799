"""Read WeChat's messages. Shapes: @tencent-weixin/openclaw-weixin 2.4.9, src/api/types.ts and docs/protocol.md."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, MutableMapping
from typing import Any, Literal

import orjson

from agent.messages import Attachment, Author, Kind, Message, Origin, Quote, ReplyHandle, Thread, Unreadable
from channels.base import parse_command_text
from channels.shared.visible_text import dict_of, dicts_in, make_unread, text_of, with_author
from channels.wechat import NAME

MAX_TEXT_CHARS = 65_536
WINDOW_SECONDS = 86_400.0  # in which the robot may answer (openclaw-weixin#204)
MAX_QUOTE_CHARS = 4_000
TEXT, VOICE = 1, 3
_FILES: Mapping[int, tuple[str, Literal["file", "image", "audio", "video"], str, str]] = {
    2: ("image_item", "image", "image_{}.jpg", "image/jpeg"),
    3: ("voice_item", "audio", "voice_{}.silk", "audio/silk"),
    4: ("file_item", "file", "file_{}", "application/octet-stream"),
    5: ("video_item", "video", "video_{}.mp4", "video/mp4"),
}
Json = Mapping[str, Any]


def parse_message(
    event: Json, bot: str, texts: MutableMapping[str, str], language: str = ""
) -> Message | Unreadable | None:
    """Read one message; None for one of the robot itself. `texts` are those of the latest messages, by their ids."""
    try:
        return _parse(event, bot, texts, language)
    except Exception as error:  # noqa: BLE001 — the boundary of one event
        raw = orjson.dumps(event)
        id = event.get("message_id") if isinstance(event, dict) else None
        key = f"{NAME}:{bot}:event:{id or hashlib.blake2b(raw, digest_size=16).hexdigest()}"
        lost = Unreadable(NAME, key, raw, f"{type(error).__name__}: {error}")
        return with_author(lost, lambda: _unread(event, bot))


def _unread(event: Json, bot: str) -> Message:
    id, person = event["message_id"], event["from_user_id"]
    return make_unread(Thread(NAME, bot, str(person)), f"{NAME}:{bot}:{id}", id, person, private=True)


def _parse(event: Json, bot: str, texts: MutableMapping[str, str], language: str) -> Message | None:
    if event.get("message_type") != 1:  # 2 is the robot
        return None
    id, person = str(int(event["message_id"])), str(event["from_user_id"])
    at, context = float(event["create_time_ms"]) / 1000, text_of(event.get("context_token"))
    said: list[str] = []
    files: list[Attachment] = []
    quotes: list[Quote] = []
    for item in dicts_in(event["item_list"]):
        kind = item.get("type")
        said += [text] if (text := _text_of(item)) else []
        files += _file(item, id, len(files)) if kind != VOICE or not text else []  # its words are enough
        quotes += _quote(dict_of(item.get("ref_msg")), texts, person)
    text = "\n".join(said)[:MAX_TEXT_CHARS]
    texts[id] = text[:MAX_QUOTE_CHARS]
    command = None if files or quotes else parse_command_text(text)
    shape = Kind.CHAT if command is None else Kind.COMMAND
    if not (text or files):
        shape, text = Kind.UNSUPPORTED, "messages of this kind"
    return Message(
        Thread(NAME, bot, person),
        f"{NAME}:{bot}:{id}",
        id,
        Author(person, person.partition("@")[0], language=language),
        text if command is None else command,
        at,
        shape,
        attachments=tuple(files),
        quotes=tuple(quotes),
        long=bool(files) and not text,  # the app sends files one by one
        private=True,
        reply_handle=ReplyHandle(context, at + WINDOW_SECONDS, of_chat=True) if context else None,
        origin=Origin.PERSON,
    )


def _text_of(item: Json) -> str:
    if item.get("type") == VOICE:
        return text_of(dict_of(item.get("voice_item")).get("text")).strip()
    return text_of(dict_of(item.get("text_item")).get("text")).strip() if item.get("type") == TEXT else ""


def _file(item: Json, message: str, index: int) -> list[Attachment]:
    """Return the file of an item: its `ref` is what `files` needs to fetch and open it."""
    shape = _FILES.get(item.get("type", 0))
    content = dict_of(item.get(shape[0])) if shape else {}
    media = dict_of(content.get("media"))
    if shape is None or not media:
        return []
    if beside := text_of(content.get("aeskey")):  # of a picture
        media = {**media, "aeskey": beside}
    _field, family, name, mime = shape
    given = text_of(content.get("file_name")) or name.format(f"{message[-6:]}{f'_{index}' if index else ''}")
    size = text_of(content.get("len"))
    known = int(size) if size.isdecimal() and len(size) < 16 else None
    return [Attachment(orjson.dumps(media).decode(), given, mime, known, family)]


def _quote(ref: Json, texts: Mapping[str, str], person: str) -> list[Quote]:
    """Return a quoted message: its text, or what was kept under its id, by which alone new apps name it.

    A text comes without its author, who may be the robot. What is kept is the person's own.
    """
    if not ref:
        return []
    item = dict_of(ref.get("message_item"))
    own = texts.get(str(item.get("svr_id") or ref.get("svr_id") or ""), "")
    said = (_text_of(item) or own)[:MAX_QUOTE_CHARS]
    if said and said == own:
        return [Quote("somebody", said, author_id=person, member=True)]
    return [Quote("somebody", said) if said else Quote("", "", "unread")]
