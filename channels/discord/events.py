"""Parse Discord's events to messages: pure functions, at most one message for each event."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from pathlib import PurePath
from typing import Any, Literal

import orjson

from agent.messages import ANYWHERE, Attachment, Author, Kind, Message, Origin, Quote, Thread, Unreadable
from catalogue import N_
from channels.base import parse_command_text
from channels.discord.body import components_in, text_in
from channels.discord.guild_cache import DIRECT_WORKSPACE, NAME, is_guest, snowflake_time
from channels.discord.visible_text import MAX_EMBEDS, MAX_SNAPSHOTS, card_lines, embed_lines, poll_lines
from channels.shared.inbound import adds_mention
from channels.shared.reply_layout import as_command
from channels.shared.texts import feedback_of, option_in_full, remove_bot_mention
from channels.shared.visible_text import UNKNOWN_KIND, dict_of, dicts_in, join_visible, make_unread, with_author

STOP_EMOJI = "❌"
REACTIONS = {"MESSAGE_REACTION_ADD": Kind.FEEDBACK, "MESSAGE_REACTION_REMOVE": Kind.FEEDBACK_REMOVED}
USER_MESSAGE_TYPES = (0, 19)  # plain message, reply
MAX_NAMED = 20  # people whom a message mentions

Event = Mapping[str, Any]  # Discord defines the shape


@dataclass(frozen=True, slots=True)
class DiscordAccount:
    """The bot's account. `bot_role` is its own role in the current server.

    `opens_threads`: a mention opens a thread. `command_names` make a command after a "!" without a mention.
    """

    id: str
    bot_role: str = ""
    opens_threads: bool = True
    command_names: frozenset[str] = frozenset()


def message_key(channel_id: str, message_id: str) -> str:
    return f"{NAME}:{channel_id}:{message_id}"


def author_of(event: Event) -> Author:
    """Return the author of a message (`author`), or the user of an interaction or reaction (`member.user`, `user`)."""
    member = event.get("member") or {}
    user = event.get("author") or member.get("user") or event.get("user") or {}
    return Author(
        str(user.get("id") or ""),
        _display_name(user, member),
        bot=bool(user.get("bot") or event.get("webhook_id")),
        guest=is_guest(member),
        language=str(event.get("locale") or ""),  # of an interaction: the person's
    )


def is_user_message(event: Event) -> bool:
    """Whether it is neither a system message nor the response to a native command."""
    return event.get("type", 0) in USER_MESSAGE_TYPES and not event.get("interaction_metadata")


def make_unreadable(kind: str, event: Event, error: Exception) -> Unreadable:
    """Return what becomes of an event of an unknown shape."""
    key = f"{NAME}:unreadable:{kind}:{event.get('id')}"
    return Unreadable(NAME, key, orjson.dumps(event), f"{type(error).__name__}: {error}")


def read_message(event: Event, thread: Thread, me: DiscordAccount) -> Message | Unreadable | None:
    """Parse MESSAGE_CREATE, as `parse_message` does; one of an unknown shape does not stop the others."""
    try:
        return parse_message(event, thread, me)
    except Exception as error:  # noqa: BLE001 — the boundary of one message
        lost = make_unreadable("MESSAGE_CREATE", event, error)
        return with_author(lost, lambda: _unread(event, thread, me))


def _unread(event: Event, thread: Thread, me: DiscordAccount) -> Message | None:
    """Return the message that an unreadable one of a direct chat, or with a mention, was."""
    author, private = event["author"], thread.workspace == DIRECT_WORKSPACE
    named = f"<@{me.id}>" in str(event.get("content")) or me.id in str(event.get("mentions"))
    if author.get("bot") or event.get("webhook_id") or not (private or named):
        return None
    where = thread if private or thread.topic else replace(thread, topic=str(event["id"]))
    key = message_key(str(event["channel_id"]), str(event["id"]))
    return make_unread(where, key, event["id"], author["id"], private=private)


def parse_message(event: Event, thread: Thread, me: DiscordAccount) -> Message | None:
    """Parse MESSAGE_CREATE, or a message of the history. `thread` is the address of its channel.

    Returns None for messages of the bot and of the system, and for empty ones.
    """
    author = author_of(event)
    if author.id == me.id or not is_user_message(event):
        return None
    private = thread.workspace == DIRECT_WORKSPACE
    text, mentioned = _text_without_mention(event, me)
    quotes, to_bot, files = _reply_context(event, me)
    files = (*_attachments_of(event, event), *files)
    if author.bot:
        text = _with_cards(text, event)
    elif poll := event.get("poll"):
        text = join_visible(text, poll_lines(poll))
    else:
        quotes = (*quotes, *_looked_at(event))
    unsupported = N_("a sticker") if event.get("sticker_items") else ""
    empty = not (text or files or quotes)
    if empty and private and not (unsupported or author.bot):
        unsupported = UNKNOWN_KIND
    if empty and not (unsupported or mentioned):
        return None
    kind, command = Kind.CHAT, parse_command_text(text)
    if empty and unsupported:
        kind, text = Kind.UNSUPPORTED, unsupported
    elif command and (private or mentioned or command.split(" ")[0] in me.command_names):
        kind, text = Kind.COMMAND, command
    others = bool(event.get("mentions") or event.get("mention_roles") or event.get("mention_everyone"))
    where = _conversation_thread(event, thread, me, mentioned, to_bot)
    return replace(
        _make_message(event, where, author, text=text, kind=kind),
        attachments=files,
        quotes=quotes,
        reply_to=_replied_message(event),
        to_bot=to_bot,
        private=private,
        addressed=private or mentioned or to_bot,
        follow_up=bool(thread.topic) and not (others or mentioned),
        named=_named(event, me),
    )


def make_quote(message: Message | Unreadable | None) -> Quote | None:
    """Return a message as talk above another one; None for one that is no talk."""
    if not isinstance(message, Message):
        return None
    names = ", ".join(file.name for file in message.attachments)
    text = " ".join(part for part in (message.text, f"[{names}]" if names else "") if part)
    author, is_member = message.author, _is_member(message.author)
    return Quote(author.name, text, "earlier", author.id, message.id, is_member) if text else None


def _is_member(author: Author) -> bool:
    return not (author.bot or author.guest)


def parse_edit(event: Event, thread: Thread, me: DiscordAccount) -> Message | None:
    """Parse MESSAGE_UPDATE. Returns None when only a preview was added, and for the bot's own messages."""
    author = author_of(event)
    when = event.get("edited_timestamp")
    if not when or not event.get("content") or author.id == me.id:
        return None
    text, mentioned = _text_without_mention(event, me)
    target, private = message_key(event["channel_id"], event["id"]), thread.workspace == DIRECT_WORKSPACE
    edited = datetime.fromisoformat(when).timestamp()
    message = _make_message(event, thread, author, text=text, kind=Kind.EDIT, key=f"{target}:edit:{when}")
    message = replace(message, target=target, time=edited, private=private, addressed=private)
    whole = parse_message(event, thread, me) if mentioned else None
    if whole and whole.kind is Kind.CHAT and adds_mention(message, snowflake_time(event["id"])):
        return replace(whole, kind=Kind.EDIT, key=message.key, target=target, time=edited, addressed=True)
    return message


