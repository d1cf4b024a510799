"""The channel protocols, with the errors and limits every platform works with.

A channel imports only `agent.messages`, `agent.blocks`, `agent.setting`, this file and `channels.shared`. Its module
`channels/NAME/` defines:

- `Settings`: the dataclass of the section `channels: {NAME: …}` in config.yaml. Importing it imports no SDK.
- `connect(settings)`: an async context manager that returns a `Channel`.
- `probe(settings)`: returns a sentence for `fawn check` ("connected as @fawn in Acme") or raises Refused.

    ChannelError
    ├── TryLater         the platform cannot process the call now, and nothing is visible: retry it
    │   ├── TokenRejected    …because it rejects the bot's token
    │   └── Unattended       …because nobody is there to see it: this does not count as an attempt
    ├── OutcomeUnknown   the platform did not answer: the call may or may not have had its effect
    └── Refused          the platform rejected the call for good
        ├── MayPass      …for a reason that the channel does not know as final: it is tried a few times more
        ├── FilesRefused some of several files
        ├── Unconfirmed  every allowed post had an unknown outcome
        └── ChatGone     the chat was deleted or the bot was blocked: stop trying
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

from agent.blocks import Block, Final
from agent.messages import Attachment, Message, Thread, Unreadable


class ChannelError(Exception):
    """A platform call failed. `after` is the wait in seconds before a retry."""

    after = 1.0


class TryLater(ChannelError):
    """The platform could not process the call; `after` is the wait that it asked for, or a guess."""

    def __init__(self, reason: str, after: float = 1.0) -> None:
        super().__init__(reason)
        self.after = after


class TokenRejected(TryLater):
    """The platform rejects the bot's token, until a person replaces it."""


class Unattended(TryLater):
    """Nobody is there to see it: the channel is not connected, or no console is open. Not an attempt."""


class WaitsForPerson(Unattended):
    """A person has to come first: to open the console, or to write where the platform lets a bot only answer."""


class OutcomeUnknown(ChannelError):
    """The platform may have processed the call, but did not answer."""


class Refused(ChannelError):
    """The platform rejected this call for good."""

    may_pass = False  # the reason is none that the channel knows as final


class MayPass(Refused):
    """The platform rejected this call for a reason that the channel does not know as final.

    A channel raises this by default. Callers that cannot repeat the call treat it as any other `Refused`.
    """

    may_pass = True


class FilesRefused(Refused):
    """The platform rejected some of several files for good: `refused` by the names of the files."""

    def __init__(self, refused: Mapping[str, Refused]) -> None:
        super().__init__("; ".join(f"{name}: {error}" for name, error in refused.items()))
        self.refused = refused
        self.may_pass = any(error.may_pass for error in refused.values())


class Unconfirmed(Refused):
    """Every post had an unknown outcome: the message may be visible, and is not posted again."""


class ChatGone(Refused):
    """The chat was deleted, or the bot was blocked or removed: stop trying."""

    may_pass = False


class NotStored(Exception):
    """The inbox could not store an event (disk full, database locked): do not acknowledge it, and offer it again."""


class Receipt(StrEnum):
    """The inbox's decision about an event."""

    ACCEPTED = "accepted"  # stored, to be answered
    DUPLICATE = "duplicate"  # stored before
    IGNORED = "ignored"  # not for the bot, or from a person without access


Receive = Callable[[Sequence[Message | Unreadable]], Awaitable[list[Receipt]]]
"""Offer events to the inbox. Returns after the commit, one receipt per event in order. Raises NotStored."""


@dataclass(frozen=True, slots=True)
class ChannelLimits:
    """A platform's limits: files in bytes, `text_limit` in the platform's own units."""

    text_limit: int
    upload: int
    download: int
    edits_notify: bool = False  # people notice an edit, so the end of a long turn needs no mention
    private_topics: bool = False  # a thread may be closed to members of its chat
    mentions: bool = True  # a person in a group can be notified by a mention
    fetches_links: bool = False  # it fetches links of messages by itself, and cannot be told not to


@dataclass(frozen=True, slots=True)
class SentMessage:
    """One message of a reply: `id` is the platform's message id, None after `posts` attempts of unknown outcome.

    With an id, it is the last of `posts` attempts: of more than one, an earlier one may be visible, too. Without one,
    `handle` is what the channel recorded with the latest attempt.
    """

    index: int
    id: str | None
    posts: int = 1
    handle: str = ""


