"""Telegram's updates in our words: pure functions, one update in, at most one event out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import telegram
from telegram import MessageEntity as Entity

from agent.messages import ANYWHERE, Attachment, Author, Kind, Message, Quote, Thread, Unreadable
from channels.base import parse_command_text
from channels.shared.markdown_split import utf16_length

NAME = "telegram"
ALLOWED_UPDATES = ("message", "edited_message", "callback_query", "message_reaction")  # what we ask the server for
STOP_EMOJI = frozenset("❌👎")  # reactions that ask to stop; Telegram offers no cross, so its nearest counts too
LONG_TEXT_UNITS = 4000  # UTF-16 units: from here on the person's app may have split the text (it does at 4,096)

_UNSUPPORTED = {  # the field of a message → what a person calls it
    "sticker": "a sticker",
    "poll": "a poll",
    "contact": "a contact",
    "venue": "a place",
    "location": "a location",
    "dice": "a dice",
    "game": "a game",
    "story": "a story",
    "paid_media": "paid media",
    "invoice": "an invoice",
    "giveaway": "a giveaway",
    "checklist": "a checklist",
}


@dataclass(frozen=True, slots=True)
class TelegramAccount:
    """The bot's own account."""

    id: int
    username: str


def parse_update(raw: Mapping[str, Any], me: TelegramAccount) -> Message | Unreadable | None:
    """One update as getUpdates gave it. None: nothing that concerns us (a service message, another bot)."""
    try:
        update = telegram.Update.de_json(dict(raw), None)
        if update.message:
            return _parse_message(update.message, me)
        if update.edited_message:
            return _parse_edit(update.edited_message, me, update.update_id)
        if update.callback_query:
            return _parse_click(update.callback_query, me)
        if update.message_reaction:
            return _parse_stop_reaction(update.message_reaction, me, update.update_id)
    except Exception as error:  # noqa: BLE001 — the boundary of one update: its shape is not ours, others must go on
        key = f"{NAME}:{me.id}:update:{raw.get('update_id')}"
        return Unreadable(NAME, key, orjson.dumps(raw), f"{type(error).__name__}: {error}")
    return None


def _parse_message(message: telegram.Message, me: TelegramAccount) -> Message | None:
    author = _author_of(message)
    if message.migrate_to_chat_id:
        text, kind = str(message.migrate_to_chat_id), Kind.MOVED
        return _make_event(message, me, author or Author("", ""), text=text, kind=kind)
    if author is None:
        return None
    private = message.chat.type == "private"
    files = _attachments_of(message)
    text, mentioned = _text_without_mention(message, me)
    quotes, to_bot, quoted_files = _reply_context(message, me)
    if not (text or mentioned or files):
        what = next((words for field, words in _UNSUPPORTED.items() if getattr(message, field)), "")
        addressed = private or to_bot
        return _make_event(message, me, author, text=what, kind=Kind.UNSUPPORTED, addressed=addressed) if what else None
    kind = Kind.CHAT
    if message.forward_origin:  # somebody else's words: context, and no command of this person
        if text:
            quotes = (*quotes, Quote(_forward_origin(message.forward_origin), text, "forward"))
        text, mentioned = "", False
    elif (command := parse_command_text(text, me.username)) is not None:
        if not command:
            return None  # for another bot
        mentioned = mentioned or bool(re.match(r"\s*[/!]+\w+@", text))
        kind, text = Kind.COMMAND, command
    return _make_event(
        message,
        me,
        author,
        text=text,
        kind=kind,
        attachments=files + quoted_files,
        quotes=quotes,
        reply_to=str(message.reply_to_message.message_id)
        if _replied_message(message) and message.reply_to_message
        else "",
        to_bot=to_bot,
        group=message.media_group_id or "",
        long=utf16_length(message.text or "") >= LONG_TEXT_UNITS,
        addressed=private or mentioned or to_bot,
    )


