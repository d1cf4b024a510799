"""Read WeCom's events as messages, at most one for each event.

Shapes: developer.work.weixin.qq.com/document/path/100719 (messages) and …/101027 (events).
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from agent.messages import Attachment, Author, Kind, Message, Origin, Quote, ReplyHandle, Thread, Unreadable
from channels.shared.ids import joined_id
from channels.shared.robot_chats import (
    Family,
    RobotAccount,
    attached_file,
    is_group,
    make_click,
    make_message,
    make_quotes,
    read_event,
)
from channels.shared.visible_text import make_unread
from channels.wecom.connection import MESSAGE

_FILES: Mapping[str, Family] = {"image": "image", "video": "video", "file": "file"}
_CHAT = frozenset({"text", "voice", "mixed", *_FILES})
_FEEDBACK = {1: (Kind.FEEDBACK, "up"), 2: (Kind.FEEDBACK, "down"), 3: (Kind.FEEDBACK_REMOVED, "up")}
HANDLE_SECONDS = 86_400.0  # ours: WeCom does not say when a `req_id` ends, and refuses it then (846605)
_MENTION = re.compile(r"@\S+\s*")

Json = Mapping[str, Any]


def parse_callback(command: str, req_id: str, raw: bytes, me: RobotAccount) -> Message | Unreadable | None:
    """Read one event. Returns None for one that asks for nothing, such as a person who opens the chat."""

    def parse(event: Any) -> Message | None:
        return _parse_message(event, req_id, me) if command == MESSAGE else _parse_other(event, me)

    return read_event(raw, me, "msgid", parse, lambda event: _unread(event, req_id, me) if command == MESSAGE else None)


def _unread(event: Json, req_id: str, me: RobotAccount) -> Message:
    """Return the message that an unreadable event was: WeCom sends only those for the robot."""
    thread, author = _place(event, me)
    id = str(event["msgid"])
    unread = make_unread(thread, me.key(id), id, author.id, private=not is_group(thread))
    return replace(unread, reply_handle=_handle(req_id))


def _handle(req_id: str) -> ReplyHandle | None:
    return ReplyHandle(req_id, time.time() + HANDLE_SECONDS) if req_id else None


def _place(event: Json, me: RobotAccount) -> tuple[Thread, Author]:
    """Return the chat and the author. WeCom names the company of a person only where it is not the robot's
    (…/100719: `from.corpid`)."""
    company = str(event["from"].get("corpid") or "")
    person, group = joined_id(str(event["from"]["userid"]), company), event["chattype"] == "group"
    return me.thread(str(event["chatid"]) if group else f"@{person}"), me.author(person, guest=bool(company))


def _parse_message(event: Json, req_id: str, me: RobotAccount) -> Message:
    """Read a message. In groups, the platform sends only those that mention the robot, with the mention first."""
    id, kind = str(event["msgid"]), str(event["msgtype"])
    thread, author = _place(event, me)
    text, files = _parse_content(kind, event.get(kind) or {}, id)
    if is_group(thread):
        mention = f"@{me.name}"
        text = text.removeprefix(mention) if text.startswith(mention) else _MENTION.sub("", text, count=1)
    quotes: list[Quote] = []
    if isinstance(quoted := event.get("quote"), dict):
        shape = str(quoted.get("msgtype", ""))
        said, quoted_files = _parse_content(shape, quoted.get(shape) or {}, f"{id}q")
        quotes = make_quotes(said, quoted_files)
        files += quoted_files
    return make_message(
        *(me, thread, author, id, (text.strip(), files)),
        kind=kind,
        known=_CHAT,
        at=float(event.get("create_time") or time.time()),
        quotes=quotes,
        reply_handle=_handle(req_id),
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
    ref = orjson.dumps({"url": str(content["url"]), "key": str(content.get("aeskey") or "")}).decode()
    return [attached_file(_FILES[kind], ref, content.get("filename") or content.get("name"), message_id, index)]


def _parse_other(event: Json, me: RobotAccount) -> Message | None:
    content = event["event"]
    match content["eventtype"]:
        case "template_card_event":
            return _parse_click(event, content.get("template_card_event") or content, me)
        case "feedback_event":
            return _parse_feedback(event, content.get("feedback_event") or content, me)
    return None


def _parse_click(event: Json, content: Json, me: RobotAccount) -> Message | None:
    """Read a pressed button."""
    if not str(content.get("event_key", "")).startswith("{"):
        return None
    pressed = orjson.loads(content["event_key"])
    return make_click(me, *_place(event, me), str(content["task_id"]), str(pressed["ask"]), str(pressed["option"]))


def _parse_feedback(event: Json, content: Json, me: RobotAccount) -> Message | None:
    """Read a 👍 or 👎, or that a person took theirs back (…/101027: `type` 1, 2 and 3)."""
    found, answer = _FEEDBACK.get(content.get("type", 0)), str(content.get("id", ""))
    if found is None or not answer:
        return None
    thread, author = _place(event, me)
    id = f"feedback:{event.get('msgid')}"
    return Message(
        thread, me.key(id), id, author, found[1], time.time(), found[0], private=not is_group(thread),
        addressed=False, to_bot=True, reply_to=answer, origin=Origin.PERSON,
    )  # fmt: skip
