"""Discord's events in our words: pure functions, one event in, at most one of ours out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import PurePath
from typing import Any, Literal

from agent.messages import ANYWHERE, Attachment, Author, Kind, Message, Quote, Thread
from channels.base import parse_command_text
from channels.discord.guild_cache import DIRECT_WORKSPACE, NAME, snowflake_time

STOP_EMOJI = "❌"
SPOKEN_TYPES = (0, 19)  # message types that a person wrote: plain, reply
GUEST_FLAG = 1 << 4  # flag of a member that was invited to one voice channel only

Event = Mapping[str, Any]  # the shape is Discord's


@dataclass(frozen=True, slots=True)
class DiscordAccount:
    """The bot's account; `role` is its own role in the server at hand. `opens`: a mention opens a thread of its own.
    `commands` are the words that a "!" makes a command even where nobody mentions the bot."""

    id: str
    role: str = ""
    opens: bool = True
    commands: frozenset[str] = frozenset()


def message_key(channel: str, message: str) -> str:
    return f"{NAME}:{channel}:{message}"


def author_of(event: Event) -> Author:
    """Who did it: of a message (`author`), an interaction or a reaction (`member.user` or `user`)."""
    member = event.get("member") or {}
    user = event.get("author") or member.get("user") or event.get("user") or {}
    name = member.get("nick") or user.get("global_name") or user.get("username") or "somebody"
    return Author(
        str(user.get("id") or ""),
        name,
        bot=bool(user.get("bot") or event.get("webhook_id")),
        guest=bool((member.get("flags") or 0) & GUEST_FLAG),
    )


def is_spoken(event: Event) -> bool:
    """A message proper: no system message, and no answer to a native command."""
    return event.get("type", 0) in SPOKEN_TYPES and not event.get("interaction_metadata")


def parse_message(event: Event, thread: Thread, me: DiscordAccount) -> Message | None:
    """MESSAGE_CREATE (or a message of the history) in `thread`, its channel's address. None: nothing for us."""
    author = author_of(event)
    if author.id == me.id or not is_spoken(event):
        return None
    private = thread.workspace == DIRECT_WORKSPACE
    words, mentioned = _text_without_mention(event, me)
    quotes, to_bot, files = _reply_context(event, me)
    files = (*_attachments_of(event, event), *files)
    what = "a poll" if event.get("poll") else "a sticker" if event.get("sticker_items") else ""
    bare = not (words or files or quotes)
    if bare and not (what or mentioned):
        return None
    kind, command = Kind.CHAT, parse_command_text(words)
    if bare and what:
        kind, words = Kind.UNSUPPORTED, what
    elif command and (private or mentioned or command.split(" ")[0] in me.commands):
        kind, words = Kind.COMMAND, command
    others = bool(event.get("mentions") or event.get("mention_roles") or event.get("mention_everyone"))
    made = _make_event(event, _conversation_thread(event, thread, me, mentioned, to_bot), author, text=words, kind=kind)
    return replace(
        made,
        attachments=files,
        quotes=quotes,
        reply_to=_replied_message(event),
        to_bot=to_bot,
        private=private,
        addressed=private or mentioned or to_bot,
        follow_up=bool(thread.topic) and not (others or mentioned),
    )


def parse_edit(event: Event, thread: Thread, me: DiscordAccount) -> Message | None:
    """MESSAGE_UPDATE: new words. None when only a preview was added, or it is our own."""
    author = author_of(event)
    if not event.get("edited_timestamp") or not event.get("content") or author.id == me.id:
        return None
    words, _ = _text_without_mention(event, me)
    target = message_key(event["channel_id"], event["id"])
    when = event["edited_timestamp"]
    made = _make_event(event, thread, author, text=words, kind=Kind.EDIT, key=f"{target}:edit:{when}")
    return replace(made, target=target, time=datetime.fromisoformat(when).timestamp())


def parse_delete(event: Event, thread: Thread, now: float) -> list[Message]:
    """MESSAGE_DELETE and MESSAGE_DELETE_BULK."""
    targets = [message_key(event["channel_id"], each) for each in event.get("ids") or [event["id"]]]
    return [
        Message(
            thread, f"{target}:delete", target.rpartition(":")[2], Author("", ""), "", now, Kind.DELETE, target=target
        )
        for target in targets
    ]


def parse_reaction(event: Event, thread: Thread, me: DiscordAccount, now: float) -> Message | None:
    """MESSAGE_REACTION_ADD: ❌ on a message of ours asks to stop."""
    mine = event.get("message_author_id") == me.id
    if not mine or event["emoji"].get("name") != STOP_EMOJI or event["user_id"] == me.id:
        return None
    author = author_of(event)
    return Message(
        thread=_thread_of_post(thread, me),
        key=f"{NAME}:{event['channel_id']}:{event['message_id']}:stop:{event['user_id']}:{int(now * 1000)}",
        id=event["message_id"],
        author=replace(author, id=event["user_id"]),
        text="stop",
        time=now,
        kind=Kind.COMMAND,
        reply_to=event["message_id"],
        to_bot=True,
        private=thread.workspace == DIRECT_WORKSPACE,
        addressed=False,
    )


def parse_command(event: Event, thread: Thread) -> Message | None:
    """INTERACTION_CREATE of an application command."""
    data = event["data"]
    if data.get("type", 1) != 1:
        return None
    words = " ".join(str(option.get("value", "")) for option in data.get("options") or ())
    text = f"{data['name']} {words}".strip()
    return _make_event(event, thread, author_of(event), text=text, kind=Kind.COMMAND, key=_interaction_key(event))


