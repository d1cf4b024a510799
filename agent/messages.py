"""Inbound types: a channel maps each platform event to a `Message` in a `Thread`.

Carry what a person gives the agent: a message with its files.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import quote, unquote

import orjson

from agent.stored_json import build_dataclass, raise_damaged


@lru_cache(maxsize=4096)  # a turn writes the same few addresses some forty times
def _quoted(part: str) -> str:
    return quote(part, safe="")


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
        return "/".join(map(_quoted, (self.channel, self.workspace, self.chat, self.topic)))

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


class Origin(StrEnum):
    """Who made up the words of a message. Only those of a person are ever taken for what its author said."""

    PERSON = "person"  # its author, a person
    BOT = "bot"  # its author, another bot of the platform
    TOOL = "tool"  # the agent: what it does when a command that it began has ended
    TASK = "task"  # the agent: the request to a background agent
    SCHEDULE = "schedule"  # the agent, confirmed by the author: a schedule is due
    HOOK = "hook"  # another system: an event without a person
    SYSTEM = "system"  # the service, such as the answer to a question that has expired


Mode: TypeAlias = Literal["", "plan", "goal"]


HOOK_ID = "hook:"  # begins the id of a hook that works with a role of its own; no platform has such ids


def platform_person(id: str) -> str:
    """Return the id of a person as their platform knows it; "" for a hook with a role of its own."""
    return "" if id.startswith(HOOK_ID) else id


# Of the bidirectional algorithm (unicode.org/reports/tr9): they turn the words behind a name round, too.
_DIRECTION_MARKS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def shown_name(name: str) -> str:
    """Return a name as it is safely shown: on one line, without what would change the text around it."""
    if name.isascii() and name.isprintable():
        return name
    return " ".join(re.sub("[\x00-\x20\x7f-\x9f]", " ", _DIRECTION_MARKS.sub("", name)).split())


@dataclass(frozen=True, slots=True)
class Author:
    """A person or bot: `id` is the platform's user id, `name` the display name as it is safely shown.

    `guest` marks accounts from outside the team: guests, and members of connected workspaces. `language` is the tag of
    the person's language, such as "zh-hans", if the platform reports it.
    """

    id: str
    name: str
    bot: bool = False
    guest: bool = False
    language: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", shown_name(self.name) or (self.id if self.name else ""))

    @property
    def origin(self) -> Origin:
        """The origin of what this author wrote on a platform."""
        return Origin.BOT if self.bot else Origin.PERSON


@dataclass(frozen=True, slots=True)
class Requester:
    """For whom something is done, and where they asked for it. `private` marks a direct chat with the bot."""

    person: Author
    thread: Thread
    private: bool = False


class Kind(StrEnum):
    """How the inbox handles a message."""

    CHAT = "chat"  # text and files for the agent
    COMMAND = "command"  # such as /stop or !help: text is the command without its prefix
    CLICK = "click"  # a button of an Ask: target = Ask.id, text = the chosen option
    PRESS = "press"  # a click that the bot itself answers, as the inbox keeps it: text = the number of the option
    EDIT = "edit"  # text = the new text of the message `target`
    DELETE = "delete"  # the message `target` was deleted
    MOVED = "moved"  # text = the new id of the chat
    TITLE = "title"  # a person named the thread: text = the title
    FEEDBACK = "feedback"  # a person put 👍 (text "up") or 👎 ("down") on the bot's message `reply_to`
    FEEDBACK_REMOVED = "feedback removed"  # …and took this one back
    HOME = "home"  # a person opened the bot's own page
    INVITE = "invite"  # a person invites the bot into the chat: ACCEPTED says that it may enter
    UNDELIVERED = "undelivered"  # the platform took the bot's message `reply_to` and did not deliver it: text = why
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
    """Text of another author, quoted, forwarded, earlier, of a watched page or of what the platform shows of a link:
    context, never an instruction. So is a prompt of an MCP server, which a person chose; the server is its author.

    `author` is a name; `author_id` is the platform's user id, "" where the platform does not say it. `id` is the
    platform's id of an earlier message. A quote of kind "unread" stands for what the platform did not show. One
    of kind "posted" is what the service posted beside the conversation, and its author the task or schedule. One of
    kind "view" names the chat that the author of the message was looking at, as the platform says (`id`), and "viewed"
    are the latest messages there. One of kind "hook" is what another system posted. One of kind "omitted" stands for
    earlier messages of the thread that are left out here: how many, "" where that is unknown.

    `member`: all of the text was written by a person of the team who may talk to the agent there. As a channel makes
    it, nobody from outside the team and no bot wrote it; the inbox knows who may talk.
    """

    author: str
    text: str
    kind: Literal[
        "reply", "forward", "earlier", "page", "link", "prompt", "unread", "posted", "view", "viewed", "hook", "omitted"
    ] = "reply"
    author_id: str = ""
    id: str = ""
    member: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "author", shown_name(self.author))


def omitted(count: int | None) -> Quote:
    """Return the note that earlier messages are left out; None for an unknown number of them."""
    return Quote("", "" if count is None else str(count), "omitted")


NOTES = frozenset({"unread", "view", "omitted"})  # kinds of quotes without words of others


@dataclass(frozen=True, slots=True)
class ReplyHandle:
    """What a platform gives with an event to answer it by, until a Unix time. Only its channel reads the token.

    One `of_chat` serves every message of the bot in the chat, until an event there brings the next one.
    """

    token: str = field(repr=False)
    until: float
    of_chat: bool = False

    @property
    def current(self) -> str:
        """The token; "" once it has ended."""
        return self.token if time.time() < self.until else ""


@dataclass(frozen=True, slots=True)
class Message:
    """One platform event.

    An edit is `addressed` outside of direct chats where it mentions the bot and may be the first that the bot gets.
    `key` is unique for each event that must have one effect; for messages: platform, workspace, chat, message id.
    `id` is the platform's message id. `addressed` is False for a group message that is not meant for the bot, and
    `follow_up` True for a message that is meant for the bot if it already takes part in the thread. `fleeting` is True
    for a message of a group whose platform has no history: who does not keep it cannot read it later. `private` marks a
    direct chat. `group` joins the parts of an album or a long paste; `long` is True if more parts may follow. `to_bot`
    is True for a reply to the bot's message `reply_to`. The `target` of a command is the reply whose button sent it.
    `native` marks a command whose platform waits for an answer. `mode` says
    how the agent works on it: `plan` first, or until an evaluator says that the `goal` is met. `skill` names the skill
    that the person chose. `origin` says whose words these are, and every writer names it; if they are not the author's,
    the author is the person for whom the agent works. `root` is the key of the person's message (or of the time of a
    schedule) that led to this one, "" for itself, and `generation` how many steps lie between them. `resent_by` is the
    id of the person who had it repeated. `worker` is the kind of sub-agent that works on a background task.
    `bound_by` are the ids of people without whose rights the agent may not work on it. `named` are people whom its text
    mentions by the platform's own mentions, where the text has only their names. `chat_name` is the title of its group,
    if the platform says it with the event. The inbox keeps `reply_handle` apart
    from the message, and hands it to the replies (`channels.base.SentMessages`).
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
    fleeting: bool = False
    native: bool = False
    mode: Mode = ""
    skill: str = ""
    resent_by: str = ""
    root: str = ""
    generation: int = 0
    worker: str = ""
    bound_by: tuple[str, ...] = ()
    named: tuple[Author, ...] = ()
    chat_name: str = ""
    reply_handle: ReplyHandle | None = field(default=None, repr=False)
    if TYPE_CHECKING:  # every writer of Fawn's own names it
        origin: Origin = field(kw_only=True)
    else:  # a channel of an operator may be older than this field: whose words they are, its author says
        origin: Origin = field(kw_only=True, default=None)

        def __post_init__(self) -> None:
            if self.origin is None:
                object.__setattr__(self, "origin", self.author.origin)

    @property
    def people(self) -> tuple[str, ...]:
        """The ids of those for whom the agent works on it: a run has the rights that all of them have."""
        return tuple(dict.fromkeys(filter(None, (self.author.id, self.resent_by, *self.bound_by))))

    @property
    def payer(self) -> str:
        """The id of the person whose budgets pay for the work on it: who had it repeated, or its author."""
        return self.resent_by or self.author.id

    @property
    def is_by_author(self) -> bool:
        """Whether its author, a person or another bot, wrote it."""
        return self.origin in (Origin.PERSON, Origin.BOT)

    @property
    def may_answer(self) -> bool:
        """Whether it can answer a question: words of its author, and no request by the name of a skill or prompt."""
        return self.is_by_author and not self.skill and not any(quote.kind == "prompt" for quote in self.quotes)

    @property
    def is_by_person(self) -> bool:
        """Whether a person wrote this: it may be remembered, quoted, and shown as what its author said."""
        return self.origin is Origin.PERSON and not self.author.bot

    def dump(self) -> bytes:
        """Return JSON for storage, without the handle, which is a secret."""
        return orjson.dumps(self if self.reply_handle is None else replace(self, reply_handle=None))

    @classmethod
    def load(cls, data: bytes | str) -> Message:
        """Load what `dump` returned, even in a newer version. Raises Damaged."""
        with raise_damaged():
            raw: dict[str, Any] = orjson.loads(data)
            raw |= {"origin": Origin(raw["origin"])} if "origin" in raw else _origin_before(raw)
            return build_dataclass(
                cls,
                raw,
                thread=build_dataclass(Thread, raw["thread"]),
                author=build_dataclass(Author, raw["author"]),
                kind=Kind(raw["kind"]),
                attachments=tuple(build_dataclass(Attachment, each) for each in raw["attachments"]),
                quotes=tuple(build_dataclass(Quote, each) for each in raw["quotes"]),
                bound_by=tuple(map(str, raw.get("bound_by", ()))),
                named=tuple(build_dataclass(Author, each) for each in raw.get("named", ())),
            )


