"""Read Matrix's events as messages, at most one for each event.

Shapes: spec.matrix.org/latest/client-server-api (modules: instant messaging, replies, threads, replacements, reactions,
mentions).
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import orjson

from agent.messages import ANYWHERE, Attachment, Author, Kind, Message, Thread, Unreadable
from catalogue import N_
from channels.base import parse_command_text
from channels.matrix import NAME
from channels.matrix.rooms import Known, Room, Rooms
from channels.shared.inbound import adds_mention
from channels.shared.robot_chats import attached_file
from channels.shared.texts import feedback_of
from channels.shared.visible_text import dict_of, make_unread, text_of, with_author

MAX_TEXT_CHARS = 100_000
STOP_EMOJI = "❌"
QUESTION = "dev.fawn.question"  # of a message that asks: the id and the options
UNREADABLE_ENCRYPTED = N_("this encrypted message: I don't have its key")
NOT_ENCRYPTED = N_("this message: the room is encrypted, and it is not")
STICKER, POLL, LOCATION = N_("a sticker"), N_("a poll"), N_("a location")
_FILES: Mapping[str, Literal["file", "image", "audio", "video"]] = {
    "m.file": "file",
    "m.image": "image",
    "m.audio": "audio",
    "m.video": "video",
}
_OTHER = {"m.sticker": STICKER, "m.poll.start": POLL, "org.matrix.msc3381.poll.start": POLL}
_PERSON_LINK = re.compile(r"https://matrix\.to/#/(@[^\"'<>\s?]{3,255})")
_FALLBACK = re.compile(r"(?:>[^\n]*+\n)++\n?")  # the quote that old clients put before a reply
_KEYCAP = re.compile(r"([1-9])\ufe0f?\u20e3")
_SPOKEN = ("m.text", "m.emote", "m.notice")

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MatrixAccount:
    """The bot's account: its id, and its display name, by which people mention it."""

    id: str
    name: str = ""

    @property
    def server(self) -> str:
        return server_of(self.id)

    def key(self, room: str, event: str) -> str:
        return f"{NAME}:{self.id}:{room}:{event}"

    def thread(self, room: str, topic: str = "") -> Thread:
        return Thread(NAME, self.id, room, topic)

    def author(self, person: str, room: Room, *, bot: bool = False) -> Author:
        """Return a person. One of another homeserver is a guest."""
        name = room.names.get(person) or person[1:].partition(":")[0]
        return Author(person, name, bot=bot, guest=server_of(person) != self.server)


def server_of(person: str) -> str:
    """Return the server in the id of a user."""
    return person.partition(":")[2]


def time_of(event: Json) -> float:
    """Return the Unix time of an event by its server's clock, 0 for none."""
    sent = event.get("origin_server_ts")
    return sent / 1000 if isinstance(sent, int | float) and sent > 0 else 0.0


def relation_of(content: Json) -> tuple[str, str, str]:
    """Return kind and target of an event's relation, and the message to which it replies on purpose; "" for none."""
    relation = dict_of(content.get("m.relates_to"))
    kind, target = text_of(relation.get("rel_type")), text_of(relation.get("event_id"))
    replied = text_of(dict_of(relation.get("m.in_reply_to")).get("event_id"))
    return kind, target, "" if kind == "m.thread" and relation.get("is_falling_back") is True else replied


@dataclass(frozen=True, slots=True)
class EventPlace:
    """The room in which an event is read, what is known of all events, and who reads it."""

    id: str
    room: Room
    rooms: Rooms
    me: MatrixAccount

    def known(self, event: str) -> Known | None:
        return self.rooms.events.get(event)


def read_event(event: Json, room_id: str, rooms: Rooms, me: MatrixAccount) -> Message | Unreadable | None:
    """Read one event; one of an unknown shape is Unreadable, because it must not stop the others."""
    room = rooms.room(room_id)
    try:
        return _parse(event, EventPlace(room_id, room, rooms, me))
    except Exception as error:  # noqa: BLE001 — the boundary of one event
        id = text_of(event.get("event_id"))
        raw = orjson.dumps(event)
        lost = Unreadable(NAME, me.key(room_id, f"event:{id}"), raw, f"{type(error).__name__}: {error}")
        if event.get("type") != "m.room.message" or not room.is_direct:
            return lost
        said = (me.thread(room_id), me.key(room_id, id), id, event.get("sender"))
        return with_author(lost, lambda: make_unread(*said, private=True))