class SentMessages(Protocol):
    """The stored messages of a reply, so that a restart edits them instead of posting again.

    Await `sending(i, handle)` before every post with content, `sent(i, id)` as soon as its id is known, and `unsent(i)`
    if the platform rejected it (TryLater, Refused). After a crash between the first two, `known` has an entry without
    id that counts such posts: post again, marked as a possible repeat, or with the same `key` where posts are
    idempotent; and raise Unconfirmed after too many. Edits need none of this.
    """

    key: str  # stable for the whole reply, at most 20 characters of [a-z0-9-]: the stem of idempotency keys

    @property
    def known(self) -> Sequence[SentMessage]: ...

    @property
    def reply_handle(self) -> str:
        """The token of the handle that came with the message to answer (`Message.reply_handle`).

        It is stored with the message, so it is there after a restart, too. "" where there is none, or it has ended:
        ask for it right before it is used.
        """

    async def sending(self, index: int, handle: str = "") -> None: ...

    async def sent(self, index: int, message_id: str) -> None: ...

    async def adopt(self, index: int, candidates: Sequence[str]) -> str | None:
        """Record the first of these messages that no reply has, as `sent` does, and return its id."""

    async def unsent(self, index: int) -> None: ...

    async def found_deleted(self, index: int) -> None:
        """Record that somebody else deleted a message: the platform may tell it later, and then still names this reply.

        Await it before the post that takes the message's place.
        """

    async def record_questions(self, questions: Mapping[int, str]) -> None:
        """Record the ids of the questions that messages show, so that a reply to such a message answers it."""


def find_sent_message(posts: SentMessages, index: int = 0) -> SentMessage | None:
    """Return the message with this index, or None if no post of it was begun."""
    return next((message for message in posts.known if message.index == index), None)


class Reply(Protocol):
    """One reply that is streamed into its thread."""

    def show(self, block: Block) -> None:
        """Add a block and return at once; a writer shows it within the rate limits."""

    async def finish(self, final: Final) -> None:
        """Make exactly `final` visible. Raises ChannelError; another call edits what is visible already."""

    async def close(self) -> None:
        """Stop writing and leave what is visible; a suspended turn continues it after a restart."""


@runtime_checkable
class Settling(Protocol):
    """The further method of a reply whose platform lets a bot change a message."""

    async def settle(self, final: Final, question: str, outcome: str) -> None:
        """Show what became of a question of `final`, which is visible, in place of its buttons; "" shows them again.

        It edits the message with the buttons and posts nothing: what is gone or cannot be changed stays so. Raises
        TryLater; another call repeats it.
        """


@dataclass(frozen=True, slots=True)
class OutgoingFile:
    """A file to send: a private copy at `path`, shown as `name`."""

    path: Path
    name: str
    size: int
    caption: str = ""


_COMMAND = re.compile(
    r"\s*(?:(?P<slash>/+)(?P<name>[A-Za-z][\w-]*(?::[\w.-]*)?)?|!(?P<bang>[A-Za-z][\w-]*(?::[\w.-]+)?))"
    r"(?:@(?P<bot>\w+))?(?:\s+(?P<rest>.*))?\s*",
    re.DOTALL,
)


