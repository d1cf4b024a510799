"""Read WeCom's events as messages, at most one for each event.

Shapes: developer.work.weixin.qq.com/document/path/100719 (messages) and …/101027 (events).
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
from channels.shared.unread import make_unread, with_author
from channels.wecom import NAME
from channels.wecom.connection import MESSAGE

MAX_QUOTE_CHARS = 4_000
_FILES: dict[str, tuple[Literal["file", "image", "audio", "video"], str, str]] = {
    "image": ("image", "image_{}.png", "image/png"),
    "video": ("video", "video_{}.mp4", "video/mp4"),
    "file": ("file", "file_{}", "application/octet-stream"),
}
_CHAT = frozenset({"text", "voice", "mixed", *_FILES})
_FEEDBACK = {1: (Kind.FEEDBACK, "up"), 2: (Kind.FEEDBACK, "down"), 3: (Kind.FEEDBACK_REMOVED, "up")}
_MENTION = re.compile(r"@\S+\s*")

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WeComAccount:
    """The robot: its id, its name in mentions, and the language of the brand ("": unknown)."""

    bot_id: str
    name: str
    language: str = ""

    def thread(self, chat: str) -> Thread:
        return Thread(NAME, self.bot_id, chat)

    def key(self, id: str) -> str:
        return f"{NAME}:{self.bot_id}:{id}"


def is_group(thread: Thread) -> bool:
    """Return whether the chat is a group's id, not "@" and the id of a person."""
    return not thread.chat.startswith("@")


def split_message_id(id: str) -> tuple[str, str]:
    """Return the platform's id of a message, and the `req_id` by which it is answered; "" if there is none."""
    message, _blank, req_id = id.partition(" ")
    return message, req_id


def parse_callback(command: str, req_id: str, raw: bytes, me: WeComAccount) -> Message | Unreadable | None:
    """Read one event. Returns None for one that asks for nothing, such as a person who opens the chat."""
    event: Any = None
    try:
        event = orjson.loads(raw)
        return _parse_message(event, req_id, me) if command == MESSAGE else _parse_other(event, me)
    except Exception as error:  # noqa: BLE001 — the boundary of one event: an unknown shape must not stop the others
        id = event.get("msgid") if isinstance(event, dict) else None
        key = me.key(f"event:{id or hashlib.blake2b(raw, digest_size=16).hexdigest()}")
        lost = Unreadable(NAME, key, raw, f"{type(error).__name__}: {error}")
        return with_author(lost, lambda: _unread(event, req_id, me) if command == MESSAGE else None)


def _unread(event: Json, req_id: str, me: WeComAccount) -> Message:
    """Return the message that an unreadable event was: WeCom sends only those for the robot."""
    thread, author = _place(event, me)
    id = str(event["msgid"])
    return make_unread(thread, me.key(id), f"{id} {req_id}".strip(), author.id, private=not is_group(thread))


def _place(event: Json, me: WeComAccount) -> tuple[Thread, Author]:
    person = str(event["from"]["userid"])
    group = event["chattype"] == "group"
    return me.thread(str(event["chatid"]) if group else f"@{person}"), Author(person, person, language=me.language)


