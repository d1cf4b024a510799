"""Parse DingTalk's events to messages, at most one for each event.

Shapes: open.dingtalk.com/document/development/robot-receive-message, …/robot-message-type and …/event-callback-card.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from agent.messages import Attachment, Author, Kind, Message, Origin, Quote, Thread, Unreadable
from channels.base import parse_command_text
from channels.dingtalk.api import MESSAGE_TOPIC
from channels.shared.buttons import as_command
from channels.shared.unread import make_unread, with_author
from channels.shared.visible_text import dicts_in

NAME = "dingtalk"
MAX_QUOTE_CHARS = 4_000
_FILES: dict[str, tuple[Literal["file", "image", "audio", "video"], str, str]] = {
    "picture": ("image", "image_{}.png", "image/png"),
    "audio": ("audio", "voice_{}.amr", "audio/amr"),
    "video": ("video", "video_{}.mp4", "video/mp4"),
    "file": ("file", "file_{}", "application/octet-stream"),
}
_CHAT = frozenset({"text", "richText", "chatRecord", *_FILES})

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DingTalkAccount:
    """The app, the robot's name in mentions, and the language of the brand ("": unknown)."""

    client_id: str
    name: str
    language: str = ""

    def thread(self, chat: str) -> Thread:
        return Thread(NAME, self.client_id, chat)

    def key(self, id: str) -> str:
        return f"{NAME}:{self.client_id}:{id}"


def is_group(thread: Thread) -> bool:
    """Return whether the chat is a group's conversation id, not "@" and the id of a person."""
    return not thread.chat.startswith("@")


def parse_event(topic: str, raw: bytes, me: DingTalkAccount) -> Message | Unreadable | None:
    """Parse one event. Returns None for a click on a button that is not one of Fawn's."""
    event: Any = None
    try:
        event = orjson.loads(raw)
        return _parse_message(event, me) if topic == MESSAGE_TOPIC else _parse_click(event, me)
    except Exception as error:  # noqa: BLE001 — the boundary of one event: an unknown shape must not stop the others
        id = event.get("msgId") if isinstance(event, dict) else None
        key = me.key(f"event:{id or hashlib.blake2b(raw, digest_size=16).hexdigest()}")
        lost = Unreadable(NAME, key, raw, f"{type(error).__name__}: {error}")
        return with_author(lost, lambda: _unread(event, me) if topic == MESSAGE_TOPIC else None)


def _unread(event: Json, me: DingTalkAccount) -> Message:
    """Return the message that an unreadable event was: DingTalk sends only those for the robot."""
    id, private = event["msgId"], event["conversationType"] == "1"
    person = event.get("senderStaffId") or event["senderId"]
    thread = me.thread(f"@{person}" if private else str(event["conversationId"]))
    return make_unread(thread, me.key(str(id)), id, person, private=private)


def _parse_message(event: Json, me: DingTalkAccount) -> Message:
    """Parse a message. In groups, the platform sends only those that mention the robot."""
    id, kind, private = str(event["msgId"]), str(event["msgtype"]), event["conversationType"] == "1"
    person = str(event.get("senderStaffId") or event["senderId"])
    is_guest = not event.get("senderStaffId") or event.get("senderCorpId") not in (None, event.get("chatbotCorpId"))
    content = event.get("text" if kind == "text" else "content") or {}
    text, files = _parse_content(kind, content, id)
    text = text.removeprefix(f"@{me.name}").strip()
    quotes: list[Quote] = []
    if kind == "chatRecord":
        quotes, text = [Quote("somebody", text[:MAX_QUOTE_CHARS], "forward")], ""
    replied = content.get("repliedMsg") or {}
    if replied and replied.get("senderId") != event.get("chatbotUserId"):  # the conversation has the bot's own
        said, quoted_files = _parse_content(
            str(replied.get("msgType")), replied.get("content") or {}, str(replied.get("msgId"))
        )
        author = str(replied.get("senderStaffId") or replied.get("senderId") or "")
        quotes += [Quote("somebody", said[:MAX_QUOTE_CHARS], author_id=author)] if said else []
        quotes += [] if said or quoted_files else [Quote("", "", "unread")]  # DingTalk shows a robot no cards
        files += quoted_files
    quoted = str(event.get("originalProcessQueryKey") or "")  # of a message of the bot: the key that its post returned
    command = None if files else parse_command_text(text)
    message_kind = Kind.CHAT if command is None else Kind.COMMAND
    if kind not in _CHAT:
        message_kind, text = Kind.UNSUPPORTED, f"“{kind}” messages"
    return Message(
        thread=me.thread(f"@{person}" if private else str(event["conversationId"])),
        key=me.key(id),
        id=id,
        author=Author(person, str(event.get("senderNick") or person), guest=is_guest, language=me.language),
        text=text if command is None else command,
        time=int(event["createAt"]) / 1000,
        kind=message_kind,
        attachments=tuple(files),
        quotes=tuple(quotes),
        reply_to=f"/{quoted}" if quoted else str(replied.get("msgId") or ""),
        to_bot=bool(quoted),
        long=not text and bool(files),  # the client sends files one by one
        private=private,
        origin=Origin.PERSON,
    )


def _parse_content(kind: str, content: Json, message_id: str) -> tuple[str, list[Attachment]]:
    """Return the text and the files of a message, or of a quoted one in the same shape."""
    if kind != "richText":
        text = content.get("content") or content.get("text") or content.get("recognition") or content.get("summary")
        return str(text or "").strip(), _file(kind, content, message_id, 0)
    text, files = "", list[Attachment]()
    for part in dicts_in(content.get("richText")):
        text += str(part.get("text") or part.get("content") or "")
        files += _file("picture", part, message_id, len(files))
    return text.strip(), files


def _file(kind: str, content: Json, message_id: str, index: int) -> list[Attachment]:
    if kind not in _FILES or "downloadCode" not in content:
        return []
    family, name, mime = _FILES[kind]
    short = re.sub(r"\W", "", message_id)[-6:] + (f"_{index}" if index else "")
    return [
        Attachment(str(content["downloadCode"]), str(content.get("fileName") or name.format(short)), mime, None, family)
    ]


def _parse_click(event: Json, me: DingTalkAccount) -> Message | None:
    """Parse a pressed button. A press has no id: a second one of a person on one button of a card is the same event."""
    params = orjson.loads(event["content"]).get("cardPrivateData", {}).get("params") or {}
    if "ask" not in params or "option" not in params:
        return None
    ask, option = orjson.loads(params["ask"]), str(params["option"])
    person, track = str(event["userId"]), str(event["outTrackId"])
    chat, digest = str(ask["chat"]), hashlib.blake2b(option.encode(), digest_size=8).hexdigest()
    click = Message(
        thread=me.thread(chat),
        key=me.key(f"click:{track}:{person}:{digest}"),
        id=track,
        author=Author(person, person, language=me.language),
        text=option,
        time=time.time(),
        kind=Kind.CLICK,
        target=str(ask["id"]),
        private=chat.startswith("@"),
        to_bot=True,
        reply_to=track,
        origin=Origin.PERSON,
    )
    return as_command(click, option) or click