def parse_delete(event: Event, thread: Thread, now: float) -> list[Message]:
    """Parse MESSAGE_DELETE and MESSAGE_DELETE_BULK."""
    found = [(id, message_key(event["channel_id"], id)) for id in event.get("ids") or [event["id"]]]
    nobody = Author("", "")
    return [
        Message(thread, f"{target}:delete", id, nobody, "", now, Kind.DELETE, target=target, origin=Origin.PERSON)
        for id, target in found
    ]


def parse_reaction(
    event: Event, thread: Thread, me: DiscordAccount, now: float, kind: Kind = Kind.FEEDBACK
) -> Message | None:
    """Parse a reaction to a message of the bot: ❌ stops its work, 👍 and 👎 are feedback.

    The event of one that was taken back (`kind` FEEDBACK_REMOVED) does not name the message's author.
    """
    own = event.get("message_author_id", me.id) == me.id
    emoji = str(event["emoji"].get("name") or "")
    kind, text = (Kind.COMMAND, "stop") if emoji == STOP_EMOJI and kind is Kind.FEEDBACK else (kind, feedback_of(emoji))
    if not own or not text or event["user_id"] == me.id:
        return None
    return Message(
        thread=_thread_of_post(thread, me),
        key=f"{NAME}:{event['channel_id']}:{event['message_id']}:{kind}:{event['user_id']}:{int(now * 1000)}",
        id=event["message_id"],
        author=replace(author_of(event), id=event["user_id"]),
        text=text,
        time=now,
        kind=kind,
        reply_to=event["message_id"],
        to_bot=True,
        private=thread.workspace == DIRECT_WORKSPACE,
        addressed=False,
        origin=Origin.PERSON,
    )


