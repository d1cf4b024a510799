"""The interface of a rig: a connected channel, the people of its platform, and the wire."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Literal, Protocol, Self, TypedDict, Unpack

from agent.messages import Message, Thread
from channels.base import Channel
from tests.support.recording_inbox import Box

Call = Literal["post", "edit", "delete", "upload", "album", "any"]
"""The platform calls that the contract speaks of, whatever they are called there: a new message, a change of one (an
append to a stream, too), taking one away, sending files (`album`: a message with several)."""

Trouble = Literal["flood", "error", "drop", "slow", "hang"]
"""The kinds of `tests.fakes.server.Fault`."""


class Rule(TypedDict, total=False):
    """Further options of a `tests.fakes.server.Fault`, which has the defaults."""

    times: int
    after: bool
    seconds: float
    code: int
    description: str
    body: str


ABILITIES = {
    "live": "progress is visible while the turn runs",
    "working": "a typing action or a reaction shows that a message is worked on, before there is a reply",
    "edits": "a reply is edited in place",
    "redelivery": "an event may be delivered more than once",
    "kept": "the platform keeps events while the bot is offline",
    "catch_up": "the history is read after downtime",
    "topics": "conversations in groups: `topic` n > 0 is a thread in one, or a group of its own; 0 is the direct chat",
    "follow_up": "a message in a thread counts without a mention when the bot takes part there",
    "buttons": "options of a question are buttons",
    "styles": "the buttons of an approval have colours",
    "local_times": "the platform shows a time in the zone of each reader",
    "commands": "a reply has buttons that stop or retry its turn",
    "folds": "the steps of an ended turn stay, folded away or small",
    "uploads": "files out",
    "downloads": "files in",
    "documents": "the rest of a long answer is a file",
    "albums": "several files may be one message",
    "early_files": "the platform has a file for minutes only: it is fetched when its turn is late",
    "captions": "a file may have a caption",
    "amend": "edits of a person's message are sent as events",
    "withdraw": "deletions of a person's message are sent as events",
    "reactions": "a reaction on the bot's message asks to stop, or says whether the answer is good",
    "titles": "a thread shows a title",
    "title_events": "a person's new title of a thread is sent as an event; elsewhere the channel looks at the title",
    "private_chats": "a bot may begin a private chat with a person",
    "departures": "the platform says which accounts were deactivated, or have left",
    "erase": "a person can delete a message of the bot",
    "missing": "an edit finds that a person deleted the message",
    "native": "the platform has native commands (slash commands, application commands, a menu)",
    "menu": "the platform lists the bot's commands by name, as they were announced",
    "earlier": "earlier messages of a thread are read as context",
    "mentions": "a person can be pinged in a group",
    "once": "a post accepted without an answer is shown once (idempotency key or lookup)",
    "files_once": "so is a file",
    "retry_after": "a rate limit says when to try again",
    "wire": "the fake server can simulate faults",
    "tokens": "each call carries the token that people can revoke: an error 401 of the wire says so",
    "socket": "events arrive over a connection that can break or fall silent",
    "handles": "an event brings a handle with an end, by which it is answered",
    "apology": "the chat gets a notice when a message cannot be stored",
}
"""Abilities that a rig can declare for its platform."""


class Wire(Protocol):
    """The platform's side of the wire: causes faults and counts calls."""

    def fault(self, kind: Trouble, call: Call, *, topic: int | None = None, **rule: Unpack[Rule]) -> None:
        """As `tests.fakes.server.Fault`, for one kind of call (in one topic, when one is given; `times` -1: for good).

        `flood` is a 429 with the platform's way to say `seconds`; `error` with a `code` below 500 a refusal for good in
        the platform's own form, from 500 on a fault of the server, with `body` one of a proxy before it.
        """

    def count(self, call: Call) -> int:
        """How many such calls arrived, failed ones included."""

    def topics(self) -> set[int]:
        """Return the topics of the calls into chats so far, 0 for none."""

    def stall(self, count: int) -> None:
        """From now on, send only the first `count` bytes of a file."""

    async def stop(self) -> None:
        """Stop the platform: nothing listens on its port."""

    async def start(self) -> None:
        """Start it again on the same port with the same state."""

    def abort(self) -> None:
        """Break every event connection (without effect for polling)."""

    def deafen(self) -> None:
        """Keep connections open, but send neither events nor pongs until a new one is opened."""