def _parse_edit(message: telegram.Message, me: TelegramAccount, update_id: int) -> Message | None:
    author = _author_of(message)
    text, mentioned = _text_without_mention(message, me)
    if author is None or not text:
        return None
    key = _message_key(message, me)
    addressed = message.chat.type == "private" or mentioned
    return _make_event(
        message, me, author, key=f"{key}:edit:{update_id}", target=key, text=text, kind=Kind.EDIT, addressed=addressed
    )


def _parse_click(query: telegram.CallbackQuery, me: TelegramAccount) -> Message | None:
    """A pressed button of ours; its data is "<ask id>|<option index>", its label the option."""
    if not query.message or not query.data:
        return None  # older than Telegram remembers, or a game
    ask, _, index = query.data.rpartition("|")
    author = Author(str(query.from_user.id), query.from_user.full_name)
    chat = query.message.chat
    return Message(
        thread=Thread(NAME, str(me.id), str(chat.id), _topic_of(query.message)),
        key=f"{NAME}:{me.id}:click:{query.id}",
        id=str(query.message.message_id),
        author=author,
        text=_option_text(query.message, query.data, index) or query.data,
        time=query.message.date.timestamp(),
        kind=Kind.CLICK,
        target=ask,
        private=chat.type == "private",
    )


def _option_text(message: telegram.MaybeInaccessibleMessage, data: str, index: str) -> str:
    """The option of a button: its label, or the line of the message where it is written out in full."""
    if not isinstance(message, telegram.Message) or not message.reply_markup:
        return ""
    buttons = [button for row in message.reply_markup.inline_keyboard for button in row]
    label = next((button.text for button in buttons if button.callback_data == data), "")
    if not label.endswith("…") or not index.isdecimal():
        return label
    begin = f"{int(index) + 1}. "
    lines = [line.removeprefix(begin) for line in (message.text or "").splitlines() if line.startswith(begin)]
    return next((line for line in reversed(lines) if line.startswith(label[:-1])), label)


def _parse_stop_reaction(
    change: telegram.MessageReactionUpdated, me: TelegramAccount, update_id: int
) -> Message | None:
    """A new ❌ on a message. Which topic it is in, and whether it is the bot's, only the inbox knows."""
    old, new = ({getattr(mark, "emoji", "") for mark in marks} for marks in (change.old_reaction, change.new_reaction))
    if change.user is None or change.user.is_bot or not STOP_EMOJI & (new - old):
        return None
    return Message(
        thread=Thread(NAME, str(me.id), str(change.chat.id), ANYWHERE),
        key=f"{NAME}:{me.id}:reaction:{update_id}",
        id=str(change.message_id),
        author=Author(str(change.user.id), change.user.full_name),
        text="stop",
        time=change.date.timestamp(),
        kind=Kind.COMMAND,
        reply_to=str(change.message_id),
        to_bot=True,
        private=change.chat.type == "private",
        addressed=False,
    )


# ---------------------------------------------------------------- parts


def _make_event(
    message: telegram.Message, me: TelegramAccount, author: Author, *, key: str = "", **more: Any
) -> Message:
    return Message(
        thread=Thread(NAME, str(me.id), str(message.chat.id), _topic_of(message)),
        key=key or _message_key(message, me),
        id=str(message.message_id),
        author=author,
        time=(message.edit_date or message.date).timestamp(),
        private=message.chat.type == "private",
        **more,
    )


def _message_key(message: telegram.Message, me: TelegramAccount) -> str:
    return f"{NAME}:{me.id}:{message.chat.id}:{message.message_id}"


def _topic_of(message: telegram.MaybeInaccessibleMessage) -> str:
    """The forum topic; a plain supergroup's reply threads have a thread id too, but are one conversation."""
    if isinstance(message, telegram.Message) and message.is_topic_message and message.message_thread_id:
        return str(message.message_thread_id)
    return ""