def _parse(event: Json, at: EventPlace) -> Message | None:
    sender, id, kind = str(event["sender"]), str(event["event_id"]), str(event["type"])
    content = dict_of(event.get("content"))
    relation, target, _replied = relation_of(content)
    topic = target if relation == "m.thread" else "" if at.room.is_direct else id
    if kind == "m.reaction":
        mark = text_of(dict_of(content.get("m.relates_to")).get("key"))
        at.rooms.events[id] = Known(sender, reacts_to=target, reaction=mark)
    elif kind == "m.room.redaction":
        gone = text_of(event.get("redacts")) or text_of(content.get("redacts"))
        at.rooms.redacted[gone] = True
        return _parse_redaction(event, gone, at)
    elif relation != "m.replace":
        at.rooms.events[id] = Known(sender, topic, sent=time_of(event))
    if sender == at.me.id or "state_key" in event or "redacted_because" in dict_of(event.get("unsigned")):
        return None
    if kind == "m.reaction":
        return _parse_reaction(event, target, at)
    if relation == "m.replace":
        return _parse_edit(event, content, target, at)
    if kind == "m.room.message" or kind in _OTHER or kind == "m.room.encrypted":
        return _parse_message(event, content, topic, at)
    return None


def _parse_message(event: Json, content: Json, topic: str, at: EventPlace) -> Message | None:
    kind, shape = str(event["type"]), text_of(content.get("msgtype"))
    text, mentioned = _text_without_mention(content, at.me)
    replied = relation_of(content)[2]
    answered = at.known(replied)
    to_bot = answered is not None and answered.sender == at.me.id
    files = () if kind != "m.room.message" else _files_of(content, shape, str(event["event_id"]))
    in_thread = relation_of(content)[0] == "m.thread"
    if answered and to_bot and not in_thread and not at.room.is_direct:
        topic, in_thread = answered.topic or topic, True
    unsupported = _OTHER.get(kind, "") or (UNREADABLE_ENCRYPTED if kind == "m.room.encrypted" else "")
    if at.room.encrypted and kind == "m.room.message" and event.get("decrypted") is not True:
        unsupported = NOT_ENCRYPTED  # whoever runs a server can write it in anybody's name
    if not unsupported and not files and shape not in _SPOKEN:
        unsupported = LOCATION if shape == "m.location" else N_("messages of this kind")
    others = _names_others(content, at.me)
    message = replace(
        _event_message(event, topic, at, bot=shape == "m.notice"),
        text=text,
        attachments=files,
        long=bool(files) and not text,  # the client sends files one by one
        reply_to=replied,
        to_bot=to_bot,
        addressed=at.room.is_direct or mentioned or to_bot,
        follow_up=in_thread and not (others or mentioned),
    )
    if unsupported:
        return replace(message, kind=Kind.UNSUPPORTED, text=unsupported, follow_up=False)
    if not (text or files):
        return None if not mentioned else message
    command = None if files else parse_command_text(text)
    return message if command is None else replace(message, kind=Kind.COMMAND, text=command)


def _event_message(event: Json, topic: str, at: EventPlace, *, bot: bool = False) -> Message:
    """Return what all messages of events have in common. The server's clock counts, but not for the future."""
    id, author = str(event["event_id"]), at.me.author(str(event["sender"]), at.room, bot=bot)
    sent, thread = min(time_of(event) or time.time(), time.time()), at.me.thread(at.id, topic)
    key = at.me.key(at.id, id)
    return Message(thread, key, id, author, "", sent, private=at.room.is_direct, origin=author.origin)


def _parse_edit(event: Json, content: Json, target: str, at: EventPlace) -> Message | None:
    """Read an edit. The server takes also those of other people's messages: only the author's own count."""
    known, new = at.known(target), dict_of(content.get("m.new_content"))
    if known is None or known.sender != event["sender"] or not new:
        return None
    text, mentioned = _text_without_mention(new, at.me)
    message = _event_message(event, known.topic, at)
    key, addressed = at.me.key(at.id, target), mentioned and adds_mention(message, known.sent)
    change = replace(message, kind=Kind.EDIT, key=f"{key}:edit:{message.id}", id=target, target=key, text=text)
    return replace(change, addressed=at.room.is_direct or addressed)


def _parse_redaction(event: Json, gone: str, at: EventPlace) -> Message | None:
    """Read that a message was deleted, or a reaction taken back."""
    known, key = at.known(gone), at.me.key(at.id, gone)
    if not gone or event.get("sender") == at.me.id:
        return None
    topic = known.topic if known and not known.reacts_to else ANYWHERE
    message = _event_message(event, topic, at)
    if known and known.reacts_to:
        mark = feedback_of(known.reaction)
        removed = replace(message, kind=Kind.FEEDBACK_REMOVED, text=mark, id=known.reacts_to, reply_to=known.reacts_to)
        return replace(removed, to_bot=True, addressed=False) if mark else None
    return replace(message, kind=Kind.DELETE, key=f"{key}:delete", id=gone, target=key)