class Rig(Protocol):
    """A connected channel and its people. The contract tests every ability in `can`."""

    name: str
    can: frozenset[str]
    other: str
    box: Box

    @property
    def channel(self) -> Channel:
        """The current channel: a new one after a restart."""

    @property
    def wire(self) -> Wire: ...

    @classmethod
    def start(cls, folder: Path, **settings: Any) -> AbstractAsyncContextManager[Self]:
        """Start the platform and the channel that listens to it into `box`; `settings` override those of the
        channel."""

    async def leave(self) -> None:
        """Stop the service's process: the channel is closed, the platform continues, and messages are missed."""

    async def back(self) -> None:
        """Start it again: a new channel with the same `box`."""

    # ------------------------------------------------------------ people

    async def say(self, text: str, topic: int = 0, *, mention: bool = True) -> Message:
        """A person writes (in a topic: with a mention of the bot, unless stated otherwise); returns the received
        message."""

    def mutter(self, text: str, topic: int = 0, *, mention: bool = False, by: str = "") -> None:
        """A person writes; does not wait until the message is received. `by` is `other`, in a topic only, or Jane."""

    def redeliver(self) -> None:
        """The platform delivers the last event again."""

    def send_file(self, name: str, data: bytes, caption: str = "") -> None:
        """A person sends a file into the direct chat."""

    def hurry(self) -> None:
        """From now on, every turn is late: files are fetched at once."""

    def amend(self, text: str) -> None:
        """A person edits their last message in the direct chat."""

    def withdraw(self) -> None:
        """A person deletes their last message in the direct chat."""

    def react(self, topic: int = 0) -> None:
        """A person puts ❌ on the bot's last message."""

    def rate(self, mark: str, topic: int = 0) -> None:
        """A person puts 👍 or 👎 on the bot's last message."""

    def unrate(self, mark: str, topic: int = 0) -> None:
        """They take it back."""

    async def begin_thread(self, text: str) -> Message:
        """A person writes what begins a thread that the platform, or the bot, names by the text."""

    def title(self, thread: Thread) -> str:
        """The title that people see at a thread."""

    def retitle(self, thread: Thread, title: str) -> None:
        """A person names a thread."""

    def depart(self, person: str) -> None:
        """A person's account is deactivated, or leaves."""

    def erase(self, topic: int = 0) -> None:
        """A person deletes the bot's last message."""

    def erase_silently(self, topic: int = 0) -> Callable[[], object]:
        """A person deletes the bot's last message; the event comes when the result is called."""

    def command(self, text: str) -> None:
        """A person uses a native command in the direct chat, such as "stop" or "model demo"."""

    async def ask_by_handle(self, text: str) -> Message:
        """A person asks in the direct chat by an event that brings a handle; returns the received message."""

    def used_handle(self) -> bool:
        """The bot used the handle of that event for its answer."""

    def buttons(self, topic: int = 0) -> list[str]:
        """The labels under the bot's last message."""

    def offers(self, topic: int = 0) -> list[str]:
        """The labels under all of the bot's messages there."""

    def labels(self, topic: int = 0) -> list[str]:
        """The labels of disabled buttons under the bot's last message, which only inform."""

    def danger(self, topic: int = 0) -> list[str]:
        """The labels of the buttons under the bot's last message whose colour warns."""

    def folded(self, topic: int = 0) -> list[str]:
        """The lines of the ended turn's summary and steps, as a person reads them who unfolds them."""

    def press(self, label: str, topic: int = 0, *, by: str = "") -> None:
        """A person clicks a button of the last message that has it."""

    def felt(self) -> bool:
        """The bot answered the last click or native command as the platform requires (the spinner is gone)."""

    def thread(self, topic: int = 0) -> Thread:
        """The conversation in which `say` writes."""

    def visible(self, topic: int = 0) -> list[str]:
        """Return the bot's visible messages there (without separate messages: the whole text)."""

    def pinged(self, topic: int = 0) -> Sequence[str]:
        """Return the platform user ids whom the bot's messages there notified by a mention."""

    def commands(self) -> list[str]:
        """The names of the native commands that the platform lists for the bot."""
