"""The channel protocols, with the errors and limits every platform works with.

A channel imports `agent.messages`, `agent.blocks`, `agent.secret`, `channels.shared` and this file, nothing else of
Fawn. Its module `channels/NAME/` gives three things: `Settings`, the dataclass that the section `channels: {NAME: …}`
of config.yaml is parsed into (no SDK is imported for it); `connect(settings)`, an async context manager that gives a
`Channel`; and `probe(settings)`, one look at the account for `fawn check` that gives a sentence ("connected as @fawn
in Acme") or raises Refused with what to do about it.

    ChannelError
    ├── TryLater     the platform asked to wait, or could not be reached: nothing was shown, try again after a while
    ├── Unknown      the call went out and no answer came: it may or may not be visible
    └── Refused      the platform said no, for good
        ├── Unconfirmed  it was posted as often as it may be, and no answer ever came
        └── Gone     …because the chat is gone or the bot was blocked: nothing will ever be shown there
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from agent.blocks import Block, Final
from agent.messages import Attachment, Message, Thread, Unreadable


class ChannelError(Exception):
    """A platform call failed."""


class TryLater(ChannelError):
    """The platform could not take it now; `after` is the wait in seconds that it asked for (or a guess)."""

    def __init__(self, reason: str, after: float = 1.0) -> None:
        super().__init__(reason)
        self.after = after


class OutcomeUnknown(ChannelError):
    """The call was sent and its outcome is unknown: the platform may have shown it."""


class Refused(ChannelError):
    """The platform refused this call for good."""


class Unconfirmed(Refused):
    """Every post of it had an unknown outcome: it may be visible, and is not posted again."""


class ChatGone(Refused):
    """The chat does not exist any more, or the bot was blocked or removed: stop trying."""


class NotStored(Exception):
    """The inbox could not store an event (disk full, database locked): do not acknowledge it, offer it again."""


class Receipt(StrEnum):
    """What became of an event that was offered to the inbox."""

    ACCEPTED = "accepted"  # stored: it will get its answer
    DUPLICATE = "duplicate"  # already known
    IGNORED = "ignored"  # not for us, or from somebody who may not talk to us


Receive = Callable[[Sequence[Message | Unreadable]], Awaitable[list[Receipt]]]
"""Offer events to the inbox. Returns after the commit, one receipt per event in order. Raises NotStored."""


@dataclass(frozen=True, slots=True)
class ChannelLimits:
    """What a platform allows. Sizes in bytes, `text_limit` in the platform's own units."""

    text_limit: int
    upload: int
    download: int
    edits_notify: bool = False  # people notice the end of a reply by themselves: nobody need be pinged


@dataclass(frozen=True, slots=True)
class SentMessage:
    """One message of a reply: `id` is the platform's message id, None when `posts` went out with unknown outcome."""

    index: int
    id: str | None
    posts: int = 1


class SentMessages(Protocol):
    """The memory of a reply's messages, kept in the store so that a restart edits instead of posting again.

    Before every post that carries content: `await sending(i)`; as soon as its id is known: `await sent(i, id)`; when
    the platform did not take this post (TryLater, Refused): `await unsent(i)`. After a crash between the first two,
    `known` has an entry with id None, which counts such posts: post it again, marked as a possible repeat (or with the
    same `key` where posts are idempotent), until they are too many (Unconfirmed). Edits need none of this.
    """

    key: str  # stable for the life of the reply, at most 20 characters of [a-z0-9-]: an idempotency key's stem

    @property
    def known(self) -> Sequence[SentMessage]: ...

    async def sending(self, index: int) -> None: ...

    async def sent(self, index: int, message_id: str) -> None: ...

    async def unsent(self, index: int) -> None: ...


def first_sent_message(posts: SentMessages) -> SentMessage | None:
    """What is known of the first message, which of a file is the only one."""
    return next((posted for posted in posts.known if posted.index == 0), None)


class Reply(Protocol):
    """One reply that grows in place, in its thread."""

    def show(self, block: Block) -> None:
        """Take a block into the picture; returns at once, the writer shows it at the platform's pace."""

    async def finish(self, final: Final) -> None:
        """Make exactly `final` visible. Safe to call again after an error (what is shown is edited, not repeated).
        Raises ChannelError."""

    async def close(self) -> None:
        """Stop writing and leave what is shown as it is (a parked turn is taken up again after a restart)."""


@dataclass(frozen=True, slots=True)
class OutgoingFile:
    """A file on its way out: a private copy at `path`, shown as `name`."""

    path: Path
    name: str
    size: int
    caption: str = ""


