"""The console channel: a chat in the terminal, without an account or a token.

Each console is a `Session`: the terminal or pipe of this process, and those that attached to the running service
(`channels/console/attached.py`). Messages go through the inbox as those of any platform.
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
from typing import Any, TextIO
from uuid import uuid4

from agent.blocks import ANSWERED_PART, Block, Final, View
from agent.messages import Attachment, Message, Thread
from agent.setting import setting
from catalogue import N_, _, default_language, set_language
from channels.base import (
    NO_CATCH_UP,
    CatchUpSource,
    Channel,
    ChannelError,
    ChannelLimits,
    ChatGone,
    CommandInfo,
    Health,
    OutgoingFile,
    Readiness,
    Receive,
    Reply,
    SentMessages,
    Unattended,
    find_sent_message,
)
from channels.console.attached import AttachedView
from channels.console.files import read_staged
from channels.console.plain import PlainView
from channels.console.session import NAME, Session, final_text, keys_help, own_commands
from channels.console.view import NO_HOST, ConsoleHost, ConsoleView, FinalReply, Look
from channels.shared.background import BackgroundTasks
from channels.shared.texts import REPEAT_MARK

log = logging.getLogger(__name__)

LOCAL = True  # its user started the process: open unless `access` is configured
OTHER_CONSOLE = N_("On another console: {text}")
TELL_SECONDS = 2.0  # for a line on every console
PROGRESS_SECONDS = 0.5  # between two looks at the progress of turns


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """`channels.console` in config.yaml."""

    name: str = setting("", "your name in this chat; empty: your user name")
    downloads: str = setting("downloads", "folder for files from the agent; existing files are kept", path=True)


@dataclass(frozen=True, slots=True)
class ConsolePlace:
    """Where this console keeps its history and files to send. `topic` names its conversation; "": the person's.

    `language` is the one of its terminal; "" is unknown. With `is_demo` the built-in demo answers.
    """

    folder: Path
    upload_mb: int = 100
    topic: str = ""
    language: str = ""
    is_demo: bool = False


@asynccontextmanager
async def connect(
    settings: ConsoleSettings,
    place: ConsolePlace,
    *,
    stdin: TextIO | None = None,
    stdout: TextIO | None = None,
    has_view: bool = True,
    host: ConsoleHost = NO_HOST,
) -> AsyncIterator[Channel]:
    """Open the console on `stdin` and `stdout`, by default the process's, or for attached consoles only."""
    view = open_view(settings, place, stdin or sys.stdin, stdout or sys.stdout) if has_view else None
    channel = ConsoleChannel(settings, place, view, host)
    try:
        if view is None:
            yield channel
        else:
            async with view:
                yield channel
    finally:
        await channel.close()


def open_view(settings: ConsoleSettings, place: ConsolePlace, source: TextIO | None, target: TextIO | None) -> Any:
    """Return a view on a terminal, or on pipes and files. It is a ConsoleView and a context manager."""
    downloads = Path(settings.downloads)
    if source is not None and target is not None and source.isatty() and target.isatty():
        from channels.console.tui import TerminalView

        return TerminalView(source, target, downloads, place.folder, place.upload_mb, is_demo=place.is_demo)
    return PlainView(source.fileno() if source else None, target.fileno() if target else None, downloads)


def person_name(settings: ConsoleSettings) -> str:
    return settings.name or _user_name()


def own_topic() -> str:
    """Return the topic of a conversation that no other console shares."""
    return uuid4().hex[:12]


