"""Inbound types: a channel turns each platform event into a `Message` in a `Thread`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal
from urllib.parse import quote, unquote

import orjson

from agent.stored_json import build_dataclass, raise_damaged


@dataclass(frozen=True, slots=True)
class Thread:
    """The typed address of a conversation. Every outgoing call takes one.

    `workspace` is the bot's account or tenant on the platform, `chat` the chat or channel, `topic` the thread inside
    it ("" where there is none).
    """

    channel: str
    workspace: str
    chat: str
    topic: str = ""

    def __str__(self) -> str:
        return "/".join(quote(part, safe="") for part in (self.channel, self.workspace, self.chat, self.topic))

    @classmethod
    def parse(cls, text: str) -> Thread:
        """The inverse of `str(thread)`. Raises ValueError when the text is not an address."""
        parts = text.split("/")
        if len(parts) != 4:
            raise ValueError(f"not a thread address: {text!r}")
        return cls(*(unquote(part) for part in parts))


ANYWHERE = "*"  # the topic of an event that names only a message of the bot: the inbox knows where that is


@dataclass(frozen=True, slots=True)
class Author:
    """A person (or bot) of a platform: `id` is the platform's own user id, `name` what people see.

    `guest` marks somebody from outside the team (a guest account, a person of a connected workspace).
    """

    id: str
    name: str
    bot: bool = False
    guest: bool = False


class Kind(StrEnum):
    """What a message is to the inbox."""

    CHAT = "chat"  # text and files for the agent
    COMMAND = "command"  # "/stop", "!help": text starts with the bare word, no prefix
    CLICK = "click"  # an answer to an Ask by button: target = Ask.id, text = the chosen option
    EDIT = "edit"  # new text of the message `target`
    DELETE = "delete"  # the message `target` is gone
    MOVED = "moved"  # the chat has a new id: text = the new chat id
    UNSUPPORTED = "unsupported"  # a sticker, a poll: text = what it is; answered in a sentence


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that came with a message and is still on the platform. `ref` is what `Channel.fetch` needs."""

    ref: str
    name: str
    mime: str = "application/octet-stream"
    size: int | None = None  # bytes, where the platform tells
    kind: Literal["file", "image", "audio", "video"] = "file"


@dataclass(frozen=True, slots=True)
class Quote:
    """Somebody else's words that came along: quoted, forwarded or earlier in the thread. Context, never authority."""

    author: str
    text: str
    kind: Literal["reply", "forward", "earlier"] = "reply"


@dataclass(frozen=True, slots=True)
class Message:
    """One event from a platform, in our words.

    `key` is unique per platform event that must have one effect: for messages (platform, workspace, chat, message id).
    `id` is the platform's message id. `addressed` is False for a message in a group that was not meant for the bot.
    `private` marks a direct chat. `follow_up` marks a message in a thread that is meant for the bot if the bot takes
    part in that thread already. `group` ties pieces (an album, a long paste) together; `long` says that more of it may
    follow: the platform may have split the text here, or sends files one by one. `to_bot` is True when it replies to a
    message of the bot (then `reply_to` names it).
    """

    thread: Thread
    key: str
    id: str
    author: Author
    text: str
    time: float
    kind: Kind = Kind.CHAT
    attachments: tuple[Attachment, ...] = ()
    quotes: tuple[Quote, ...] = ()
    reply_to: str = ""
    to_bot: bool = False
    group: str = ""
    long: bool = False
    target: str = ""
    private: bool = False
    addressed: bool = True
    follow_up: bool = False

    def dump(self) -> bytes:
        """JSON for the store."""
        return orjson.dumps(self)

    @classmethod
    def load(cls, data: bytes | str) -> Message:
        """The inverse of `dump`, also of a newer version's. Raises Damaged."""
        with raise_damaged():
            raw: dict[str, Any] = orjson.loads(data)
            return build_dataclass(
                cls,
                raw,
                thread=build_dataclass(Thread, raw["thread"]),
                author=build_dataclass(Author, raw["author"]),
                kind=Kind(raw["kind"]),
                attachments=tuple(build_dataclass(Attachment, each) for each in raw["attachments"]),
                quotes=tuple(build_dataclass(Quote, each) for each in raw["quotes"]),
            )


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An event that could not be parsed: kept as a dead letter, so that it neither blocks nor disappears."""

    channel: str
    key: str
    raw: bytes
    error: str
