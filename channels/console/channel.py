"""The terminal as a channel: the first chat a newcomer has, with no account and no token.

On a terminal the reply grows in place above the prompt and one may type meanwhile; when piped, lines in are messages
and lines out are progress and answers. What is typed goes through the same inbox as any platform's messages.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copyfileobj
from typing import TextIO
from uuid import uuid4

from agent.blocks import Ask, Block, Final, View
from agent.messages import Attachment, Author, Kind, Message, Thread
from channels.base import (
    NO_CATCH_UP,
    CatchUpSource,
    Channel,
    ChannelLimits,
    CommandInfo,
    Health,
    NotStored,
    OutgoingFile,
    Readiness,
    Receipt,
    Receive,
    Refused,
    Reply,
    SentMessages,
    TryLater,
    first_sent_message,
    parse_command_text,
)
from channels.console.plain import PlainView
from channels.console.view import ConsoleView, Key, strip_controls

NAME = "console"
LOCAL = True  # its person started the process: no access rules unless somebody writes some
REPEATED_NOTE = "_(Fawn was interrupted here: this may be the second time you see it.)_"
LEAVE_COMMANDS = ("/quit", "/exit")
_RETRY_SECONDS = 1.0  # seconds until a message that could not be stored is offered again


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """`channels.console.channel`: all of it may be left out."""

    name: str = field(default="", metadata={"help": "who you are in this chat; empty: your user name"})
    downloads: str = field(
        default="downloads",
        metadata={"help": "folder where files from the agent are put, never replacing one", "path": True},
    )


@asynccontextmanager
async def connect(
    settings: ConsoleSettings, *, stdin: TextIO | None = None, stdout: TextIO | None = None
) -> AsyncIterator[Channel]:
    """The console on `stdin` and `stdout` (the process's own if not given); a terminal only if both are one."""
    source, target = stdin or sys.stdin, stdout or sys.stdout
    if source is not None and target is not None and source.isatty() and target.isatty():
        from channels.console.tui import TerminalView

        face: ConsoleView = TerminalView(source, target)
    else:
        face = PlainView(source.fileno() if source else None, target.fileno() if target else None)
    async with face:
        yield ConsoleChannel(settings, face)


class ConsoleChannel:
    """One person at one terminal, one conversation."""

    name = NAME
    limits = ChannelLimits(text_limit=1_000_000, upload=1 << 40, download=0, edits_notify=True)
    window = 0.05

    def __init__(self, settings: ConsoleSettings, face: ConsoleView) -> None:
        person = settings.name or _user_name()
        self.thread = Thread(NAME, "local", person)
        self._author = Author(person, person)
        self._downloads = Path(settings.downloads)
        self._face = face
        self._working: set[int] = set()  # replies that are growing
        self._waiting = False  # something was said and its reply has not begun
        self._stopping = False
        self._asks: tuple[Ask, ...] = ()
        self._ready = Readiness(Health.STARTING, time.time())

    # ------------------------------------------------------------ in

    async def listen(self, receive: Receive, past: CatchUpSource = NO_CATCH_UP) -> None:
        """Offer what is typed, until the input ends or the person leaves."""
        self._ready = Readiness(Health.READY, time.time())
        try:
            while (event := await self._face.read()) is not None:
                if isinstance(event, Key):
                    if not await self._handle_interrupt(receive):
                        return
                elif event.strip() in LEAVE_COMMANDS:
                    return
                elif event.strip():
                    await self._offer_until_stored(receive, self._make_message(event.strip()))
        finally:
            self._ready = Readiness(Health.DOWN, time.time(), "the input has ended")

    def readiness(self) -> Readiness:
        return self._ready

    def _make_message(self, text: str) -> Message:
        command = parse_command_text(text)
        kind, target = (Kind.CHAT, "") if command is None else (Kind.COMMAND, "")
        if len(self._asks) == 1 and command is None and (option := self._asks[0].match_option(text)):
            kind, target, text = Kind.CLICK, self._asks[0].id, option
        if command in (None, "new"):  # any words answer a question, a new conversation leaves it behind
            self._asks = ()
        return self._make_event(kind, command if command is not None else text, target)

    def _make_event(self, kind: Kind, text: str, target: str = "") -> Message:
        number = uuid4().hex
        key = f"{NAME}/local/{self._author.id}/{number}"
        return Message(self.thread, key, number, self._author, text, time.time(), kind, target=target, private=True)

    async def _offer_until_stored(self, receive: Receive, message: Message) -> None:
        """Into the inbox, however often that takes: what was typed is not typed twice."""
        told = False
        while True:
            try:
                receipts = await receive([message])
                break
            except NotStored as error:
                if not told:
                    await self._face.write(f"Not stored yet ({error}); I keep trying.")
                told = True
                await asyncio.sleep(_RETRY_SECONDS)
        if receipts == [Receipt.IGNORED]:
            await self._face.write("That was not taken: you may not talk to this bot. See `access` in config.yaml.")
        elif message.kind is not Kind.COMMAND and not self._working:
            self._waiting = True
            self._face.set_busy(True)

    async def _handle_interrupt(self, receive: Receive) -> bool:
        """Ctrl-C: stop what is running, else leave. False when it is time to leave."""
        if self._stopping or not (self._working or self._waiting):
            return False
        self._stopping = True
        await self._face.write("Stopping… (Ctrl-C again leaves)")
        await self._offer_until_stored(receive, self._make_event(Kind.COMMAND, "stop"))
        return True

    # ------------------------------------------------------------ out

    def reply(self, thread: Thread, posts: SentMessages, *, to: str = "", asker: str = "") -> Reply:
        return ConsoleReply(self, posts)

    async def send_file(self, thread: Thread, file: OutgoingFile, posts: SentMessages) -> None:
        """Copy the file into the downloads folder and say where it is."""
        if any(post.id is not None for post in posts.known):
            return
        path = await asyncio.to_thread(save_download, file, self._downloads)
        shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        caption = f" — {file.caption}" if file.caption else ""
        await posts.sending(0)
        await self._face.write(f"File: {strip_controls(file.name)} ({human_size(file.size)}) → {shown}{caption}")
        await posts.sent(0, str(path))

    def fetch(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        raise Refused("nothing can be attached in the terminal")

    async def enrich(self, message: Message, earlier: int) -> Message:
        return message

    async def announce(self, commands: Sequence[CommandInfo]) -> None:
        self._face.set_completions([(command.name, command.help) for command in commands])

    # ------------------------------------------------------------ what replies tell

    def reply_began(self, reply: int) -> None:
        self._working.add(reply)
        self._waiting = False

    def question_asked(self, asks: tuple[Ask, ...]) -> None:
        self._asks = asks

    def reply_ended(self, reply: int) -> None:
        if reply in self._working:
            self._working.discard(reply)
            self._stopping = False
        if not self._working:
            self._waiting = False
        self._face.set_busy(bool(self._working))

    @property
    def view(self) -> ConsoleView:
        return self._face


class ConsoleReply:
    """A reply in progress. What a terminal has shown cannot be edited, so only the end of it is printed for good."""

    def __init__(self, console: ConsoleChannel, posts: SentMessages) -> None:
        self._console, self._posts = console, posts
        self._view = View()

    def show(self, block: Block) -> None:
        self._console.reply_began(id(self))
        self._view.add(block)
        self._console.view.show(self._view, block)

    async def finish(self, final: Final) -> None:
        """Print `final`, once: a reply that was printed before a crash is not printed again."""
        await self.close()
        if final.asks:
            self._console.question_asked(final.asks)
        known = first_sent_message(self._posts)
        if known and known.id is not None:
            return
        pieces = [REPEATED_NOTE] if known else []
        for words, ask in final.messages():
            pieces += [words, *(describe_options(ask, alone=len(final.asks) == 1) if ask else ())]
        text = "\n\n".join(pieces)
        if text.strip():
            await self._posts.sending(0)
            await self._console.view.write(text, markdown=True)
            await self._posts.sent(0, uuid4().hex)

    async def close(self) -> None:
        self._console.view.drop(self._view)
        self._console.reply_ended(id(self))


# ---------------------------------------------------------------- questions and files


def describe_options(ask: Ask, *, alone: bool) -> list[str]:
    """How to answer, below a question: its options, by number when it stands alone."""
    if not (ask.options and alone):
        return ["\n".join(f"- {option}" for option in ask.options)] if ask.options else []
    hint = "Type a number, or answer in your own words." if ask.free_text else "Type a number."
    return ["\n".join(f"{i}. {option}" for i, option in enumerate(ask.options, 1)), hint]


def save_download(file: OutgoingFile, folder: Path) -> Path:
    """Copy a file into `folder` under a name that is free there. Raises Refused or TryLater."""
    name = Path(strip_controls(file.name).replace("\n", " ")).name or "file"
    stem, suffix = Path(name).stem, Path(name).suffix
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(1, 10_000):
            path = folder / (name if number == 1 else f"{stem}-{number}{suffix}")
            try:
                with path.open("xb") as target, file.path.open("rb") as source:
                    copyfileobj(source, target)
                return path.resolve()
            except FileExistsError:
                continue
    except PermissionError:
        raise Refused(f"the folder {folder} is not writable") from None
    except OSError as error:
        raise TryLater(f"the file could not be kept: {error.strerror}", 5.0) from None
    raise Refused(f"the folder {folder} has too many files called {name}")


def human_size(size: int) -> str:
    """Bytes as a person reads them."""
    for unit in ("bytes", "KB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if size >= 10 or unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000  # type: ignore[assignment]  # from here on it is a rounded figure
    return f"{size:.1f} GB"


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in containers
        return f"user{os.getuid()}"