class ConsoleChannel:
    """The consoles of one service: that of its own process, if it has one, and the attached ones."""

    name = NAME
    limits = ChannelLimits(text_limit=1_000_000, upload=1 << 40, download=0, edits_notify=True)
    window = 0.05

    def __init__(
        self, settings: ConsoleSettings, place: ConsolePlace, view: ConsoleView | None, host: ConsoleHost
    ) -> None:
        self.host = host
        self.receive: Receive | None = None  # while it listens
        self._place = place
        self._sessions: list[Session] = []
        self._local = None
        if view is not None:
            self._local = Session(self, view, person_name(settings), place.topic, place.language, is_local=True)
            self._sessions.append(self._local)
        self._replies: dict[int, ConsoleReply] = {}  # those in progress
        self._commands: list[tuple[str, str]] = own_commands()
        self._listening = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._background = BackgroundTasks()
        self._readiness = Readiness(Health.STARTING, time.time())

    async def listen(self, receive: Receive, catch_up: CatchUpSource = NO_CATCH_UP) -> None:
        """Offer the typed messages, until the input of this process ends."""
        self.receive = receive
        self._listening.set()
        self._readiness = Readiness(Health.READY, time.time())
        set_language(default_language(self._place.language))
        try:
            await (self._local.converse() if self._local else asyncio.Event().wait())
        finally:
            self._readiness = Readiness(Health.DOWN, time.time(), "the input has ended")

    def stop_listening(self) -> None:
        """Accept no more messages; what runs is still shown."""
        self.receive = None

    def readiness(self) -> Readiness:
        return self._readiness

    async def attach(self, hello: dict[str, Any], view: AttachedView) -> None:
        """Serve a console of another process until it leaves."""
        topic, language = str(hello.get("topic", "")), str(hello.get("language", ""))
        session = Session(self, view, str(hello["person"]), topic, language, is_local=False)
        self._sessions.append(session)
        view.set_completions(self._commands)
        leaving = asyncio.create_task(view.left.wait(), name="console attached")
        try:
            await self._listening.wait()
            await session.converse()
            if not (view.is_gone or view.is_interactive):
                idle = asyncio.create_task(self.host.wait_until_idle(session.thread), name="console idle")
                stopping = asyncio.create_task(session.stop_on_interrupt(), name="console stop")
                await asyncio.wait({idle, leaving}, return_when=asyncio.FIRST_COMPLETED)
                idle.cancel()
                stopping.cancel()
        except ChatGone as error:  # it left while something was written
            log.debug("console.closed reason=%s", error)
        finally:
            self._sessions.remove(session)
            await session.stop_unseen()
            view.close()
            leaving.cancel()

    async def close(self) -> None:
        """Let the attached consoles go."""
        for session in self._sessions:
            if isinstance(session.view, AttachedView):
                session.view.close()
        await self._background.cancel()

    # ------------------------------------------------------------ output

    def reply(self, thread: Thread, posts: SentMessages, *, to: str = "", asker: str = "") -> Reply:
        return ConsoleReply(self, thread, posts, to)

    async def send_files(self, thread: Thread, files: Sequence[OutgoingFile], posts: SentMessages) -> None:
        """Save the files on the first console that shows this conversation."""
        for index, file in enumerate(files):
            known = find_sent_message(posts, index)
            if known is None or known.id is None:
                await self._save_file(thread, file, posts, index)

    async def _save_file(self, thread: Thread, file: OutgoingFile, posts: SentMessages, index: int) -> None:
        [session, *others] = self.attended_sessions(thread)
        await posts.sending(index)
        try:
            path = await session.view.save_file(file)
        except ChannelError as error:
            await posts.unsent(index)
            raise _left_behind([session], error) from None
        await posts.sent(index, path)
        for other in others:
            await other.try_write(f"{file.name} → {path}")

    def fetch(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        return read_staged(attachment, uploads_folder(self._place))

    async def enrich(self, message: Message, earlier: int, since: float = 0.0) -> Message:
        return message

    def spell_command(self, thread: Thread, command: str) -> str:
        return f"/{command}"

    async def announce(self, commands: Sequence[CommandInfo]) -> None:
        self._commands = [*((command.name, _(command.help)) for command in commands), *own_commands()]
        for session in self._sessions:
            session.view.set_completions(self._commands)

    async def tell(self, text: str, look: Look = Look.PLAIN) -> None:
        """Print a line on every console with a person. Does not wait for one that hangs."""
        tasks = [
            self._background.start(session.try_write(text, look), "console-tell")
            for session in self._sessions
            if session.view.is_interactive
        ]
        if tasks:
            await asyncio.wait(tasks, timeout=TELL_SECONDS)

    def repeat_elsewhere(self, session: Session, text: str) -> None:
        """Show what a person typed on the other consoles of the same conversation."""
        for other in self.sessions_at(session.thread):
            if other is not session:
                self._background.start(other.try_write(_(OTHER_CONSOLE, text=text), Look.OWN), "console-tell")

    # ------------------------------------------------------------ sessions and replies

    def sessions_at(self, thread: Thread) -> list[Session]:
        return [session for session in self._sessions if session.thread == thread]

    def attended_sessions(self, thread: Thread) -> list[Session]:
        """Return those that have not left. Raises Unattended or ChatGone where there is none."""
        if sessions := [session for session in self.sessions_at(thread) if not session.view.is_gone]:
            return sessions
        if thread.topic:
            raise ChatGone(_("the console of this conversation was left"))
        raise Unattended("no console of this person is open")

    def running_replies(self, thread: Thread) -> list[ConsoleReply]:
        return [reply for reply in self._replies.values() if reply.thread == thread]

    def reply_began(self, reply: ConsoleReply) -> None:
        if id(reply) not in self._replies:
            self._replies[id(reply)] = reply
            for session in self.sessions_at(reply.thread):
                session.refresh_busy()

    def reply_ended(self, reply: ConsoleReply) -> None:
        self._replies.pop(id(reply), None)
        for session in self.sessions_at(reply.thread):
            session.reply_ended()

    def drop_reply(self, reply: ConsoleReply) -> None:
        """Stop showing what streamed: its final reply stands there now, or nothing will."""
        for session in self.sessions_at(reply.thread):
            session.view.drop(id(reply))

    def follow_progress(self) -> None:
        """Show the progress of the turns while a person waits."""
        if self._following is None or self._following.done():
            self._following = self._background.start(self._show_progress(), "console-progress")

    async def _show_progress(self) -> None:
        while busy := [session for session in self._sessions if session.busy]:
            for session in busy:
                if progress := self.host.progress(session.thread):
                    session.view.set_progress(progress)
            await asyncio.sleep(PROGRESS_SECONDS)


class ConsoleReply:
    """A running reply. A terminal cannot edit its output, so only the final reply is printed."""

    def __init__(self, console: ConsoleChannel, thread: Thread, posts: SentMessages, to: str) -> None:
        self.thread = thread
        self._console, self._posts, self._to = console, posts, to
        self._view = View()

    def show(self, block: Block) -> None:
        self._view.add(block)
        self._console.reply_began(self)
        for session in self._console.sessions_at(self.thread):
            session.show(id(self), block)

    def show_again(self, session: Session) -> None:
        """Show what there is of this reply on a console that was opened during the turn."""
        for block in self._view.blocks():
            session.show(id(self), block)

    async def finish(self, final: Final) -> None:
        """Print `final`, unless it was printed before a crash. Raises ChatGone, or Unattended without a console."""
        self._console.reply_ended(self)
        try:
            await self._print_once(final)
        finally:
            self._console.drop_reply(self)

    async def settle(self, final: Final, question: str, outcome: str) -> None:
        """Take no text for an option of the question any more. What is printed stays."""
        for session in self._console.sessions_at(self.thread):
            session.asks = tuple(ask for ask in session.asks if ask.id != question) if outcome else session.asks

    async def _print_once(self, final: Final) -> None:
        known = find_sent_message(self._posts)
        sessions = self._console.sessions_at(self.thread)
        if known and known.id is not None:
            for session in sessions:
                session.asks = final.asks or session.asks
            return
        if not sessions and self.thread.topic and final.state == "stopped":
            return  # by who left it, and nobody else reads here
        sessions = self._console.attended_sessions(self.thread)
        marks = [_(REPEAT_MARK)] if known else []
        keys = [keys_help()] if any(self._to and self._to in session.help_ids for session in sessions) else []
        text = "\n\n".join([final_text(final, *marks), *keys])
        if text.strip():
            await self._posts.sending(0)
            await self._print(sessions, final, self._final_reply(final, text))
            await self._posts.sent(0, uuid4().hex)

    @staticmethod
    async def _print(sessions: Sequence[Session], final: Final, shown: FinalReply) -> None:
        """Print on every console. Raises ChatGone if all of them left, Unattended where another one may come."""
        printing = [session.write_final(final, shown) for session in sessions]
        errors = [error for error in await asyncio.gather(*printing, return_exceptions=True) if error]
        if others := [error for error in errors if not isinstance(error, ChatGone)]:
            raise others[0]
        if len(errors) == len(sessions):
            raise _left_behind(sessions, errors[0])

    def _final_reply(self, final: Final, text: str) -> FinalReply:
        texts = [text for part, text in self._view.texts.items() if text.strip() and part != ANSWERED_PART]
        return FinalReply(
            text,
            final.state,
            tuple(texts[:-1]),
            final.steps,
            final.plan,
            final.seconds,
            final.tokens,
            of_turn=self._posts.key.startswith("r"),
            reply=id(self),
        )

    async def close(self) -> None:
        self._console.reply_ended(self)
        self._console.drop_reply(self)


def _left_behind(sessions: Sequence[Session], error: BaseException) -> BaseException:
    """Return what an answer's row is to do after an error: where attached consoles left it, the next one shows it."""
    if isinstance(error, ChatGone) and not all(each.thread.topic or each.is_local for each in sessions):
        return Unattended(str(error))
    return error


def uploads_folder(place: ConsolePlace) -> Path:
    return place.folder / "uploads"


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in containers
        return f"user{os.getuid()}"