def _parse_message(event: Json, req_id: str, me: WeComAccount) -> Message:
    """Read a message. In groups, the platform sends only those that mention the robot, with the mention first."""
    id, kind = str(event["msgid"]), str(event["msgtype"])
    thread, author = _place(event, me)
    text, files = _parse_content(kind, event.get(kind) or {}, id)
    if is_group(thread):
        mention = f"@{me.name}"
        text = text.removeprefix(mention) if text.startswith(mention) else _MENTION.sub("", text, count=1)
    text = text.strip()
    quotes: list[Quote] = []
    if isinstance(quoted := event.get("quote"), dict):
        shape = str(quoted.get("msgtype", ""))
        said, quoted_files = _parse_content(shape, quoted.get(shape) or {}, f"{id}q")
        quotes = [Quote("somebody", said[:MAX_QUOTE_CHARS])] if said else []
        quotes += [] if said or quoted_files else [Quote("", "", "unread")]
        files += quoted_files
    command = None if files else parse_command_text(text)
    message_kind = Kind.CHAT if command is None else Kind.COMMAND
    if kind not in _CHAT:
        message_kind, text = Kind.UNSUPPORTED, f"“{kind}” messages"
    return Message(
        thread=thread,
        key=me.key(id),
        id=f"{id} {req_id}".strip(),
        author=author,
        text=text if command is None else command,
        time=float(event.get("create_time") or time.time()),
        kind=message_kind,
        attachments=tuple(files),
        quotes=tuple(quotes),
        long=not text and bool(files),  # the client sends files one by one
        private=not is_group(thread),
        origin=Origin.PERSON,
    )


def _parse_content(kind: str, content: Json, message_id: str) -> tuple[str, list[Attachment]]:
    """Return the text and the files of a message, or of a quoted one in the same shape."""
    if kind != "mixed":
        return str(content.get("content") or "").strip(), _file(kind, content, message_id, 0)
    texts, files = [], list[Attachment]()
    for item in content["msg_item"]:
        shape = str(item["msgtype"])
        text, found = _parse_content(shape, item[shape], message_id)
        texts += [text] if text else []
        files += [_file(shape, item[shape], message_id, len(files))[0]] if found else []
    return "\n".join(texts), files


def _file(kind: str, content: Json, message_id: str, index: int) -> list[Attachment]:
    """Return the file of a message. Its name is known only to the server from which it is fetched."""
    if kind not in _FILES or "url" not in content:
        return []
    family, name, mime = _FILES[kind]
    short = re.sub(r"\W", "", message_id)[-6:] + (f"_{index}" if index else "")
    ref = orjson.dumps({"url": str(content["url"]), "key": str(content.get("aeskey") or "")}).decode()
    given = content.get("filename") or content.get("name")
    return [Attachment(ref, str(given or name.format(short)), mime, None, family)]


def _parse_other(event: Json, me: WeComAccount) -> Message | None:
    content = event["event"]
    match content["eventtype"]:
        case "template_card_event":
            return _parse_click(event, content.get("template_card_event") or content, me)
        case "feedback_event":
            return _parse_feedback(event, content.get("feedback_event") or content, me)
    return None


def _parse_click(event: Json, content: Json, me: WeComAccount) -> Message | None:
    """Read a pressed button. A second press of a person on one button of a card is the same event."""
    if not str(content.get("event_key", "")).startswith("{"):
        return None
    pressed = orjson.loads(content["event_key"])
    thread, author = _place(event, me)
    task, option = str(content["task_id"]), str(pressed["option"])
    digest = hashlib.blake2b(option.encode(), digest_size=8).hexdigest()
    return Message(
        thread=thread,
        key=me.key(f"click:{task}:{author.id}:{digest}"),
        id=task,
        author=author,
        text=option,
        time=time.time(),
        kind=Kind.CLICK,
        target=str(pressed["ask"]),
        private=not is_group(thread),
        to_bot=True,
        reply_to=task,
        origin=Origin.PERSON,
    )


def _parse_feedback(event: Json, content: Json, me: WeComAccount) -> Message | None:
    """Read a 👍 or 👎, or that a person took theirs back (…/101027: `type` 1, 2 and 3)."""
    found, answer = _FEEDBACK.get(content.get("type", 0)), str(content.get("id", ""))
    if found is None or not answer:
        return None
    thread, author = _place(event, me)
    return Message(
        thread=thread,
        key=me.key(f"feedback:{event.get('msgid')}"),
        id=f"feedback:{event.get('msgid')}",
        author=author,
        text=found[1],
        time=time.time(),
        kind=found[0],
        private=not is_group(thread),
        addressed=False,
        to_bot=True,
        reply_to=answer,
        origin=Origin.PERSON,
    )
