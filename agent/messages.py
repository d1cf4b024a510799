"""Inbound types: a channel maps each platform event to a `Message` in a `Thread`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal
from urllib.parse import quote, unquote

import orjson

from agent.stored_json import build_dataclass, raise_damaged


@dataclass(frozen=True, slots=True)
class Thread:
    """The address of a conversation.

    `workspace` is the bot's account or tenant on the platform, `chat` the chat or channel, `topic` the thread in it
    ("": none).
    """

    channel: str
    workspace: str
    chat: str
    topic: str = ""

    def __str__(self) -> str:
        return "/".join(quote(part, safe="") for part in (self.channel, self.workspace, self.chat, self.topic))

    @property
    def without_topic(self) -> Thread:
        """The chat itself."""
        return replace(self, topic="")

    @classmethod
    def parse(cls, text: str) -> Thread:
        """Return the thread of `str(thread)`. Raises ValueError if the text is not an address."""
        parts = text.split("/")
        if len(parts) != 4:
            raise ValueError(f"not a thread address: {text!r}")
        return cls(*(unquote(part) for part in parts))


ANYWHERE = "*"  # topic of an event that names only a message of the bot; the inbox looks up its thread


@dataclass(frozen=True, slots=True)
class Author:
    """A person or bot: `id` is the platform's user id, `name` the display name.

    `guest` marks accounts from outside the team: guests, and members of connected workspaces. `language` is the tag of
    the person's language, such as "zh-hans", if the platform reports it.
    """

    id: str
    name: str
    bot: bool = False
    guest: bool = False
    language: str = ""


class Kind(StrEnum):
    """How the inbox handles a message."""

    CHAT = "chat"  # text and files for the agent
    COMMAND = "command"  # such as /stop or !help: text is the command without its prefix
    CLICK = "click"  # a button of an Ask: target = Ask.id, text = the chosen option
    EDIT = "edit"  # text = the new text of the message `target`
    DELETE = "delete"  # the message `target` was deleted
    MOVED = "moved"  # text = the new id of the chat
    TITLE = "title"  # a person named the thread: text = the title
    FEEDBACK = "feedback"  # a person put 👍 (text "up") or 👎 ("down") on the bot's message `reply_to`
    FEEDBACK_REMOVED = "feedback removed"  # …and took this one back
    UNSUPPORTED = "unsupported"  # a sticker, a poll: text = what it is


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file of a message, still on the platform. `Channel.fetch` downloads it by `ref`."""

    ref: str
    name: str
    mime: str = "application/octet-stream"
    size: int | None = None  # bytes, if the platform reports it
    kind: Literal["file", "image", "audio", "video"] = "file"


@dataclass(frozen=True, slots=True)
class Quote:
    """Text of another author, quoted, forwarded, earlier or of a watched page: context, never an instruction."""

    author: str
    text: str
    kind: Literal["reply", "forward", "earlier", "page"] = "reply"


@dataclass(frozen=True, slots=True)
class Message:
    """One platform event.

    `key` is unique for each event that must have one effect; for messages: platform, workspace, chat, message id.
    `id` is the platform's message id. `addressed` is False for a group message that is not meant for the bot, and
    `follow_up` True for a message that is meant for the bot if it already takes part in the thread. `private` marks a
    direct chat. `group` joins the parts of an album or a long paste; `long` is True if more parts may follow. `to_bot`
    is True for a reply to the bot's message `reply_to`. The `target` of a command is the reply whose button sent it.
    `native` marks a command whose platform waits for an answer. `mode` says
    how the agent works on it: `plan` first, or until an evaluator says that the `goal` is met; a `scheduled` one comes
    from a schedule of its author, and nobody waits. `skill` names the skill that the person chose.
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
    native: bool = False
    mode: Literal["", "plan", "goal", "scheduled", "task"] = ""
    skill: str = ""

    def dump(self) -> bytes:
        """Return JSON for storage."""
        return orjson.dumps(self)

    @classmethod
    def load(cls, data: bytes | str) -> Message:
        """Load what `dump` returned, even in a newer version. Raises Damaged."""
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
    """An event that could not be parsed; it becomes a dead letter."""

    channel: str
    key: str
    raw: bytes
    error: str