def parse_command_text(text: str, bot: str = "") -> str | None:
    """Return the words of a command ("/Stop@ourbot now" gives "stop now"), or None if `text` is not a command.

    Returns "" for a command to another bot ("/new@other" while `bot` is "ourbot"). A path such as "/etc/hosts" is not a
    command. A single or double slash ("/", "//new") is one with an unknown name, to which the registry answers.
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
    """A channel's health: `since` is a Unix time, `detail` the bot's account if it is ready, else a sentence."""

    health: Health
    since: float
    detail: str = ""

    def with_fault(self, fault: str, since: float = 0.0) -> Readiness:
        """Return it as DOWN because of a fault, unless that is "", of which the connection itself knows nothing."""
        is_new = fault and self.health is Health.READY
        return Readiness(Health.DOWN, max(self.since, since), fault) if is_new else self


@dataclass(frozen=True, slots=True)
class CommandInfo:
    """A command of the registry, for platforms that list commands natively. `words` names its arguments."""

    name: str
    help: str
    words: str = ""


@dataclass(frozen=True, slots=True)
class LastEvent:
    """The Unix time of the last event of a chat, or of a thread in it."""

    chat: str
    topic: str
    time: float


@dataclass(frozen=True, slots=True)
class Gap:
    """A time without connection, with the last events before it: of every chat ("" as topic) and every recent thread.

    It is empty at the first start. `since` is the Unix time of that as long as nothing was heard, for platforms that
    list their chats; else 0.
    """

    heard: Sequence[LastEvent] = ()
    id: int = 0
    since: float = 0.0


class CatchUpSource(Protocol):
    """The last events before a gap, for platforms that do not keep events for a disconnected bot.

    A channel opens a gap before it stores the first new event. It reads the missed messages from the platform's
    history, oldest first, and offers them to `receive` like any event; the inbox recognises duplicates. It closes the
    gap when all are stored. A gap left open by a crash becomes part of the next one.
    """

    hours: float  # how far to read back; 0 disables it
    most: int  # messages of a chat

    async def open_gap(self, channel: str, workspace: str) -> Gap:
        """Store where to begin reading. Raises NotStored."""

    async def close_gap(self, gap: Gap) -> None:
        """Note that all its messages are stored. Raises NotStored."""


class NoCatchUp:
    """A `CatchUpSource` without history."""

    hours = 0.0
    most = 0

    async def open_gap(self, channel: str, workspace: str) -> Gap:
        return Gap()

    async def close_gap(self, gap: Gap) -> None:
        return


NO_CATCH_UP = NoCatchUp()


FILE_ITEM = "early "  # begins the name of a text with which a file of the channel goes


class StateStore(Protocol):
    """What a channel keeps over restarts: texts by name, in the service's database, sealed under its key.

    A channel whose platform delivers events from a position keeps it here, after the inbox has the events before it.
    """

    @property
    def folder(self) -> Path:
        """Where the channel may keep files for some hours; it may have to be made. Nothing there is backed up.

        A file there, with or without a suffix, goes with the text of the name `FILE_ITEM` and its own, which is kept
        first: the service removes the file of a text that is no more.
        """

    async def load(self) -> Mapping[str, str]:
        """Return everything that is kept. Raises NotStored."""

    async def save(self, changes: Mapping[str, str | None], *, of: str = "", until: float | None = None) -> None:
        """Keep these texts at once, in one transaction; None drops one. Raises NotStored.

        `of` is the platform's id of the person whom they are about: they are dropped when the person is forgotten. They
        are dropped at `until`, too, a Unix time.
        """

    async def renew(self, name: str, text: str, *, until: float) -> bool:
        """Replace a text, unless it was dropped meanwhile: False. Raises NotStored."""


class Channel(Protocol):
    """A platform. All calls raise ChannelError and can be cancelled at any time."""

    name: str
    limits: ChannelLimits
    window: float  # seconds in which the model's deltas are merged before they are shown

    async def listen(self, receive: Receive, catch_up: CatchUpSource = NO_CATCH_UP) -> None:
        """Receive events until cancelled, and catch up on missed ones after every gap.

        Raises if the connection cannot recover; the supervisor then restarts it.
        """

    def readiness(self) -> Readiness:
        """Return the health as last measured."""

    def reply(self, thread: Thread, posts: SentMessages, *, to: str = "", asker: str = "") -> Reply:
        """Begin a reply to the message `to` of the person `asker`, continuing the messages that `posts` has."""

    async def send_files(self, thread: Thread, files: Sequence[OutgoingFile], posts: SentMessages) -> None:
        """Send files to `thread`, several in a message where the platform can (`channels.shared.files`).

        Another call with the same files sends those that are not sent. Raises Refused with the names of files that
        cannot be sent, after the others.
        """

    def fetch(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of an attachment in chunks of at most `channels.shared.files.CHUNK`.

        The reader closes the generator. Raises Refused above the platform's limit.
        """

    async def enrich(self, message: Message, earlier: int, since: float = 0.0) -> Message:
        """Look up details that need API calls; called when a turn takes it, so it never delays the acknowledgement.

        Adds names, forwarded texts, and up to `earlier` messages of others above it, later than `since` (Unix time), as
        `Quote`s of kind "earlier" with their ids, oldest first: of its thread, or of its chat if the message begins a
        thread. None in a direct chat. In a thread its root is the first, also beyond `earlier`, unless `since` is
        later; a `Quote` of kind "omitted" behind it says that messages between are left out. What the platform refuses
        to show is a `Quote` of kind "unread".
        """

    def spell_command(self, thread: Thread, command: str) -> str:
        """Return how a person writes a command such as "notify off" in this thread: "/notify off", "!notify off"."""

    async def announce(self, commands: Sequence[CommandInfo]) -> None:
        """Register the commands natively, if the platform supports it."""


