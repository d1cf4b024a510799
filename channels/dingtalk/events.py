"""Parse DingTalk's events to messages, at most one for each event.

Shapes: open.dingtalk.com/document/development/robot-receive-message, …/robot-message-type and …/event-callback-card.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from agent.messages import Attachment, Author, Message, Quote, ReplyHandle, Unreadable
from channels.dingtalk.api import MESSAGE_TOPIC
from channels.shared.caches import LatestDict
from channels.shared.ids import joined_id
from channels.shared.reply_layout import as_command
from channels.shared.robot_chats import (
    MAX_QUOTE_CHARS,
    Family,
    RobotAccount,
    attached_file,
    make_click,
    make_message,
    make_quotes,
    read_event,
)
from channels.shared.visible_text import dicts_in, make_unread

NAME = "dingtalk"
_FILES: Mapping[str, Family] = {"picture": "image", "audio": "audio", "video": "video", "file": "file"}
HANDLE_SECONDS = 86_400.0  # ours: for so long the sign of work on a message is taken off by its conversation
_CHAT = frozenset({"text", "richText", "chatRecord", *_FILES})
_MAX_STAFF = 10_000

Json = Mapping[str, Any]


@dataclass(slots=True)
class Company:
    """What messages say of the robot's company: its id, and the staff ids of its people by the platform's `senderId`.

    A press names the company of the person, not that of the robot, and a quote names its author by `senderId` alone.
    """

    id: str = ""
    staff: LatestDict[str, str] = field(default_factory=lambda: LatestDict(_MAX_STAFF))

    def sender_of(self, event: Json) -> tuple[str, bool]:
        """Return the id of the sender, and whether they are of this company. Staff ids are the company's own texts, so
        another company may have the same one; `senderId` is the platform's."""
        self.id = str(event.get("chatbotCorpId") or "") or self.id
        is_staff = bool(event.get("senderStaffId")) and event.get("senderCorpId") in (None, event.get("chatbotCorpId"))
        person = str(event["senderStaffId" if is_staff else "senderId"])
        if is_staff and (platform_id := event.get("senderId")):
            self.staff[str(platform_id)] = person
        return person, is_staff

    def presser_of(self, event: Json, me: RobotAccount) -> Author:
        """Return who pressed a button: outside of this company a guest, with their company in the id."""
        company = str(event.get("corpId") or "")
        is_guest = bool(self.id and company) and company != self.id
        return me.author(joined_id(str(event["userId"]), company if is_guest else ""), guest=is_guest)


def parse_event(topic: str, raw: bytes, me: RobotAccount, company: Company) -> Message | Unreadable | None:
    """Parse one event. Returns None for a click on a button that is not one of Fawn's."""
    is_message = topic == MESSAGE_TOPIC
    parse = _parse_message if is_message else _parse_click

    def unread(event: Json) -> Message | None:
        return _unread(event, me, company) if is_message else None

    return read_event(raw, me, "msgId", lambda event: parse(event, me, company), unread)


def _unread(event: Json, me: RobotAccount, company: Company) -> Message:
    """Return the message that an unreadable event was: DingTalk sends only those for the robot."""
    id, private = event["msgId"], event["conversationType"] == "1"
    person, _is_staff = company.sender_of(event)
    thread = me.thread(f"@{person}" if private else str(event["conversationId"]))
    return make_unread(thread, me.key(str(id)), id, person, private=private)


def _parse_message(event: Json, me: RobotAccount, company: Company) -> Message:
    """Parse a message. In groups, the platform sends only those that mention the robot."""
    id, kind, private = str(event["msgId"]), str(event["msgtype"]), event["conversationType"] == "1"
    person, is_staff = company.sender_of(event)
    content = event.get("text" if kind == "text" else "content") or {}
    text, files = _parse_content(kind, content, id)
    text = text.removeprefix(f"@{me.name}").strip()
    quotes: list[Quote] = []
    if kind == "chatRecord":
        quotes, text = [Quote("somebody", text[:MAX_QUOTE_CHARS], "forward")], ""
    replied = content.get("repliedMsg") or {}
    if replied and replied.get("senderId") != event.get("chatbotUserId"):  # the conversation has the bot's own
        shape, quoted = str(replied.get("msgType")), replied.get("content") or {}
        said, quoted_files = _parse_content(shape, quoted, str(replied.get("msgId")))
        author = str(replied.get("senderId") or "")
        staff = company.staff.get(author, "")
        is_typed = shape == "richText" or (shape == "text" and "summary" not in quoted)  # a record has a summary
        quotes += make_quotes(said, quoted_files, staff or author, member=bool(staff) and is_typed)
        files += quoted_files
    quoted = str(event.get("originalProcessQueryKey") or "")  # of a message of the bot: the key that its post returned
    return make_message(
        me,
        me.thread(f"@{person}" if private else str(event["conversationId"])),
        me.author(person, str(event.get("senderNick") or ""), guest=not is_staff),
        id,
        (text, files),
        kind=kind,
        known=_CHAT,
        at=int(event["createAt"]) / 1000,
        quotes=quotes,
        reply_to=f"/{quoted}" if quoted else str(replied.get("msgId") or ""),
        to_bot=bool(quoted),
        chat_name=str(event.get("conversationTitle") or ""),
        reply_handle=ReplyHandle(str(event["conversationId"]), time.time() + HANDLE_SECONDS),
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
    return [attached_file(_FILES[kind], str(content["downloadCode"]), content.get("fileName"), message_id, index)]


def _parse_click(event: Json, me: RobotAccount, company: Company) -> Message | None:
    """Parse a pressed button."""
    params = orjson.loads(event["content"]).get("cardPrivateData", {}).get("params") or {}
    if "ask" not in params or "option" not in params:
        return None
    ask, option = orjson.loads(params["ask"]), str(params["option"])
    person, thread = company.presser_of(event, me), me.thread(str(ask["chat"]))
    click = make_click(me, thread, person, str(event["outTrackId"]), str(ask["id"]), option)
    return as_command(click, option) or click