_COMMAND = re.compile(
    r"\s*(?:(?P<slash>/+)(?P<name>[A-Za-z][\w-]*)?|!(?P<bang>[A-Za-z][\w-]*))(?:@(?P<bot>\w+))?(?:\s+(?P<rest>.*))?\s*",
    re.DOTALL,
)


def parse_command_text(text: str, bot: str = "") -> str | None:
    """The bare words of a command ("/Stop@ourbot now" → "stop now"), None when `text` is no command.

    A command for another bot ("/new@other" while `bot` is "ourbot") gives "": not ours, and no text for the agent.
    A path such as "/etc/hosts" is no command; a lone or doubled slash ("/", "//new") is one, with an odd name, so that
    the registry can say what works.
    """
    found = _COMMAND.fullmatch(text)
    if not found:
        return None
    if found["bot"] and found["bot"].lower() != bot.lower():
        return ""
    name = found["bang"] or (found["slash"][1:] + (found["name"] or "")) or "help"
    return f"{name.lower()} {(found['rest'] or '').strip()}".strip()


class Health(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Readiness:
    """The truth about a channel: `since` is a unix time, `detail` a sentence when it is not ready."""

    health: Health
    since: float
    detail: str = ""


@dataclass(frozen=True, slots=True)
class CommandInfo:
    """A command of the registry, for platforms that list commands natively. `words` names what may follow it."""

    name: str
    help: str
    words: str = ""


@dataclass(frozen=True, slots=True)
class LastEvent:
    """Until when (unix time) a chat, or a thread of it, was heard."""

    chat: str
    topic: str
    time: float


@dataclass(frozen=True, slots=True)
class Gap:
    """An absence: every chat with its latest event before it ("" as topic) and every thread in use lately; nothing at a
    first start."""

    heard: Sequence[LastEvent] = ()
    id: int = 0


class CatchUpSource(Protocol):
    """What was heard before, for platforms that keep no events for a bot that is away.

    A channel opens a gap before the first event moves its chats on. It reads what came in between (not older than
    `hours`, at most `most` messages a chat) through the platform's history, oldest first, and offers it to `receive`
    like any event: the inbox knows what it has already. It closes the gap when all of that is stored; one that a crash
    left open is part of the next.
    """

    hours: float  # 0: do not catch up
    most: int

    async def open_gap(self, channel: str, workspace: str) -> Gap:
        """Keep where to read on from. Raises NotStored."""

    async def close_gap(self, gap: Gap) -> None:
        """All of it is read and stored. Raises NotStored."""


class NoCatchUp:
    """`CatchUpSource` of one who does not look back."""

    hours = 0.0
    most = 0

    async def open_gap(self, channel: str, workspace: str) -> Gap:
        return Gap()

    async def close_gap(self, gap: Gap) -> None:
        return


NO_CATCH_UP = NoCatchUp()


class Channel(Protocol):
    """A platform. All calls raise ChannelError; cancellation is always safe."""

    name: str
    limits: ChannelLimits
    window: float  # seconds over which the model's deltas may be merged before they are worth showing here

    async def listen(self, receive: Receive, past: CatchUpSource = NO_CATCH_UP) -> None:
        """Take events until cancelled, and what was missed before (`past`), also after a connection was lost.
        Raises when the connection cannot go on: the supervisor starts it again."""

    def readiness(self) -> Readiness:
        """Measured, not remembered."""

    def reply(self, thread: Thread, posts: SentMessages, *, to: str = "", asker: str = "") -> Reply:
        """A reply in `thread`, answering the message `to` of the person `asker`, over what `posts` knows already."""

    async def send_file(self, thread: Thread, file: OutgoingFile, posts: SentMessages) -> None:
        """Upload one file into `thread` (index 0 of `posts`)."""

    def fetch(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        """The bytes of an attachment as they come, in chunks of at most `channels.shared.file_limits.CHUNK`. A reader
        that wants no more closes it. Raises Refused when it is over the platform's limit."""

    async def enrich(self, message: Message, earlier: int) -> Message:
        """What takes platform calls and must not delay the receipt, asked once before a turn takes the message: the
        author's name, forwarded texts, and up to `earlier` messages that stood in its thread before it (`Quote`s of
        kind "earlier", oldest first; none in a direct chat). The message as it is where there is nothing to add.
        Raises ChannelError."""

    async def announce(self, commands: Sequence[CommandInfo]) -> None:
        """Register the commands natively, where the platform has that."""