def _parse_reaction(event: Json, target: str, at: EventPlace) -> Message | None:
    """Read a reaction to a message of the bot: ❌ stops its work, 👍 and 👎 are feedback, 1️⃣ answers a question.

    An answer is a click without its question, which `syncing` looks up.
    """
    known = at.known(target)
    if known is None or known.sender != at.me.id:
        return None
    mark = text_of(dict_of(dict_of(event.get("content")).get("m.relates_to")).get("key"))
    message = _event_message(event, known.topic, at)
    message = replace(message, id=target, reply_to=target, to_bot=True, addressed=False)
    if mark.rstrip("\ufe0f") == STOP_EMOJI:
        return replace(message, kind=Kind.COMMAND, text="stop")
    if feedback := feedback_of(mark):
        return replace(message, kind=Kind.FEEDBACK, text=feedback)
    if number := _KEYCAP.fullmatch(mark):
        return replace(message, kind=Kind.CLICK, text=number[1])
    return None


def answer_click(click: Message, content: Json) -> Message | None:
    """Return a click with the question of the message that it reacts to; None where that asks nothing of the kind."""
    question = dict_of(content.get(QUESTION))
    options, number = question.get("options"), int(click.text)
    if not isinstance(options, list) or number > len(options) or not text_of(question.get("id")):
        return None
    return replace(click, target=str(question["id"]), text=str(options[number - 1]))


def needs_lookup(event: Json) -> str:
    """Return the id of the event whose sender decides about this one, "" for none."""
    content = dict_of(event.get("content"))
    relation, target, replied = relation_of(content)
    mark = text_of(dict_of(content.get("m.relates_to")).get("key"))
    if event.get("type") == "m.reaction":
        relevant = mark.rstrip("\ufe0f") == STOP_EMOJI or feedback_of(mark) or _KEYCAP.fullmatch(mark)
        return target if relevant else ""
    return target if relation == "m.replace" else replied


def _text_without_mention(content: Json, me: MatrixAccount) -> tuple[str, bool]:
    """Return the text without a mention of the bot at its begin, and whether it is mentioned anywhere."""
    shape, body = text_of(content.get("msgtype")), text_of(content.get("body"))[:MAX_TEXT_CHARS]
    if shape in _FILES:
        name = text_of(content.get("filename"))
        body = body if name and name != body else ""
    if relation_of(content)[2]:
        body = _without_fallback(body)
    marks = dict_of(content.get("m.mentions"))
    named = marks.get("user_ids")
    mentioned = isinstance(named, list) and me.id in named
    if "m.mentions" not in content:  # of an old client
        mentioned = me.id in body or me.id in _PERSON_LINK.findall(text_of(content.get("formatted_body")))
    return _remove_mention(body, me).strip() if mentioned else body.strip(), mentioned


def _without_fallback(body: str) -> str:
    """Return a reply's text without the quote that old clients put before it."""
    quoted = _FALLBACK.match(body) if body.startswith("> <") else None
    return body[quoted.end() :] if quoted else body


def _remove_mention(text: str, me: MatrixAccount) -> str:
    local = me.id[1:].partition(":")[0]
    for name in sorted(filter(None, (me.id, me.name, f"@{me.name}" if me.name else "", f"@{local}", local)), key=len)[
        ::-1
    ]:
        begin = text.lstrip()
        if begin[: len(name)].casefold() == name.casefold() and not begin[len(name) : len(name) + 1].isalnum():
            return begin[len(name) :].lstrip(" \t:,：，")
    return text


def _names_others(content: Json, me: MatrixAccount) -> bool:
    marks = dict_of(content.get("m.mentions"))
    named = marks.get("user_ids")
    return marks.get("room") is True or (isinstance(named, list) and any(each != me.id for each in named))


def _files_of(content: Json, shape: str, id: str) -> tuple[Attachment, ...]:
    """Return the file of a message; that of an encrypted one has its keys in `ref`."""
    if shape not in _FILES:
        return ()
    info, sealed = dict_of(content.get("info")), dict_of(content.get("file"))
    ref = {"url": text_of(sealed.get("url"))} | {"file": sealed} if sealed else {"url": text_of(content.get("url"))}
    name = text_of(content.get("filename")) or text_of(content.get("body"))
    file = attached_file(_FILES[shape], orjson.dumps(ref).decode(), name[:255], id, 0)
    size, mime = info.get("size"), text_of(info.get("mimetype"))
    is_size = isinstance(size, int) and size >= 0
    return (replace(file, size=size if is_size else None, mime=mime[:100] or file.mime),)