def _author_of(message: telegram.Message) -> Author | None:
    """Who wrote it; None for bots, channels and anonymous admins."""
    user = message.from_user
    if user is None or user.is_bot or message.sender_chat or message.is_automatic_forward:
        return None
    return Author(str(user.id), user.full_name)


def _text_without_mention(message: telegram.Message, me: TelegramAccount) -> tuple[str, bool]:
    """The text or caption without the bot's mention, and whether it was there. Hidden links are written out."""
    text = message.text or message.caption or ""
    marks: list[tuple[Entity, str]] = []
    for entity in message.entities or message.caption_entities:
        if entity.type == Entity.TEXT_LINK or _mentions_bot(entity, text, me):
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
    return re.sub(r"(?m)^\0[ \t,:]*|(?<![ \t])[ \t]*\0|\0", "", text).strip(), "\0" in text


def _mentions_bot(entity: Entity, text: str, me: TelegramAccount) -> bool:
    """Whether this entity names the bot."""
    if entity.type == Entity.TEXT_MENTION:
        return entity.user is not None and entity.user.id == me.id
    if entity.type != Entity.MENTION:
        return False
    units = text.encode("utf-16-le", "surrogatepass")[2 * entity.offset : 2 * (entity.offset + entity.length)]
    return units.decode("utf-16-le", "replace").lower() == f"@{me.username}".lower()


def _replied_message(message: telegram.Message) -> bool:
    """Whether it answers a message (in a topic every message points at the service message that made it)."""
    replied = message.reply_to_message
    return replied is not None and not replied.forum_topic_created


def _reply_context(
    message: telegram.Message, me: TelegramAccount
) -> tuple[tuple[Quote, ...], bool, tuple[Attachment, ...]]:
    """What it answers: the quote, whether that was the bot's own message, and the files of somebody else's."""
    part = message.quote.text if message.quote else ""
    if message.external_reply:
        return (Quote(_forward_origin(message.external_reply.origin), part or "(something not quoted)"),), False, ()
    replied = message.reply_to_message
    if replied is None or not _replied_message(message):
        return (), False, ()
    user = replied.from_user
    if user is not None and user.id == me.id:
        return ((Quote("me", part),) if part else ()), True, ()
    name = (
        user.full_name if user else (replied.sender_chat.effective_name if replied.sender_chat else None) or "somebody"
    )
    files = _attachments_of(replied)
    words = part or replied.text or replied.caption or ", ".join(file.name for file in files)
    return ((Quote(name, words),) if words else ()), False, files


def _forward_origin(origin: telegram.MessageOrigin) -> str:
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


def _attachments_of(message: telegram.Message) -> tuple[Attachment, ...]:
    """The file of a message. `ref` is the file id, which stays valid."""
    number = message.message_id
    if message.photo:
        largest = max(message.photo, key=lambda size: size.width * size.height)
        return (Attachment(largest.file_id, f"photo_{number}.jpg", "image/jpeg", largest.file_size, "image"),)
    known: Sequence[tuple[Any, str, str, str]] = (  # an animation is a document too: it comes first
        (message.animation, f"animation_{number}.mp4", "video/mp4", "video"),
        (message.document, f"document_{number}", "application/octet-stream", "file"),
        (message.voice, f"voice_{number}.ogg", "audio/ogg", "audio"),
        (message.audio, f"audio_{number}.mp3", "audio/mpeg", "audio"),
        (message.video, f"video_{number}.mp4", "video/mp4", "video"),
        (message.video_note, f"video_note_{number}.mp4", "video/mp4", "video"),
    )
    for file, name, mime, kind in known:
        if file:
            mime = getattr(file, "mime_type", None) or mime
            name = getattr(file, "file_name", None) or name
            is_image = kind == "file" and mime.startswith("image/")
            return (Attachment(file.file_id, name, mime, file.file_size, "image" if is_image else kind),)  # type: ignore[arg-type] # a literal of the table above
    return ()
