"""Parse Feishu's events to messages, at most one for each event.

Shapes: open.feishu.cn/document/server-docs/im-v1/message/events/receive and the pages beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from agent.messages import ANYWHERE, Author, Kind, Message, Quote, Thread, Unreadable
from channels.base import parse_command_text
from channels.feishu.message_content import FORWARDED_TEXT, MessageContent, parse_content
from channels.shared.reply_layout import as_command
from channels.shared.visible_text import dict_of, dicts_in, make_unread, text_of, with_author

NAME = "feishu"
STOP_EMOJI = frozenset({"CrossMark", "No", "Cross"})  # reactions that stop the work
FEEDBACK_EMOJI = {"THUMBSUP": "up", "ThumbsDown": "down"}

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FeishuAccount:
    """The bot's account: the app, its open id in this tenant, and the language of the brand ("": several)."""

    app_id: str
    open_id: str
    language: str = ""


def tenant_of(raw: bytes) -> str:
    """Return the tenant in which the app got an event; "" if it does not say it."""
    try:
        return text_of(dict_of(dict_of(orjson.loads(raw)).get("header")).get("tenant_key"))
    except orjson.JSONDecodeError:
        return ""


def parse_event(raw: bytes, me: FeishuAccount) -> Message | Unreadable | None:
    """Parse one raw event. Returns None when it does not concern the bot."""
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
                return _parse_reaction(event, me, header, Kind.FEEDBACK)
            case "im.message.reaction.deleted_v1":
                return _parse_reaction(event, me, header, Kind.FEEDBACK_REMOVED)
            case "card.action.trigger":
                return _parse_click(event, me, header)
    except Exception as error:  # noqa: BLE001 — the boundary of one event: an unknown shape must not stop the others
        header = envelope.get("header") if isinstance(envelope, dict) else None
        event_id = header.get("event_id") if isinstance(header, dict) else None
        key = f"{NAME}:{me.app_id}:event:{event_id or hash(raw)}"
        lost = Unreadable(NAME, key, raw, f"{type(error).__name__}: {error}")
        return with_author(lost, lambda: _unread(envelope["event"], me))
    return None


def _unread(event: Json, me: FeishuAccount) -> Message | None:
    """Return the message that an unreadable event of a direct chat, or with a mention, was."""
    raw, sender = event["message"], event["sender"]
    id, private = raw["message_id"], raw.get("chat_type") == "p2p"
    named = any(dict_of(each.get("id")).get("open_id") == me.open_id for each in dicts_in(raw.get("mentions")))
    if sender.get("sender_type") != "user" or not (private or named):
        return None
    root = str(raw.get("root_id") or "")
    thread = Thread(NAME, me.app_id, str(raw["chat_id"]), root or ("" if private else str(id)))
    return make_unread(thread, message_key(me, str(id)), id, sender["sender_id"]["open_id"], private=private)


def parse_message(event: Json, me: FeishuAccount, tenant: str) -> Message | None:
    """Parse a message of an event, or of the history in the same shape. Returns None when it is not for the bot."""
    raw = event["message"]
    author = replace(author_of(event["sender"], tenant), language=me.language)
    if author.id in (me.open_id, me.app_id) or raw["message_type"] == "system":
        return None
    id = str(raw["message_id"])
    content = parse_content(raw, me.open_id)
    private = raw.get("chat_type") == "p2p"
    in_topic = bool(raw.get("thread_id"))
    root, parent = str(raw.get("root_id") or ""), str(raw.get("parent_id") or "")
    topic = "" if private and not in_topic else root if root or private else id  # a direct chat is one conversation
    addressed = private or content.mentions_bot
    follow_up = bool(root) and not addressed and not content.mentions_others
    if not (addressed or follow_up):
        return None  # a conversation between people: not even a watermark is stored
    kind, text = _message_kind(content)
    quotes: tuple[Quote, ...] = ()
    if raw["message_type"] == "interactive" and not author.bot:  # only programs write cards: a person forwards one
        quotes, text = ((Quote("somebody", text, "forward"),), "") if text else ((), text)
    return Message(
        thread=Thread(NAME, me.app_id, str(raw["chat_id"]), topic),
        key=message_key(me, id),
        id=id,
        author=author,
        text=text,
        time=int(raw["create_time"]) / 1000,
        kind=kind,
        attachments=content.attachments,
        quotes=quotes,
        reply_to="" if in_topic and parent == root else parent,  # in a topic every message replies to the root
        long=not text and bool(content.attachments),  # the client sends files one by one
        private=private,
        addressed=addressed,
        follow_up=follow_up,
        named=content.named,
        origin=author.origin,
    )