_OLD_MODES = {"scheduled": Origin.SCHEDULE, "task": Origin.TASK}
_OLD_KEYS = {"sched:": Origin.SCHEDULE, "task:": Origin.TOOL, "expired:": Origin.SYSTEM}


def _origin_before(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return origin and mode of a message that was stored without an origin: a mode or its key told it."""
    if raw.get("mode") in _OLD_MODES:
        return {"origin": _OLD_MODES[raw["mode"]], "mode": ""}
    known = (origin for beginning, origin in _OLD_KEYS.items() if raw["key"].startswith(beginning))
    return {"origin": next(known, Origin.BOT if raw["author"]["bot"] else Origin.PERSON)}


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An event that could not be parsed; it becomes a dead letter. `said` tells its author, if it was for the bot."""

    channel: str
    key: str
    raw: bytes
    error: str
    said: Message | None = None


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """A file of a message: its path for the agent, or why it was refused."""

    name: str
    path: str = ""  # in the sandbox, "" if refused
    size: int = 0  # bytes
    refused: str = ""  # e.g. "exceeds the 20 MB download limit"
    about: str = ""  # what it is, such as "PDF, 12 pages"
    picture: str = ""  # the path of the scaled picture for models that see
    transcript: str = ""  # the words of a voice message
    notice: str = ""  # what the chat is told about it


@dataclass(frozen=True, slots=True)
class UserInput:
    """One message for the agent, with its files."""

    message: Message
    uploads: tuple[UploadedFile, ...] = ()