def parse_interaction(event: Event, thread: Thread, me: DiscordAccount) -> Message | None:
    """Parse INTERACTION_CREATE: a native command, a button or a menu of the bot.

    The id of a component is "ask id|option index"; that of a menu, whose value is the index, is "ask id|mNUMBER".
    """
    data, author = event["data"], author_of(event)
    key = f"{NAME}:{event.get('channel_id')}:interaction:{event['id']}"
    if event["type"] == 2 and data.get("type", 1) == 1:
        words = (str(option.get("value", "")) for option in data.get("options") or ())
        text = f"{data['name']} {' '.join(words)}".strip()
        message = _make_message(event, thread, author, text=text, kind=Kind.COMMAND, key=key)
        return replace(message, native=True)
    ask, _, index = str(data.get("custom_id") or "").rpartition("|")
    if event["type"] != 3 or not ask:
        return None
    shown, chosen = event["message"], (data.get("values") or [index])[0]
    where, text = _thread_of_post(thread, me), _option_text(shown, chosen)
    message = _make_message(event, where, author, text=text, kind=Kind.CLICK, key=key)
    message = replace(message, id=shown["id"], target=ask, reply_to=shown["id"], to_bot=True)
    return as_command(message, data["custom_id"]) or message


# ---------------------------------------------------------------- parts


def _make_message(event: Event, thread: Thread, author: Author, *, text: str, kind: Kind, key: str = "") -> Message:
    return Message(
        thread=thread,
        key=key or message_key(event["channel_id"], event["id"]),
        id=event["id"],
        author=author,
        text=text,
        time=snowflake_time(event["id"]),
        kind=kind,
        private=thread.workspace == DIRECT_WORKSPACE,
        origin=author.origin,
    )


def _display_name(user: Event, member: Event) -> str:
    return member.get("nick") or user.get("global_name") or user.get("username") or "somebody"


def _conversation_thread(event: Event, thread: Thread, me: DiscordAccount, mentioned: bool, to_bot: bool) -> Thread:
    """Return the conversation of a message: a mention in a channel begins the thread on that message."""
    of_post = _thread_of_post(thread, me)
    if mentioned and of_post != thread:
        return replace(thread, topic=event["id"])
    return of_post if to_bot else thread


def _thread_of_post(thread: Thread, me: DiscordAccount) -> Thread:
    """Return the conversation of a bot's message: in a channel, it may be one whose thread could not be opened."""
    if thread.workspace == DIRECT_WORKSPACE or thread.topic or not me.opens_threads:
        return thread
    return replace(thread, topic=ANYWHERE)


def _text_without_mention(event: Event, me: DiscordAccount) -> tuple[str, bool]:
    """Return the text without the bot's mention, and whether it had one. Other mentions become "@name"."""
    text = event.get("content") or ""
    own = rf"<@!?{me.id}>" + (rf"|<@&{me.bot_role}>" if me.bot_role else "")
    text, count = re.subn(own, "\0", text)
    text = remove_bot_mention(text)
    for user in event.get("mentions") or ():
        name = f"@{_display_name(user, user.get('member') or {})}"
        text = text.replace(f"<@{user['id']}>", name).replace(f"<@!{user['id']}>", name)
    return re.sub(r"<a?(:\w+:)\d+>", r"\1", text).strip(), count > 0


