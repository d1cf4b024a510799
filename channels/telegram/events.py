"""Convert Telegram's updates to events: pure functions, at most one event per update."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
import telegram
from telegram import MessageEntity as Entity

from agent.messages import ANYWHERE, Attachment, Author, Kind, Message, Origin, Quote, Thread, Unreadable
from catalogue import N_
from channels.base import parse_command_text
from channels.shared.inbound import adds_mention
from channels.shared.markdown import utf16_length
from channels.shared.reply_layout import as_command
from channels.shared.texts import feedback_of, option_in_full, remove_bot_mention
from channels.shared.visible_text import UNKNOWN_KIND, join_visible, make_unread, with_author
from channels.telegram.visible_text import card_lines

NAME = "telegram"
DRAFT_STOPPED = "stopped_message_generation"  # Bot API 10.3, which the SDK does not know
ALLOWED_UPDATES = ("message", "edited_message", "callback_query", "message_reaction", DRAFT_STOPPED)
STOP_EMOJI = "❌"  # as a reaction it stops a turn; Telegram does not offer it everywhere
LONG_TEXT_UNITS = 4000  # UTF-16 units: the person's app may have split such a text (it does at 4,096)

_UNSUPPORTED = {  # field of a message → its name for a person
    "sticker": N_("a sticker"),
    "game": N_("a game"),
    "story": N_("a story"),
    "paid_media": N_("paid media"),
    "invoice": N_("an invoice"),
    "giveaway": N_("a giveaway"),
}


@dataclass(frozen=True, slots=True)
class TelegramAccount:
    id: int
    username: str


def parse_update(raw: Mapping[str, Any], account: TelegramAccount) -> Message | Unreadable | None:
    """Convert one update. Returns None for one that does not concern the bot, such as a service message."""
    try:
        if stopped := raw.get(DRAFT_STOPPED):
            return _parse_stopped_draft(stopped, account, int(raw["update_id"]))
        update = telegram.Update.de_json(dict(raw), None)
        if update.message:
            return _parse_message(update.message, account)
        if update.edited_message:
            return _parse_edit(update.edited_message, account, update.update_id)
        if update.callback_query:
            return _parse_click(update.callback_query, account)
        if update.message_reaction:
            return _parse_reaction(update.message_reaction, account, update.update_id)
    except Exception as error:  # noqa: BLE001 — the boundary of one update: others must be processed
        key = f"{NAME}:{account.id}:update:{raw.get('update_id')}"
        lost = Unreadable(NAME, key, orjson.dumps(raw), f"{type(error).__name__}: {error}")
        return with_author(lost, lambda: _unread(raw["message"], account, key))
    return None


def _unread(message: Mapping[str, Any], account: TelegramAccount, key: str) -> Message | None:
    """Return the message that an unreadable update of a private chat was."""
    chat, user = message["chat"], message["from"]
    if chat["type"] != "private" or user.get("is_bot"):
        return None
    topic = str(message.get("message_thread_id") or "") if message.get("is_topic_message") else ""
    thread = Thread(NAME, str(account.id), str(chat["id"]), topic)
    return make_unread(thread, key, message["message_id"], user["id"], private=True)


def _parse_stopped_draft(stopped: Mapping[str, Any], account: TelegramAccount, update_id: int) -> Message:
    """Convert a press on the stop button of a draft (core.telegram.org/bots/api#messagegenerationstopped)."""
    chat = stopped["chat"]
    unique = f"{NAME}:{account.id}:update:{update_id}"
    return Message(
        thread=Thread(NAME, str(account.id), str(chat["id"]), str(stopped.get("message_thread_id") or "")),
        key=unique,
        id=unique,
        author=Author(str(chat["id"]), str(chat.get("first_name") or chat["id"])),  # a private chat has the person's id
        text="stop",
        time=time.time(),
        kind=Kind.COMMAND,
        private=True,
        origin=Origin.PERSON,
    )


def _parse_message(message: telegram.Message, account: TelegramAccount) -> Message | None:
    author = _author_of(message)
    if message.migrate_to_chat_id:
        text, kind = str(message.migrate_to_chat_id), Kind.MOVED
        return _make_event(message, account, author or Author("", ""), text=text, kind=kind)
    if author is None:
        return None
    private = message.chat.type == "private"
    if private and (name := _given_topic_name(message)):
        return _make_event(message, account, author, text=name, kind=Kind.TITLE)
    files = _attachments_of(message)
    text, mentioned = _text_without_mention(message, account)
    text = join_visible(text, card_lines(message))
    quotes, to_bot, quoted_files = _reply_context(message, account)
    if not (text or mentioned or files):
        noun = next((noun for field, noun in _UNSUPPORTED.items() if getattr(message, field)), "")
        unknown = any(isinstance(value, dict | list) for value in message.api_kwargs.values())
        noun, addressed = noun or (UNKNOWN_KIND if unknown else ""), private or to_bot
        return (
            _make_event(message, account, author, text=noun, kind=Kind.UNSUPPORTED, addressed=addressed)
            if noun
            else None
        )
    kind = Kind.CHAT
    if message.forward_origin:  # another person's text is context, and never a command
        if said := text or ", ".join(file.name for file in files):
            origin = message.forward_origin
            quotes = (*quotes, Quote(_origin_name(origin), said, "forward", _origin_id(origin)))
        text, mentioned = "", False
    elif (command := parse_command_text(text, account.username)) is not None:
        if not command:
            return None  # for another bot
        mentioned = mentioned or bool(re.match(r"\s*[/!]+\w+@", text))
        kind, text = Kind.COMMAND, command
    return _make_event(
        message,
        account,
        author,
        text=text,
        kind=kind,
        attachments=files + quoted_files,
        quotes=quotes,
        reply_to=str(replied.message_id) if (replied := _replied_message(message)) else "",
        to_bot=to_bot,
        group=message.media_group_id or "",
        long=utf16_length(message.text or "") >= LONG_TEXT_UNITS,
        named=() if message.forward_origin else _named(message, account),
        addressed=private or mentioned or to_bot,
    )


def _parse_edit(message: telegram.Message, account: TelegramAccount, update_id: int) -> Message | None:
    author = _author_of(message)
    text, mentioned = _text_without_mention(message, account)
    if author is None or not text:
        return None
    key = _message_key(message, account)
    change: dict[str, Any] = {"key": f"{key}:edit:{update_id}", "target": key, "kind": Kind.EDIT}
    whole = _parse_message(message, account) if mentioned else None
    if whole and whole.kind is Kind.CHAT and adds_mention(whole, message.date.timestamp()):
        return replace(whole, **change)
    return _make_event(message, account, author, text=text, addressed=message.chat.type == "private", **change)


def _parse_click(query: telegram.CallbackQuery, account: TelegramAccount) -> Message | None:
    """Convert a pressed button: its data is "<ask id>|<option index>", its label the option; or a command's."""
    if not query.message or not query.data:
        return None  # older than Telegram remembers, or a game
    ask, _, index = query.data.rpartition("|")
    chat, id = query.message.chat, str(query.message.message_id)
    click = Message(
        thread=Thread(NAME, str(account.id), str(chat.id), _topic_of(query.message)),
        key=f"{NAME}:{account.id}:click:{query.id}",
        id=id,
        author=_make_author(query.from_user),
        text=_option_text(query.message, query.data, index) or query.data,
        time=query.message.date.timestamp(),
        kind=Kind.CLICK,
        target=ask,
        private=chat.type == "private",
        to_bot=True,
        reply_to=id,
        origin=Origin.PERSON,
    )
    return as_command(click, query.data) or click


def _option_text(message: telegram.MaybeInaccessibleMessage, data: str, index: str) -> str:
    if not isinstance(message, telegram.Message) or not message.reply_markup:
        return ""
    buttons = [button for row in message.reply_markup.inline_keyboard for button in row]
    label = next((button.text for button in buttons if button.callback_data == data), "")
    return option_in_full(label, index, message.text or "")


def _parse_reaction(
    change: telegram.MessageReactionUpdated, account: TelegramAccount, update_id: int
) -> Message | None:
    """Convert ❌, 👍 or 👎 on a message. Only the inbox knows its topic, and whether it is the bot's."""
    old, new = ({getattr(mark, "emoji", "") for mark in marks} for marks in (change.old_reaction, change.new_reaction))
    actor = change.user or change.actor_chat
    kind, text = Kind.FEEDBACK, next(filter(None, map(feedback_of, new - old)), "")
    if STOP_EMOJI in new - old:
        kind, text = Kind.COMMAND, "stop"
    elif not text:
        kind, text = Kind.FEEDBACK_REMOVED, next(filter(None, map(feedback_of, old - new)), "")
    if actor is None or (change.user and change.user.is_bot) or not text:
        return None
    return Message(
        thread=Thread(NAME, str(account.id), str(change.chat.id), ANYWHERE),
        key=f"{NAME}:{account.id}:reaction:{update_id}",
        id=str(change.message_id),
        author=_make_author(actor),
        text=text,
        time=change.date.timestamp(),
        kind=kind,
        reply_to=str(change.message_id),
        to_bot=True,
        private=change.chat.type == "private",
        addressed=False,
        origin=Origin.PERSON,
    )


# ---------------------------------------------------------------- parts


def _make_event(
    message: telegram.Message, account: TelegramAccount, author: Author, *, key: str = "", **more: Any
) -> Message:
    return Message(
        thread=Thread(NAME, str(account.id), str(message.chat.id), _topic_of(message)),
        key=key or _message_key(message, account),
        id=str(message.message_id),
        author=author,
        time=(message.edit_date or message.date).timestamp(),
        private=message.chat.type == "private",
        fleeting=message.chat.type != "private" and not more.get("addressed", True),
        chat_name=message.chat.title or "",
        **more,
        origin=author.origin,
    )


def _message_key(message: telegram.Message, account: TelegramAccount) -> str:
    return f"{NAME}:{account.id}:{message.chat.id}:{message.message_id}"


def _topic_of(message: telegram.MaybeInaccessibleMessage) -> str:
    """Return the forum topic, but not the reply thread of a plain supergroup, which is one conversation."""
    if isinstance(message, telegram.Message) and message.is_topic_message and message.message_thread_id:
        return str(message.message_thread_id)
    return ""


def _given_topic_name(message: telegram.Message) -> str:
    """Return the name that a person gave a topic; "" for other messages, and for a name that Telegram made up."""
    if created := message.forum_topic_created:
        return "" if created.is_name_implicit else created.name
    return (message.forum_topic_edited.name or "") if message.forum_topic_edited else ""


def _author_of(message: telegram.Message) -> Author | None:
    """Return the author, or None for bots and for the posts of a group's channel.

    An anonymous admin is the group, and a person who posts as a channel is the channel: Telegram names nobody else.
    """
    user = message.from_user
    if message.is_automatic_forward:
        return None
    if message.sender_chat:
        return _make_author(message.sender_chat)
    return None if user is None or user.is_bot else _make_author(user)


def _make_author(actor: telegram.User | telegram.Chat) -> Author:
    name = actor.full_name if isinstance(actor, telegram.User) else actor.effective_name
    language = actor.language_code if isinstance(actor, telegram.User) else ""
    return Author(str(actor.id), name or "somebody", language=language or "")


def _text_without_mention(message: telegram.Message, account: TelegramAccount) -> tuple[str, bool]:
    """Return the text or caption without the bot's mention, and whether it had one. Writes out hidden links."""
    text = message.text or message.caption or ""
    marks: list[tuple[Entity, str]] = []
    for entity in message.entities or message.caption_entities:
        if entity.type == Entity.TEXT_LINK or _mentions_bot(entity, text, account):
            marks.append((entity, entity.url or ""))
    if not marks:
        return text.strip(), False
    units = text.encode("utf-16-le", "surrogatepass")  # offsets count UTF-16 units
    at, done = 0, b""
    for entity, url in marks:
        start, end = 2 * entity.offset, 2 * (entity.offset + entity.length)
        shown = units[start:end].decode("utf-16-le", "replace")
        new = "\0" if not url else shown if url.rstrip("/") == shown.rstrip("/") else f"{shown} ({url})"
        done += units[at:start] + new.encode("utf-16-le", "surrogatepass")
        at = end
    text = (done + units[at:]).decode("utf-16-le", "surrogatepass")
    return remove_bot_mention(text), "\0" in text


def _named(message: telegram.Message, account: TelegramAccount) -> tuple[Author, ...]:
    """Return the people without a user name whom it mentions: Telegram tells the ids of no others."""
    users = (entity.user for entity in message.entities or message.caption_entities if entity.user)
    return tuple(_make_author(user) for user in users if user.id != account.id and not user.is_bot)


def _mentions_bot(entity: Entity, text: str, account: TelegramAccount) -> bool:
    if entity.type == Entity.TEXT_MENTION:
        return entity.user is not None and entity.user.id == account.id
    if entity.type != Entity.MENTION:
        return False
    units = text.encode("utf-16-le", "surrogatepass")[2 * entity.offset : 2 * (entity.offset + entity.length)]
    return units.decode("utf-16-le", "replace").lower() == f"@{account.username}".lower()


def _replied_message(message: telegram.Message) -> telegram.Message | None:
    """Return the message it answers. In a topic every other message refers to the topic's first one."""
    replied = message.reply_to_message
    return None if replied is None or replied.forum_topic_created else replied


def _reply_context(
    message: telegram.Message, account: TelegramAccount
) -> tuple[tuple[Quote, ...], bool, tuple[Attachment, ...]]:
    """Return the quotes of a reply, whether it answers the bot, and the files of another person's message."""
    part = message.quote.text if message.quote else ""
    if elsewhere := message.external_reply:
        origin, files = elsewhere.origin, _attachments_of(elsewhere)
        text = join_visible(part, card_lines(elsewhere)) or ", ".join(file.name for file in files)
        said = text or "(something not quoted)"
        return (Quote(_origin_name(origin), said, author_id=_origin_id(origin)),), False, files
    replied = _replied_message(message)
    if replied is None:
        return (), False, ()
    user = replied.from_user
    if user is not None and user.id == account.id:
        return ((Quote("me", part),) if part else ()), True, ()
    name = (
        user.full_name if user else (replied.sender_chat.effective_name if replied.sender_chat else None) or "somebody"
    )
    files = _attachments_of(replied)
    own = _text_without_mention(replied, account)[0].strip()
    said = join_visible(own, card_lines(replied))
    quoted = part or said or ", ".join(file.name for file in files)
    is_typed = quoted in (part, own) and not (replied.forward_origin or replied.via_bot)
    author, is_member = str(user.id) if user else "", is_typed and user is not None and not user.is_bot
    return ((Quote(name, quoted, author_id=author, member=is_member),) if quoted else ()), False, files


def _origin_id(origin: telegram.MessageOrigin) -> str:
    return str(origin.sender_user.id) if isinstance(origin, telegram.MessageOriginUser) else ""


def _origin_name(origin: telegram.MessageOrigin) -> str:
    match origin:
        case telegram.MessageOriginUser():
            return origin.sender_user.full_name
        case telegram.MessageOriginHiddenUser():
            return origin.sender_user_name
        case telegram.MessageOriginChat():
            return origin.sender_chat.effective_name or "a chat"
        case telegram.MessageOriginChannel():
            return origin.chat.effective_name or "a channel"
    return "somebody"


def _attachments_of(message: telegram.Message | telegram.ExternalReplyInfo) -> tuple[Attachment, ...]:
    """Return the file of a message. `ref` is its file id, which does not expire."""
    number = message.message_id or 0
    if message.photo:
        largest = max(message.photo, key=lambda size: size.width * size.height)
        return (Attachment(largest.file_id, f"photo_{number}.jpg", "image/jpeg", largest.file_size, "image"),)
    kinds: Sequence[tuple[Any, str, str, str]] = (  # an animation is a document too: it comes first
        (message.animation, f"animation_{number}.mp4", "video/mp4", "video"),
        (message.document, f"document_{number}", "application/octet-stream", "file"),
        (message.voice, f"voice_{number}.ogg", "audio/ogg", "audio"),
        (message.audio, f"audio_{number}.mp3", "audio/mpeg", "audio"),
        (message.video, f"video_{number}.mp4", "video/mp4", "video"),
        (message.live_photo, f"live_photo_{number}.mp4", "video/mp4", "video"),
        (message.video_note, f"video_note_{number}.mp4", "video/mp4", "video"),
    )
    for file, name, mime, kind in kinds:
        if file:
            mime = getattr(file, "mime_type", None) or mime
            name = getattr(file, "file_name", None) or name
            is_image = kind == "file" and mime.startswith("image/")
            return (Attachment(file.file_id, name, mime, file.file_size, "image" if is_image else kind),)  # type: ignore[arg-type] # a literal of the table above
    return ()