def _message_kind(content: MessageContent) -> tuple[Kind, str]:
    if content.unsupported:
        return Kind.UNSUPPORTED, content.unsupported
    if content.text != FORWARDED_TEXT and not content.attachments:
        command = parse_command_text(content.text)
        if command is not None:
            return Kind.COMMAND, command
    return Kind.CHAT, content.text


def message_key(me: FeishuAccount, message_id: str) -> str:
    return f"{NAME}:{me.app_id}:{message_id}"


def author_of(sender: Json, tenant: str) -> Author:
    """Return the author, a guest if of another tenant. Events do not contain the name: `enrich` reads it."""
    ids = sender.get("sender_id") or {}
    id = str(ids.get("open_id") or sender.get("id") or ids.get("user_id") or "")
    author_tenant = str(sender.get("tenant_key") or "")
    is_bot = sender.get("sender_type") not in ("user", "anonymous", None)
    is_guest = bool(tenant and author_tenant and author_tenant != tenant)
    return Author(id, str(sender.get("sender_name") or id), bot=is_bot, guest=is_guest)


# ---------------------------------------------------------------- other events


def _make_message(me: FeishuAccount, header: Json, name: str, thread: Thread, author: Author, kind: Kind) -> Message:
    key = f"{NAME}:{me.app_id}:{name}:{header['event_id']}"
    author = replace(author, language=me.language)
    return Message(thread, key, "", author, "", int(header["create_time"]) / 1000, kind, origin=author.origin)


def _parse_recall(event: Json, me: FeishuAccount, header: Json) -> Message:
    id = str(event["message_id"])
    thread = Thread(NAME, me.app_id, str(event["chat_id"]), ANYWHERE)
    message = _make_message(me, header, "recall", thread, Author("", ""), Kind.DELETE)
    target = message_key(me, id)
    return replace(message, key=f"{target}:recalled", id=id, target=target, addressed=False)


def _parse_reaction(event: Json, me: FeishuAccount, header: Json, kind: Kind) -> Message | None:
    """Parse a stop or feedback. The inbox knows whether it is on a message of the bot, and in which thread."""
    emoji = event["reaction_type"]["emoji_type"]
    text = FEEDBACK_EMOJI.get(emoji, "")
    if emoji in STOP_EMOJI and kind is Kind.FEEDBACK:
        kind, text = Kind.COMMAND, "stop"
    if not text or event.get("operator_type") != "user":
        return None
    person, id = str(event["user_id"]["open_id"]), str(event["message_id"])
    thread = Thread(NAME, me.app_id, ANYWHERE, ANYWHERE)
    message = _make_message(me, header, "reaction", thread, Author(person, person), kind)
    return replace(message, id=id, text=text, addressed=False, to_bot=True, reply_to=id)


def _parse_click(event: Json, me: FeishuAccount, header: Json) -> Message | None:
    """Parse a click on a button of the bot, whose value contains everything needed. The id is "message/card"."""
    value = event["action"].get("value")
    if not isinstance(value, dict) or not ("ask" in value or "command" in value):
        return None
    person, context, topic = str(event["operator"]["open_id"]), event["context"], str(value.get("topic", ""))
    thread = Thread(NAME, me.app_id, str(context["open_chat_id"]), topic)
    message = _make_message(me, header, "click", thread, Author(person, person), Kind.CLICK)
    option, ask, card_id = str(value.get("option", "")), str(value.get("ask", "")), str(value.get("card", ""))
    shown = f"{context['open_message_id']}/{card_id}" if card_id else str(context["open_message_id"])
    click = replace(message, id=shown, text=option, target=ask, private=not topic)
    press = replace(click, reply_to=str(context["open_message_id"]), to_bot=True)
    return as_command(press, str(value.get("command", ""))) or (click if "ask" in value else None)


def parse_menu(raw: Json, me: FeishuAccount, chat: str, command_names: frozenset[str]) -> Message | None:
    """Parse a chosen entry of the bot's menu, whose key is the name of a command, in the direct chat `chat`."""
    event = raw["event"]
    text = str(event["event_key"]).lstrip("/!").replace("_", " ")
    if text.split(" ")[0] not in command_names:
        return None
    person = event["operator"]["operator_id"]["open_id"]
    author = Author(person, str(event["operator"].get("operator_name") or person))
    message = _make_message(me, raw["header"], "menu", Thread(NAME, me.app_id, chat), author, Kind.COMMAND)
    return replace(message, text=text, private=True)
