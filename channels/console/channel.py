"""The console channel: a chat in the terminal, without an account or a token.

On a terminal the reply is streamed above the prompt, which accepts input meanwhile. In a pipe, input lines are
messages, output lines are progress and answers. Messages go through the inbox as those of any platform.
"""

from __future__ import annotations

import asyncio
import getpass
import logging
import os
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfileobj
from typing import TextIO
from uuid import uuid4

from agent.blocks import Ask, Block, Final, View
from agent.messages import Attachment, Author, Kind, Message, Thread
from agent.setting import setting
from catalogue import _
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
from channels.shared.texts import NOT_STORED, REPEAT_MARK

log = logging.getLogger(__name__)

NAME = "console"
LOCAL = True  # its user started the process: open unless `access` is configured
LEAVE_COMMANDS = ("/quit", "/exit")
_STORE_RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """`channels.console` in config.yaml."""

    name: str = setting("", "your name in this chat; empty: your user name")
    downloads: str = setting("downloads", "folder for files from the agent; existing files are kept", path=True)


@asynccontextmanager
async def connect(
    settings: ConsoleSettings, *, stdin: TextIO | None = None, stdout: TextIO | None = None
) -> AsyncIterator[Channel]:
    """Open the console on `stdin` and `stdout`, by default the process's; a terminal view needs both to be one."""
    source, target = stdin or sys.stdin, stdout or sys.stdout
    if source is not None and target is not None and source.isatty() and target.isatty():
        from channels.console.tui import TerminalView

        view: ConsoleView = TerminalView(source, target)
    else:
        view = PlainView(source.fileno() if source else None, target.fileno() if target else None)
    async with view:
        yield ConsoleChannel(settings, view)


