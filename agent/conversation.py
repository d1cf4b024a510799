"""The words that cross borders: Thread, Message, Attachment and every Block.

This module is at the bottom of the project. A channel turns a platform event into a
`Message` in a `Thread`; the agent answers it with `Block`s; a `View` is the fold of a reply's blocks, and `Final` is
what is left of it in the chat when the turn is over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal
from urllib.parse import quote, unquote

import orjson

from agent.setting import Secret as Secret
from agent.stored import build, reading

# ---------------------------------------------------------------- who and where


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


# ---------------------------------------------------------------- what comes in


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
        with reading():
            raw: dict[str, Any] = orjson.loads(data)
            return build(
                cls,
                raw,
                thread=build(Thread, raw["thread"]),
                author=build(Author, raw["author"]),
                kind=Kind(raw["kind"]),
                attachments=tuple(build(Attachment, each) for each in raw["attachments"]),
                quotes=tuple(build(Quote, each) for each in raw["quotes"]),
            )


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An event that could not be parsed: kept as a dead letter, so that it neither blocks nor disappears."""

    channel: str
    key: str
    raw: bytes
    error: str


# ---------------------------------------------------------------- what goes out: blocks


@dataclass(frozen=True, slots=True)
class Text:
    """Assistant text. `part` names the model message it belongs to; `replace` sets that part's text to `delta`
    (an empty replacement takes back what a broken stream had shown)."""

    delta: str
    part: str = ""
    replace: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """A tool call (later a sub-agent, a skill) as a person sees it; the same id again updates it."""

    id: str
    title: str
    state: Literal["running", "done", "failed", "stopped"] = "running"
    detail: str = ""


@dataclass(frozen=True, slots=True)
class PlanItem:
    title: str
    state: Literal["pending", "running", "done"] = "pending"


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole plan; a later one replaces it."""

    items: tuple[PlanItem, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to the person. `id` is what a click or an answer carries back."""

    id: str
    question: str
    options: tuple[str, ...] = ()
    free_text: bool = True

    def choice(self, text: str) -> str | None:
        """The option that `text` means: its words, or its number."""
        said = text.strip().casefold()
        numbered = {str(number): option for number, option in enumerate(self.options, 1)}
        return next((option for option in self.options if option.casefold() == said), numbered.get(said))


@dataclass(frozen=True, slots=True)
class Approve:
    """A tool call that waits for a person: `action` in a few words, `detail` the exact call."""

    id: str
    action: str
    detail: str = ""

    def ask(self) -> Ask:
        """The question that is put to the person."""
        return Ask(self.id, f"{self.action}\n\n{self.detail}".strip(), ("Approve", "Deny"), free_text=False)


@dataclass(frozen=True, slots=True)
class File:
    """A file the agent wants to hand over: `path` as the agent sees it (below /mnt/user-data/outputs)."""

    path: str
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something a person should know while they wait: a retry, a fallback, a queue, a limit."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The turn (or a part of it) failed: what happened and what the person can do about it."""

    what: str
    what_to_do: str = ""

    def __str__(self) -> str:
        return f"{self.what} {self.what_to_do}".strip()


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one turn, all model calls added."""

    input: int = 0
    output: int = 0
    cached: int = 0
    calls: int = 0


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a turn. `waiting`: an Ask or Approve is open; `stopped`: somebody pressed stop."""

    state: Literal["done", "waiting", "stopped", "failed"] = "done"
    usage: Usage = field(default_factory=Usage)


Block = Text | Step | Plan | Ask | Approve | File | Notice | Failed | Done


# ---------------------------------------------------------------- what a reply shows


@dataclass(frozen=True, slots=True)
class Final:
    """What stays in the chat when a turn is over: Markdown `text` (with the question, when there is only one), and the
    open questions.

    `mention` is the platform user id of a person whom this message shall reach: shown as a native mention before the
    text (or nothing, where a direct message reaches them anyway).
    """

    text: str
    asks: tuple[Ask, ...] = ()
    mention: str = ""

    def messages(self) -> list[tuple[str, Ask | None]]:
        """Markdown and question of each message. Several questions have one each: each keeps its own buttons."""
        if len(self.asks) <= 1:
            return [(self.text, self.asks[0] if self.asks else None)]
        return [(self.text, None), *((f"**{n}.** {ask.question}", ask) for n, ask in enumerate(self.asks, 1))]

    def dump(self) -> bytes:
        """JSON for the outbox."""
        return orjson.dumps(self)

    @classmethod
    def load(cls, data: bytes | str) -> Final:
        """The inverse of `dump`, also of a newer version's. Raises Damaged."""
        with reading():
            raw: dict[str, Any] = orjson.loads(data)
            return build(cls, raw, asks=tuple(build(Ask, ask) for ask in raw.get("asks", ())))


SEVERAL = "_I have {n} questions. Press a button under each, or answer by number, such as `2: yes`._"
SILENCE = "I have nothing to add: the model gave no answer. Ask again, or put it differently."


@dataclass(slots=True)
class View:
    """The fold of a reply's blocks: what it shows at this moment."""

    texts: dict[str, str] = field(default_factory=dict)  # part → text, in order of appearance
    steps: dict[str, Step] = field(default_factory=dict)
    plan: Plan | None = None
    notice: Notice | None = None  # only the latest is shown, and only until work goes on
    asks: list[Ask | Approve] = field(default_factory=list)
    files: list[File] = field(default_factory=list)
    failed: Failed | None = None
    done: Done | None = None

    def add(self, block: Block) -> None:
        """Take one block into account."""
        match block:
            case Text():
                before = "" if block.replace else self.texts.get(block.part, "")
                self.texts[block.part] = before + block.delta
                if block.delta:
                    self.notice = None
            case Step():
                self.steps[block.id] = block
                self.notice = None
            case Plan():
                self.plan = block
            case Ask() | Approve():
                self.asks.append(block)
            case File():
                if block not in self.files:  # a call may be told of again after a crash
                    self.files.append(block)
            case Notice():
                self.notice = block
            case Failed():
                self.failed = block
            case Done():
                self.done = block

    @property
    def text(self) -> str:
        """The latest text with something in it: while a turn runs, and as the answer when it is over."""
        return next((t for t in reversed(self.texts.values()) if t.strip()), "")

    @property
    def empty(self) -> bool:
        """Nothing in it that a person could see."""
        return not (self.text or self.steps or self.plan or self.notice or self.asks or self.failed)

    def final(self) -> Final:
        """What stays: the answer, or the question, or why there is none. Steps and plans are folded away."""
        asks = tuple(block.ask() if isinstance(block, Approve) else block for block in self.asks)
        parts = [self.text.strip(), SEVERAL.format(n=len(asks)) if len(asks) > 1 else asks[0].question if asks else ""]
        if self.done and self.done.state == "stopped":
            parts.append("_Stopped._")
        if self.failed:
            parts.append(f"⚠️ {self.failed}")
        text = "\n\n".join(part for part in parts if part)
        if not text:
            text = "" if self.files else SILENCE
        return Final(text, asks)
