"""One console: what a person types becomes messages of a conversation, and its replies are shown."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Protocol
from uuid import uuid4

from agent.blocks import Ask, Block, Final
from agent.messages import Attachment, Author, Kind, Message, Origin, Thread
from catalogue import N_, _, set_language
from channels.base import ChatGone, NotStored, Receipt, Receive, parse_command_text
from channels.console.view import ConsoleHost, ConsoleView, FinalReply, Key, Look, Typed, detail_lines
from channels.shared.texts import NOT_STORED, expiry_note, language_of

log = logging.getLogger(__name__)

NAME = "console"
LEAVE_COMMANDS = ("/quit", "/exit")
STORE_RETRY_SECONDS = 1.0
KEYS_TITLE = N_("**On this console**")
KEYS_HELP = (
    ("@path", N_("sends a file with your message; so does a file that you drop on the terminal")),
    ("Alt-Enter", N_("begins a new line")),
    ("Ctrl-R", N_("searches what you typed before; Enter sends what it found")),
    ("Ctrl-O", N_("shows the steps of the last answer, as does `/steps`")),
    ("Ctrl-C", N_("stops what I'm doing; pressed again, leaves")),
    ("Ctrl-D", N_("leaves, as does `/quit`")),
)
NO_ACCESS = N_("You're not on the list of this console: see `channels.console.access`.")
STOPPING = N_("Stopping what I'm doing… {leaving}")
LEAVE_ATTACHED = N_("Press Ctrl-C again to leave; Fawn keeps running.")
SERVICE_ENDS = N_("Fawn is stopping, so it did not take your message. Send it again after the next start.")
NO_STEPS = N_("There are no steps to show yet.")
STILL_OPEN = N_("This question is still open:")


class ShownReply(Protocol):
    """A running reply, as far as a console shows it."""

    def show_again(self, session: Session) -> None:
        """Show what there is of it on a console that was opened during the turn."""


class SharedConsole(Protocol):
    """What a session asks of the channel that it belongs to."""

    host: ConsoleHost
    receive: Receive | None

    def sessions_at(self, thread: Thread) -> Sequence[Session]:
        """Return all sessions of a conversation."""

    def running_replies(self, thread: Thread) -> Sequence[ShownReply]:
        """Return the replies of a conversation that are not final yet."""

    def repeat_elsewhere(self, session: Session, text: str) -> None:
        """Show what a person typed on the other consoles of the same conversation."""

    def follow_progress(self) -> None:
        """Show the progress of the turns while a person waits."""


class Session:
    """One view on one conversation. The end of the `is_local` one ends the service."""

    def __init__(
        self,
        console: SharedConsole,
        view: ConsoleView,
        person: str,
        topic: str = "",
        language: str = "",
        *,
        is_local: bool,
    ) -> None:
        self.view = view
        self.thread = Thread(NAME, "local", person, topic)
        self.is_local = is_local
        self.asks: tuple[Ask, ...] = ()
        self.help_ids: set[str] = set()  # of messages whose answers also explain the keys
        self._console = console
        self._author = Author(person, person, language=language)
        self._waiting = False  # for the reply to a message
        self._stopping = False
        self._leave_asked = False
        self._last: FinalReply | None = None

    # ------------------------------------------------------------ input

    async def converse(self) -> None:
        """Offer what the person types, until the input ends or the person leaves."""
        self._speak()
        await self._show_what_is_open()
        while (event := await self.view.read()) is not None:
            self._speak()  # `/language` may have changed it
            if event is Key.INTERRUPT:
                if not await self._handle_interrupt():
                    return
                continue
            self._leave_asked = False
            if isinstance(event, Key):
                await self._write_steps()
            elif event.text.strip() in LEAVE_COMMANDS:
                return
            elif event.text.strip() == "/steps":
                await self._write_steps()
            elif event.text.strip() or event.files:
                await self._take(event)

    async def stop_on_interrupt(self) -> None:
        """Stop the turn of a view without a person when it asks for that, until it leaves."""
        while (event := await self.view.read()) is not None:
            if event is Key.INTERRUPT and self.busy:
                await self._offer(self._make_event(Kind.COMMAND, "stop"))

    def _speak(self) -> None:
        """Speak the person's language in this task, and have the view do so."""
        language = language_of(self.thread, self._author)
        set_language(language)
        self.view.set_language(language)

    async def stop_unseen(self) -> None:
        """Stop the turn of a conversation that nobody can return to."""
        if self.thread.topic and self.busy:
            await self._offer(self._make_event(Kind.COMMAND, "stop"))

    async def _show_what_is_open(self) -> None:
        for line, is_good in (
            () if self.is_local or not self.view.is_interactive else self._console.host.describe_channels()
        ):
            await self.view.write(line, Look.HINT if is_good else Look.FAULT)
        for reply in self._console.running_replies(self.thread):
            reply.show_again(self)
        self.refresh_busy()
        final = await self._console.host.open_question(self.thread)
        self.asks = final.asks if final else ()  # what comes may answer it, also where nobody reads it
        if final and self.view.is_interactive:
            await self.view.write(_(STILL_OPEN), Look.HINT)
            await self.write_final(final, FinalReply(final_text(final)))

    async def _take(self, typed: Typed) -> None:
        message = self._make_message(typed.text.strip(), typed.files)
        if not await self._offer(message):
            return
        if message.kind is Kind.COMMAND:
            self.help_ids |= {message.id} if message.text.partition(" ")[0] in ("help", "start") else set()
            return
        self._waiting = not self._console.running_replies(self.thread)
        self.refresh_busy()
        self._console.repeat_elsewhere(self, message.text)

    def _make_message(self, text: str, files: tuple[Attachment, ...]) -> Message:
        command = None if files else parse_command_text(text)
        kind, target = (Kind.CHAT, "") if command is None else (Kind.COMMAND, "")
        if len(self.asks) == 1 and command is None and not files and (option := self.asks[0].match_option(text)):
            kind, target, text = Kind.CLICK, self.asks[0].id, option
        if command in (None, "new", "stop"):  # a message answers the question, the commands close it
            for session in self._console.sessions_at(self.thread):
                session.asks = ()
        return self._make_event(kind, command if command is not None else text, target, files)

    def _make_event(self, kind: Kind, text: str, target: str = "", files: tuple[Attachment, ...] = ()) -> Message:
        number = uuid4().hex
        key = f"{NAME}/local/{self._author.id}/{number}"
        return Message(
            self.thread,
            key,
            number,
            self._author,
            text,
            time.time(),
            kind,
            files,
            target=target,
            private=True,
            origin=Origin.PERSON,
        )

    async def _offer(self, message: Message) -> bool:
        """Offer a message until it is stored, so that the person need not type it again. Returns whether it is."""
        notified = False
        while (receive := self._console.receive) is not None:
            try:
                receipts = await receive([message])
            except NotStored as error:
                if not notified:
                    await self.view.write(_(NOT_STORED), Look.FAULT)
                    log.error("console.not_stored reason=%s", error)  # noqa: TRY400 — the reason is enough
                notified = True
                await asyncio.sleep(STORE_RETRY_SECONDS)
                continue
            if receipts == [Receipt.IGNORED]:
                await self.view.write(_(NO_ACCESS), Look.FAULT)
                return False
            return True
        await self.try_write(_(SERVICE_ENDS), Look.FAULT)
        return False

    async def _handle_interrupt(self) -> bool:
        """Stop the running turn on Ctrl-C, or ask once more. Returns False to leave."""
        if self._leave_asked:
            return False
        self._leave_asked = True
        leaving = self._console.host.describe_leaving() if self.is_local else _(LEAVE_ATTACHED)
        if self.busy and not self._stopping:
            self._stopping = True
            await self.view.write(_(STOPPING, leaving=leaving), Look.HINT)
            await self._offer(self._make_event(Kind.COMMAND, "stop"))
        else:
            await self.view.write(leaving, Look.HINT)
        return True

    async def _write_steps(self) -> None:
        steps = detail_lines(self._last) if self._last else []
        await self.view.write("\n".join(steps) or _(NO_STEPS), Look.PLAIN if steps else Look.HINT)

    # ------------------------------------------------------------ output

    @property
    def busy(self) -> bool:
        """Whether the person waits for an answer."""
        return self._waiting or bool(self._console.running_replies(self.thread))

    def refresh_busy(self) -> None:
        """Show whether a turn is running."""
        self.view.set_busy(self.busy)
        if self.busy:
            self._console.follow_progress()

    def show(self, reply: int, block: Block) -> None:
        self._waiting = False
        self.view.show(reply, block)

    def reply_ended(self) -> None:
        self._waiting = self._stopping = False
        self.refresh_busy()

    async def write_final(self, final: Final, shown: FinalReply) -> None:
        """Print a final reply. Raises ChatGone if the output is closed."""
        if final.asks:
            self.asks = final.asks
        if shown.steps or shown.plan:
            self._last = shown
        self.view.set_language(language_of(self.thread, self._author))  # this may be the answer to `/language`
        await self.view.write_reply(shown)

    async def try_write(self, text: str, look: Look = Look.PLAIN) -> None:
        """Print a line that nothing depends on."""
        try:
            await self.view.write(text, look)
        except ChatGone as error:
            log.debug("console.closed reason=%s", error)


def own_commands() -> list[tuple[str, str]]:
    """Return the commands that the console itself answers, with their help."""
    return [("quit", _("leave the console"))]


def keys_help() -> str:
    """Return the keys of the console as Markdown, as `/help` has the commands."""
    return "\n".join([_(KEYS_TITLE), *(f"`{key}` {_(words)}" for key, words in KEYS_HELP)])


def final_text(final: Final, *before: str) -> str:
    """Return a final reply as Markdown, with the options of its questions and how to answer."""
    pieces = [*before]
    for markdown, ask in final.messages():
        pieces += [markdown, *(_describe_options(ask, alone=len(final.asks) == 1) if ask else ())]
    return "\n\n".join(piece for piece in pieces if piece)


def _describe_options(ask: Ask, *, alone: bool) -> Sequence[str]:
    """Return the options of a question, numbered if it is the only one, and how to answer."""
    note = [expiry_note(ask)] if ask.hours else []
    if not (ask.options and alone):
        return (["\n".join(f"- {option}" for option in ask.options)] if ask.options else []) + note
    hint = _("Type a number, or answer in your own words.") if ask.free_text else _("Type a number.")
    return ["\n".join(f"{i}. {option}" for i, option in enumerate(ask.options, 1)), hint, *note]