class ConsoleChannel:
    """One person at one terminal, one conversation."""

    name = NAME
    limits = ChannelLimits(text_limit=1_000_000, upload=1 << 40, download=0, edits_notify=True)
    window = 0.05

    def __init__(self, settings: ConsoleSettings, view: ConsoleView) -> None:
        person = settings.name or _user_name()
        self.thread = Thread(NAME, "local", person)
        self._author = Author(person, person)
        self._downloads = Path(settings.downloads)
        self.view = view
        self._open_replies: set[int] = set()
        self._waiting = False  # for the reply to a message
        self._stopping = False
        self._asks: tuple[Ask, ...] = ()
        self._readiness = Readiness(Health.STARTING, time.time())

    # ------------------------------------------------------------ input

    async def listen(self, receive: Receive, catch_up: CatchUpSource = NO_CATCH_UP) -> None:
        """Offer the typed messages, until the input ends or the person leaves."""
        self._readiness = Readiness(Health.READY, time.time())
        try:
            while (event := await self.view.read()) is not None:
                if isinstance(event, Key):
                    if not await self._handle_interrupt(receive):
                        return
                elif event.strip() in LEAVE_COMMANDS:
                    return
                elif event.strip():
                    await self._offer_until_stored(receive, self._make_message(event.strip()))
        finally:
            self._readiness = Readiness(Health.DOWN, time.time(), "the input has ended")

    def readiness(self) -> Readiness:
        return self._readiness

    def _make_message(self, text: str) -> Message:
        command = parse_command_text(text)
        kind, target = (Kind.CHAT, "") if command is None else (Kind.COMMAND, "")
        if len(self._asks) == 1 and command is None and (option := self._asks[0].match_option(text)):
            kind, target, text = Kind.CLICK, self._asks[0].id, option
        if command in (None, "new", "stop"):  # a message answers the question, the commands close it
            self._asks = ()
        return self._make_event(kind, command if command is not None else text, target)

    def _make_event(self, kind: Kind, text: str, target: str = "") -> Message:
        number = uuid4().hex
        key = f"{NAME}/local/{self._author.id}/{number}"
        return Message(self.thread, key, number, self._author, text, time.time(), kind, target=target, private=True)

    async def _offer_until_stored(self, receive: Receive, message: Message) -> None:
        """Offer a message until it is stored, so that the person need not type it again."""
        notified = False
        while True:
            try:
                receipts = await receive([message])
                break
            except NotStored as error:
                if not notified:
                    await self.view.write(_(NOT_STORED))
                    log.error("console.not_stored reason=%s", error)  # noqa: TRY400 — the reason is enough
                notified = True
                await asyncio.sleep(_STORE_RETRY_SECONDS)
        if receipts == [Receipt.IGNORED]:
            await self.view.write(_("You're not on the list of this console: see `channels.console.access`."))
        elif message.kind is not Kind.COMMAND and not self._open_replies:
            self._waiting = True
            self.view.set_busy(True)

    async def _handle_interrupt(self, receive: Receive) -> bool:
        """Stop the running turn on Ctrl-C. Returns False to leave, if none runs."""
        if self._stopping or not (self._open_replies or self._waiting):
            return False
        self._stopping = True
        await self.view.write(_("Stopping… (Ctrl-C again quits Fawn.)"))
        await self._offer_until_stored(receive, self._make_event(Kind.COMMAND, "stop"))
        return True

    # ------------------------------------------------------------ output

    def reply(self, thread: Thread, posts: SentMessages, *, to: str = "", asker: str = "") -> Reply:
        return ConsoleReply(self, posts)

    async def send_file(self, thread: Thread, file: OutgoingFile, posts: SentMessages) -> None:
        """Copy the file to the downloads folder and show its path."""
        if any(post.id is not None for post in posts.known):
            return
        path = await asyncio.to_thread(save_download, file, self._downloads)
        shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        name, size = strip_controls(file.name), human_size(file.size)
        line = _("File: {name} ({size}) → {path}", name=name, size=size, path=shown)
        line = f"{line} — {file.caption}" if file.caption else line
        await posts.sending(0)
        await self.view.write(line)
        await posts.sent(0, str(path))

    def fetch(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        raise Refused("the console has no attachments")

    async def enrich(self, message: Message, earlier: int) -> Message:
        return message

    def spell_command(self, thread: Thread, command: str) -> str:
        return f"/{command}"

    async def announce(self, commands: Sequence[CommandInfo]) -> None:
        self.view.set_completions([(command.name, _(command.help)) for command in commands])

    # ------------------------------------------------------------ events of replies

    def reply_began(self, reply: int) -> None:
        self._open_replies.add(reply)
        self._waiting = False

    def question_asked(self, asks: tuple[Ask, ...]) -> None:
        self._asks = asks

    def reply_ended(self, reply: int) -> None:
        if reply in self._open_replies:
            self._open_replies.discard(reply)
            self._stopping = False
        if not self._open_replies:
            self._waiting = False
        self.view.set_busy(bool(self._open_replies))


class ConsoleReply:
    """A running reply. A terminal cannot edit its output, so only the final reply is printed."""

    def __init__(self, console: ConsoleChannel, posts: SentMessages) -> None:
        self._console, self._posts = console, posts
        self._view = View()

    def show(self, block: Block) -> None:
        self._console.reply_began(id(self))
        self._view.add(block)
        self._console.view.show(self._view, block)

    async def finish(self, final: Final) -> None:
        """Print `final`, unless it was printed before a crash."""
        await self.close()
        if final.asks:
            self._console.question_asked(final.asks)
        known = first_sent_message(self._posts)
        if known and known.id is not None:
            return
        pieces = [_(REPEAT_MARK)] if known else []
        for markdown, ask in final.messages():
            pieces += [markdown, *(_describe_options(ask, alone=len(final.asks) == 1) if ask else ())]
        text = "\n\n".join(pieces)
        if text.strip():
            await self._posts.sending(0)
            await self._console.view.write(text, markdown=True)
            await self._posts.sent(0, uuid4().hex)

    async def close(self) -> None:
        self._console.view.drop(self._view)
        self._console.reply_ended(id(self))


# ---------------------------------------------------------------- questions and files


def _describe_options(ask: Ask, *, alone: bool) -> list[str]:
    """Return the options of a question, numbered if it is the only one, and how to answer."""
    if not (ask.options and alone):
        return ["\n".join(f"- {option}" for option in ask.options)] if ask.options else []
    hint = _("Type a number, or answer in your own words.") if ask.free_text else _("Type a number.")
    return ["\n".join(f"{i}. {option}" for i, option in enumerate(ask.options, 1)), hint]


def save_download(file: OutgoingFile, folder: Path) -> Path:
    """Copy a file to `folder` under a free name. Raises Refused or TryLater."""
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
        raise TryLater(f"the file could not be saved: {error.strerror}", 5.0) from None
    raise Refused(f"the folder {folder} has too many files called {name}")


def human_size(size: int) -> str:
    """Return a size in bytes for people."""
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