def _named(event: Event, me: DiscordAccount) -> tuple[Author, ...]:
    """Return the people whom it mentions."""
    users = [user for user in dicts_in(event.get("mentions")) if user.get("id") != me.id and not user.get("bot")]
    found = [Author(str(user.get("id")), _display_name(user, dict_of(user.get("member")))) for user in users]
    return tuple(found[:MAX_NAMED])


def _with_cards(text: str, event: Event) -> str:
    """Return the text with all that a reader sees beside it: embeds, components, a poll."""
    return join_visible(text, [*card_lines(event), *poll_lines(event.get("poll") or {})])


def _looked_at(event: Event) -> Iterator[Quote]:
    """Yield what Discord shows of the pages that a person's message links to: others' text."""
    for embed in islice(dicts_in(event.get("embeds")), MAX_EMBEDS):
        if (address := str(embed.get("url") or "")) and (text := join_visible("", embed_lines(embed))):
            yield Quote(address, text, "link")


def _replied_message(event: Event) -> str:
    reference = event.get("message_reference") or {}
    return str(reference.get("message_id") or "") if reference.get("type", 0) == 0 else ""


def _reply_context(event: Event, me: DiscordAccount) -> tuple[tuple[Quote, ...], bool, tuple[Attachment, ...]]:
    """Return quotes and files of the message that it forwards or replies to, and whether that is the bot's."""
    quotes: list[Quote] = []
    files: list[Attachment] = []
    for snapshot in islice(dicts_in(event.get("message_snapshots")), MAX_SNAPSHOTS):
        forwarded = dict_of(snapshot.get("message"))
        if text := _with_cards(_text_without_mention(forwarded, me)[0], forwarded):
            quotes.append(Quote("somebody", text, "forward"))
        files += _attachments_of(forwarded, event)
    replied = event.get("referenced_message") if _replied_message(event) else None
    to_bot = replied is not None and author_of(replied).id == me.id
    if replied is not None and not to_bot:
        attached = _attachments_of(replied, replied)
        own = _text_without_mention(replied, me)[0]
        said = _with_cards(own, replied)
        if text := said or ", ".join(file.name for file in attached):
            author = author_of(replied)
            quotes.append(Quote(author.name, text, author_id=author.id, member=_is_member(author) and said == own))
        files += attached
    return tuple(quotes), to_bot, tuple(files)


def _attachments_of(event: Event, carrier: Event) -> tuple[Attachment, ...]:
    """Return the files of a message. `ref` names the `carrier` message too, because links expire after a day."""
    found = []
    for file in event.get("attachments") or ():
        mime = (file.get("content_type") or "application/octet-stream").partition(";")[0]
        family = mime.partition("/")[0]
        kind: Literal["file", "image", "audio", "video"] = family if family in ("image", "audio", "video") else "file"  # type: ignore[assignment] # one of those words
        ref = f"{carrier['channel_id']}/{carrier['id']}/{file['id']} {file['url']}"
        found.append(Attachment(ref, _file_name(file), mime, file.get("size"), kind))
    return tuple(found)


def _file_name(file: Event) -> str:
    """Return the name that the sender gave a file. Where Discord changed it, `title` has it, without its suffix."""
    name, title = PurePath(file["filename"]), str(file.get("title") or "")
    return title + name.suffix if title and not title.endswith(name.suffix or "\0") else title or str(name)


def _option_text(shown: Event, chosen: str) -> str:
    label = chosen
    for component in components_in(shown):
        if str(component.get("custom_id", "")).endswith(f"|{chosen}"):
            label = str(component.get("label") or chosen)
        for option in component.get("options") or ():
            if option.get("value") == chosen:
                label = str(option.get("label") or chosen)
    return option_in_full(label, chosen, text_in(shown))
