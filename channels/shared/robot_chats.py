"""Read what comes to the robot of an office platform, as DingTalk and WeCom have it.

Its chats are groups, by their id, and direct chats: "@" and the id of the person. In groups, a robot receives only
messages that mention it. A press has no id of its own.
"""

from __future__ import annotations

import hashlib
import re
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from agent.messages import Attachment, Author, Kind, Message, Origin, Quote, Thread, Unreadable
from channels.base import NO_CATCH_UP, CatchUpSource, Readiness, Receive, parse_command_text
from channels.shared.event_connection import EventConnection
from channels.shared.http_client import HttpClient
from channels.shared.inbound import InboundPipeline
from channels.shared.platform_channel import PlatformChannel
from channels.shared.visible_text import with_author

MAX_QUOTE_CHARS = 4_000
Family = Literal["file", "image", "audio", "video"]
NAMES: Mapping[Family, tuple[str, str]] = {  # of files that come without one, and the type of their content
    "image": ("image_{}.png", "image/png"),
    "audio": ("voice_{}.amr", "audio/amr"),
    "video": ("video_{}.mp4", "video/mp4"),
    "file": ("file_{}", "application/octet-stream"),
}


@dataclass(frozen=True, slots=True)
class RobotAccount:
    """A robot: its id on the channel, its name in mentions, and the language of the brand ("": unknown)."""

    channel: str
    id: str
    name: str
    language: str = ""

    def thread(self, chat: str) -> Thread:
        return Thread(self.channel, self.id, chat)

    def key(self, id: str) -> str:
        return f"{self.channel}:{self.id}:{id}"

    def author(self, person: str, name: str = "", *, guest: bool = False) -> Author:
        return Author(person, name or person, guest=guest, language=self.language)


class RobotChannel(PlatformChannel):
    """A channel of one robot, which cannot read a history: each event is stored until that succeeds."""

    def __init__(self, http: HttpClient, connection: EventConnection[Any], me: RobotAccount) -> None:
        super().__init__(http)
        self._connection = connection
        self._me = me
        self._pipeline = InboundPipeline(
            me.channel, self._background, apologize=self._apologize, show_working=self._show_working
        )

    @abstractmethod
    async def _store_event(self, *event: Any) -> object:
        """Parse and store an event as it comes over the connection; return the answer to it."""

    @abstractmethod
    async def _apologize(self, message: Message, text: str) -> None:
        """Say why a message cannot be stored."""

    @abstractmethod
    async def _show_working(self, message: Message) -> None:
        """Begin to work on an accepted message."""

    async def listen(self, receive: Receive, catch_up: CatchUpSource = NO_CATCH_UP) -> None:
        self._pipeline.receive = receive
        await self._connection.run(self._store_event)

    def _connection_readiness(self) -> Readiness:
        return self._connection.health.now

    def spell_command(self, thread: Thread, command: str) -> str:
        """In groups, a robot receives only messages that mention it."""
        return f"@{self._me.name} /{command}" if is_group(thread) else f"/{command}"


def is_group(thread: Thread) -> bool:
    """Return whether the chat is a group."""
    return not thread.chat.startswith("@")


def read_event(
    raw: bytes,
    me: RobotAccount,
    id_field: str,
    parse: Callable[[Any], Message | None],
    unread: Callable[[Any], Message | None],
) -> Message | Unreadable | None:
    """Read one event; one of an unknown shape is Unreadable, because it must not stop the others.

    `unread` makes a message of its ids, if it was one for the robot.
    """
    event: Any = None
    try:
        event = orjson.loads(raw)
        return parse(event)
    except Exception as error:  # noqa: BLE001 — the boundary of one event
        id = event.get(id_field) if isinstance(event, dict) else None
        key = me.key(f"event:{id or hashlib.blake2b(raw, digest_size=16).hexdigest()}")
        lost = Unreadable(me.channel, key, raw, f"{type(error).__name__}: {error}")
        return with_author(lost, lambda: unread(event))


def attached_file(family: Family, ref: str, given: object, message_id: str, index: int) -> Attachment:
    """Return a file of a message; without a given name, it is named after the message."""
    name, mime = NAMES[family]
    short = re.sub(r"\W", "", message_id)[-6:] + (f"_{index}" if index else "")
    return Attachment(ref, str(given or name.format(short)), mime, None, family)


def make_quotes(said: str, files: Sequence[Attachment], author_id: str = "", *, member: bool = False) -> list[Quote]:
    """Return the quoted words, or that they cannot be read; files alone need no words."""
    if said:
        return [Quote("somebody", said[:MAX_QUOTE_CHARS], author_id=author_id, member=member)]
    return [] if files else [Quote("", "", "unread")]


def make_message(
    me: RobotAccount,
    thread: Thread,
    author: Author,
    id: str,
    said: tuple[str, Sequence[Attachment]],
    *,
    kind: str,
    known: Collection[str],
    at: float,
    quotes: Sequence[Quote] = (),
    **more: Any,
) -> Message:
    """Return a message with these words and files. One of a kind that is not `known` is unsupported."""
    text, files = said
    command = None if files else parse_command_text(text)
    message_kind = Kind.CHAT if command is None else Kind.COMMAND
    if kind not in known:
        message_kind, text = Kind.UNSUPPORTED, f"“{kind}” messages"
    return Message(
        thread=thread,
        key=me.key(id),
        author=author,
        text=text if command is None else command,
        time=at,
        kind=message_kind,
        attachments=tuple(files),
        quotes=tuple(quotes),
        long=not text and bool(files),  # the client sends files one by one
        private=not is_group(thread),
        origin=Origin.PERSON,
        id=id,
        **more,
    )


def make_click(me: RobotAccount, thread: Thread, author: Author, card: str, ask: str, option: str) -> Message:
    """Return a pressed button. A second press of a person on one button of a card is the same event."""
    digest = hashlib.blake2b(option.encode(), digest_size=8).hexdigest()
    return Message(
        thread=thread,
        key=me.key(f"click:{card}:{author.id}:{digest}"),
        id=card,
        author=author,
        text=option,
        time=time.time(),
        kind=Kind.CLICK,
        target=ask,
        private=not is_group(thread),
        to_bot=True,
        reply_to=card,
        origin=Origin.PERSON,
    )
