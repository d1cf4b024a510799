"""Feishu's events in our words: one event in, at most one message out.

Shapes: open.feishu.cn/document/server-docs/im-v1/message/events/receive and its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from agent.messages import ANYWHERE, Author, Kind, Message, Thread, Unreadable
from channels.base import parse_command_text
from channels.feishu.message_content import FORWARDED_TEXT, MessageContent, parse_content

NAME = "feishu"
STOP_EMOJI = frozenset({"CrossMark", "No", "ThumbsDown", "Cross"})  # reactions that ask to stop

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FeishuAccount:
    """The bot's own account: the app and its open id in this tenant."""

    app: str
    open_id: str


def parse_event(raw: bytes, me: FeishuAccount) -> Message | Unreadable | None:
    """One event as it came. None: nothing that concerns us."""
    envelope: Any = None
    try:
        envelope = orjson.loads(raw)
        header, event = envelope.get("header") or {}, envelope.get("event") or {}
        match header.get("event_type"):
            case "im.message.receive_v1":
                return parse_message(event, me, str(header.get("tenant_key", "")))
            case "im.message.recalled_v1":
                return _parse_recall(event, me, header)
            case "im.message.reaction.created_v1":
                return _parse_reaction(event, me, header)
            case "card.action.trigger":
                return _parse_click(event, me, header)
    except Exception as error:  # noqa: BLE001 — the boundary of one event: its shape is not ours, others must go on
        known = envelope.get("header") if isinstance(envelope, dict) else None
        number = known.get("event_id") if isinstance(known, dict) else None
        key = f"{NAME}:{me.app}:event:{number or hash(raw)}"
        return Unreadable(NAME, key, raw, f"{type(error).__name__}: {error}")
    return None


def parse_message(event: Json, me: FeishuAccount, tenant: str) -> Message | None:
    """A message that a person sent, as the event (or, in the same shape, the history) tells it. None: not for us."""
    raw, sender = event["message"], event["sender"]
    author = author_of(sender, tenant)
    if author.id in (me.open_id, me.app) or raw["message_type"] == "system":
        return None
    read = parse_content(raw, me.open_id)
    private = raw.get("chat_type") == "p2p"
    root = str(raw.get("root_id") or "")
    topic = root if root or private else str(raw["message_id"])
    if private and not raw.get("thread_id"):
        topic = ""  # one rolling conversation; a reply that quotes is part of it
    parent = str(raw.get("parent_id") or "")
    quoted = parent if parent and (parent != root or not raw.get("thread_id")) else ""  # in a topic all answer its root
    kind, text = _message_kind(read, private)
    addressed = private or read.mentioned
    follow_up = bool(root) and not addressed and not read.others
    if not (addressed or follow_up):
        return None  # what people say to each other: it is not even remembered as heard
    return Message(
        thread=Thread(NAME, me.app, str(raw["chat_id"]), topic),
        key=message_key(me, str(raw["message_id"])),
        id=str(raw["message_id"]),
        author=author,
        text=text,
        time=int(raw["create_time"]) / 1000,
        kind=kind,
        attachments=read.attachments,
        reply_to=quoted,
        long=not text and bool(read.attachments),  # an app sends files one by one
        private=private,
        addressed=addressed,
        follow_up=follow_up,
    )


def _message_kind(read: MessageContent, private: bool) -> tuple[Kind, str]:
    if read.unsupported:
        return Kind.UNSUPPORTED, read.unsupported
    if read.text != FORWARDED_TEXT and not read.attachments and (private or read.mentioned):
        command = parse_command_text(read.text)
        if command is not None:
            return Kind.COMMAND, command
    return Kind.CHAT, read.text


def message_key(me: FeishuAccount, message_id: str) -> str:
    return f"{NAME}:{me.app}:{message_id}"


def author_of(sender: Json, tenant: str) -> Author:
    """Who sent it. The name is not told (`enrich` asks); who belongs to another tenant is a guest."""
    ids = sender.get("sender_id") or {}
    known = str(ids.get("open_id") or sender.get("id") or ids.get("user_id") or "")
    theirs = str(sender.get("tenant_key") or "")
    name = str(sender.get("sender_name") or known)
    bot = sender.get("sender_type") not in ("user", "anonymous", None)
    return Author(known, name, bot=bot, guest=bool(tenant and theirs and theirs != tenant))


# ---------------------------------------------------------------- other events


def _parse_recall(event: Json, me: FeishuAccount, header: Json) -> Message:
    gone = str(event["message_id"])
    return Message(
        thread=Thread(NAME, me.app, str(event["chat_id"]), ANYWHERE),
        key=f"{message_key(me, gone)}:recalled",
        id=gone,
        author=Author("", ""),
        text="",
        time=int(header["create_time"]) / 1000,
        kind=Kind.DELETE,
        target=message_key(me, gone),
        addressed=False,
    )


def _parse_reaction(event: Json, me: FeishuAccount, header: Json) -> Message | None:
    """❌ on a message: the inbox knows whether it is one of the bot's, and where."""
    if event["reaction_type"]["emoji_type"] not in STOP_EMOJI or event.get("operator_type") != "user":
        return None
    person = str(event["user_id"]["open_id"])
    return Message(
        thread=Thread(NAME, me.app, ANYWHERE, ANYWHERE),
        key=f"{NAME}:{me.app}:reaction:{header['event_id']}",
        id=str(event["message_id"]),
        author=Author(person, person),
        text="stop",
        time=int(header["create_time"]) / 1000,
        kind=Kind.COMMAND,
        addressed=False,
        to_bot=True,
        reply_to=str(event["message_id"]),
    )


def _parse_click(event: Json, me: FeishuAccount, header: Json) -> Message | None:
    """A pressed button of ours: everything needed is in its value."""
    value = event["action"].get("value")
    if not isinstance(value, dict) or "ask" not in value:
        return None
    person, place = str(event["operator"]["open_id"]), event["context"]
    return Message(
        thread=Thread(NAME, me.app, str(place["open_chat_id"]), str(value.get("topic", ""))),
        key=f"{NAME}:{me.app}:click:{header['event_id']}",
        id=str(place["open_message_id"]),
        author=Author(person, person),
        text=str(value["option"]),
        time=int(header["create_time"]) / 1000,
        kind=Kind.CLICK,
        target=str(value["ask"]),
        private=not value.get("topic"),
    )


def parse_menu(raw: Json, me: FeishuAccount, chat: str, known: frozenset[str]) -> Message | None:
    """An entry of the bot's menu, chosen in the direct chat `chat`, whose key is a command's name."""
    event, header = raw["event"], raw["header"]
    words = str(event["event_key"]).lstrip("/!").replace("_", " ")
    if words.split(" ")[0] not in known:
        return None
    person = event["operator"]["operator_id"]["open_id"]
    name = str(event["operator"].get("operator_name") or person)
    return Message(
        thread=Thread(NAME, me.app, chat),
        key=f"{NAME}:{me.app}:menu:{header['event_id']}",
        id="",
        author=Author(person, name),
        text=words,
        time=int(header["create_time"]) / 1000,
        kind=Kind.COMMAND,
        private=True,
    )