def parse_click(event: Event, thread: Thread, me: DiscordAccount) -> Message | None:
    """INTERACTION_CREATE of a button or a menu of ours: its id is "<ask id>|<option index>" (a menu: "…|m<number>")."""
    data, shown = event["data"], event["message"]
    ask, _, index = str(data["custom_id"]).rpartition("|")
    if not ask:
        return None
    chosen = (data.get("values") or [index])[0]
    text, where = _option_text(shown, chosen), _thread_of_post(thread, me)
    made = _make_event(event, where, author_of(event), text=text, kind=Kind.CLICK, key=_interaction_key(event))
    return replace(made, id=shown["id"], target=ask, reply_to=shown["id"], to_bot=True)


# ---------------------------------------------------------------- parts


def _make_event(event: Event, thread: Thread, author: Author, *, text: str, kind: Kind, key: str = "") -> Message:
    return Message(
        thread=thread,
        key=key or message_key(event["channel_id"], event["id"]),
        id=event["id"],
        author=author,
        text=text,
        time=snowflake_time(event["id"]),
        kind=kind,
        private=thread.workspace == DIRECT_WORKSPACE,
    )


def _interaction_key(event: Event) -> str:
    return f"{NAME}:{event.get('channel_id')}:interaction:{event['id']}"


def _conversation_thread(event: Event, thread: Thread, me: DiscordAccount, mentioned: bool, to_bot: bool) -> Thread:
    """The conversation of a message: a mention in a channel begins the thread that hangs on it."""
    elsewhere = _thread_of_post(thread, me)
    if mentioned and elsewhere != thread:
        return replace(thread, topic=event["id"])
    return elsewhere if to_bot else thread


def _thread_of_post(thread: Thread, me: DiscordAccount) -> Thread:
    """The conversation of a post of ours: in a plain channel it may belong to a thread that could not be opened."""
    if thread.workspace == DIRECT_WORKSPACE or thread.topic or not me.opens:
        return thread
    return replace(thread, topic=ANYWHERE)


def _text_without_mention(event: Event, me: DiscordAccount) -> tuple[str, bool]:
    """The text without the bot's mention, and whether it was there. Other mentions are written as people see them."""
    text = event.get("content") or ""
    own = rf"<@!?{me.id}>" + (rf"|<@&{me.role}>" if me.role else "")
    text, count = re.subn(own, "\0", text)
    text = re.sub(r"(?m)^\0[ \t,:]*|(?<![ \t])[ \t]*\0|\0", "", text)
    for user in event.get("mentions") or ():
        name = (user.get("member") or {}).get("nick") or user.get("global_name") or user.get("username") or "somebody"
        text = text.replace(f"<@{user['id']}>", f"@{name}").replace(f"<@!{user['id']}>", f"@{name}")
    return re.sub(r"<a?(:\w+:)\d+>", r"\1", text).strip(), count > 0


def _replied_message(event: Event) -> str:
    reference = event.get("message_reference") or {}
    return str(reference.get("message_id") or "") if reference.get("type", 0) == 0 else ""


def _reply_context(event: Event, me: DiscordAccount) -> tuple[tuple[Quote, ...], bool, tuple[Attachment, ...]]:
    """What it answers or forwards: the quotes, whether that was the bot's message, and the files of somebody else's."""
    quotes: list[Quote] = []
    files: list[Attachment] = []
    for snapshot in event.get("message_snapshots") or ():
        forwarded = snapshot.get("message") or {}
        if words := _text_without_mention(forwarded, me)[0]:
            quotes.append(Quote("somebody", words, "forward"))
        files += _attachments_of(forwarded, event)
    replied = event.get("referenced_message")
    if not _replied_message(event) or not replied:
        return tuple(quotes), False, tuple(files)
    if author_of(replied).id == me.id:
        return tuple(quotes), True, tuple(files)
    theirs = _attachments_of(replied, replied)
    words = _text_without_mention(replied, me)[0] or ", ".join(file.name for file in theirs)
    if words:
        quotes.append(Quote(author_of(replied).name, words))
    return tuple(quotes), False, (*files, *theirs)


def _attachments_of(event: Event, carrier: Event) -> tuple[Attachment, ...]:
    """The files of a message. `ref` names the message they came with, because links run out after a day."""
    made = []
    for file in event.get("attachments") or ():
        mime = (file.get("content_type") or "application/octet-stream").partition(";")[0]
        family = mime.partition("/")[0]
        kind: Literal["file", "image", "audio", "video"] = family if family in ("image", "audio", "video") else "file"  # type: ignore[assignment] # one of those words
        ref = f"{carrier['channel_id']}/{carrier['id']}/{file['id']} {file['url']}"
        made.append(Attachment(ref, _file_name(file), mime, file.get("size"), kind))
    return tuple(made)


def _file_name(file: Event) -> str:
    """The name that a person gave a file: where Discord had to change that, the title still has it, without its end."""
    name, title = PurePath(file["filename"]), str(file.get("title") or "")
    return title + name.suffix if title and not title.endswith(name.suffix or "\0") else title or str(name)


def _option_text(shown: Event, chosen: str) -> str:
    """The option in full: as its button or menu says it, or where that was cut by its number in the text."""
    label = chosen
    for row in shown.get("components") or ():
        for part in row.get("components") or ():
            if str(part.get("custom_id", "")).endswith(f"|{chosen}"):
                label = str(part.get("label") or chosen)
            for option in part.get("options") or ():
                if option.get("value") == chosen:
                    label = str(option.get("label") or chosen)
    if label.endswith("…") and chosen.isdecimal():
        listed = re.findall(rf"(?m)^{int(chosen) + 1}\. (.+)$", shown.get("content") or "")
        return next((full for full in listed if full.startswith(label[:-1].rstrip())), label)
    return label