@runtime_checkable
class StateKeeper(Protocol):
    """The further method of a channel that keeps something over restarts."""

    def keep_state(self, state: StateStore) -> None:
        """Use this store; called once, before `listen`."""


@runtime_checkable
class Fenced(Protocol):
    """The further method of a channel that can stop making calls."""

    def fence(self, may_call: Callable[[], bool]) -> None:
        """Make no call to the platform while `may_call`, asked right before each, returns False: raise Unattended."""


@runtime_checkable
class ListenerPosts(Protocol):
    """The mark of a channel that can post only where it listens: over that connection, or by what it has read there."""

    posts_by_listening: bool


@dataclass(frozen=True, slots=True)
class SignInCode:
    """A code to scan that says `code` ("": none now), and a sentence on what to do or what has become of it."""

    code: str
    text: str


@runtime_checkable
class CodeSignIn(Protocol):
    """The further methods of a channel whose account signs in by a code that a person scans."""

    async def begin_sign_in(self) -> None:
        """Begin to sign in, unless that goes on already. The login is kept in the channel's `StateStore`."""

    def sign_in_code(self) -> SignInCode:
        """Return how far it is."""


@runtime_checkable
class MessageLinker(Protocol):
    """The further method of a channel whose platform has web addresses of messages."""

    def message_link(self, thread: Thread, message: str) -> str:
        """Return the address of a message, by its platform id; "" where the platform has none."""


@runtime_checkable
class ThreadBeginner(Protocol):
    """The further method of a channel on whose platform a thread can begin at a message of the bot."""

    def begins_threads(self, chat: Thread) -> bool:
        """Return whether it can in this chat. The topic of the thread is then the id of the message, up to a "/"."""


@runtime_checkable
class FileNamer(Protocol):
    """The further method of a channel whose platform says the name of a file only when it is fetched."""

    def named(self, attachment: Attachment) -> Attachment:
        """Return the file with the name and type that came when it was fetched, else as its message has it."""


@runtime_checkable
class TitleSetter(Protocol):
    """The further method of a channel whose platform shows titles of threads."""

    async def set_title(self, thread: Thread, title: str) -> None:
        """Show the title at a thread that no person has named. Does nothing where there is none to name.

        Raises ChannelError; the call may be repeated.
        """


@dataclass(frozen=True, slots=True)
class HomeItem:
    """One thing that waits for the reader of a home page. A press on an option comes as a click on the question `id`.

    The texts are plain. `place` is where it was asked, None for the direct chat with the reader. `call` is the exact
    call that the options approve, if they do.
    """

    id: str
    question: str
    place: Thread | None = None
    detail: str = ""
    call: str = ""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Home:
    """A person's page: a heading, what waits for them, and what else there is to know."""

    heading: str
    items: tuple[HomeItem, ...] = ()
    foot: str = ""


@runtime_checkable
class HomePage(Protocol):
    """The further method of a channel whose platform has a page of the bot's own for each person.

    A message of the kind HOME says that the person opened it, in their direct chat.
    """

    async def show_home(self, thread: Thread, person: str, home: Home) -> None:
        """Show the page of the person with whom `thread` is the direct chat. Raises ChannelError; may be repeated."""


@runtime_checkable
class PrivateChatOpener(Protocol):
    """The further method of a channel on whose platform a bot may begin a private chat with a person."""

    async def open_private_chat(self, person: str, near: Thread) -> Thread:
        """Return the private chat with a person of the workspace of `near`, opened if needed. Nothing is shown there.

        Raises ChannelError; the call may be repeated.
        """


@runtime_checkable
class AccountChecker(Protocol):
    """The further method of a channel whose platform says which accounts were deactivated, or have left."""

    async def is_gone(self, person: str) -> bool | None:
        """Return whether the account was deactivated or has left; None where the platform does not say so.

        Raises ChannelError; the call may be repeated.
        """
