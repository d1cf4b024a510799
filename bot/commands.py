"""Commands: the bot answers them itself, at once and the same on every channel.

A command runs inside the transaction that marks it done and enqueues its answer, so it has its effect once. Effects
outside (cancelling a task) follow the commit and can be repeated safely.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from zoneinfo import ZoneInfo

from agent.blocks import command_hint
from agent.messages import Kind, Message, Thread
from agent.stored_json import Damaged
from bot import access, claims, questions
from bot.background import run_forever
from bot.current import Current
from bot.storage import conversations, inbox, outbox, people, runs, transcripts
from bot.storage.conversations import ConversationRow
from bot.storage.database import Database, Execute, StorageError
from bot.storage.inbox import InboxRow
from bot.storage.jobs import count_jobs
from bot.storage.states import InboxState, RunState
from channels.base import Channel, CommandInfo

log = logging.getLogger(__name__)

BATCH = 20  # commands read at once
MAX_NAMED_THREADS = 10  # in an answer
MAX_FOUND, SNIPPET_CHARS = 10, 160


@dataclass(frozen=True, slots=True)
class CommandService:
    """Values and functions of the running service that commands use."""

    current: Current
    status: Callable[[], str]  # a few lines: version, model, sandbox, running turns
    stop_run: Callable[[int, str], None]  # cancels the work of a run for a person
    wake_scheduler: Callable[[], None]
    channel: Callable[[str], Channel | None]
    channel_states: Callable[[], Sequence[str]] = tuple  # a sentence for each channel


@dataclass(frozen=True, slots=True)
class CommandCall:
    """One use of a command."""

    execute: Execute
    message: Message
    conversation: str
    words: str  # what follows the command's name
    service: CommandService
    after: list[Callable[[], None]]  # to do after the commit
    now: float

    @property
    def current(self) -> Current:
        return self.service.current

    @property
    def thread(self) -> Thread:
        return self.message.thread

    @property
    def here(self) -> ConversationRow:
        row = conversations.find_conversation(self.execute, self.conversation)
        if row is None:
            raise LookupError(f"there is no conversation {self.conversation}")
        return row


@dataclass(frozen=True, slots=True)
class Command:
    """A command. `run` returns the answer (Markdown), "" for none; `words` names what may follow the command."""

    name: str
    help: str
    run: Callable[[CommandCall], str]
    words: str = ""


def _help_command(call: CommandCall) -> str:
    lines = [f"`{command_hint(command.name)}` {command.help}" for command in COMMANDS]
    return (
        "Write to me and I work on it in this conversation's own sandbox; files you send arrive there, files I leave"
        " in outputs/ come back. What you write while I work is taken into account.\n\n" + "\n".join(lines)
    )


def _new_command(call: CommandCall) -> str:
    if words := _threads_here(call):
        return (
            f"Each thread here is a conversation of its own. Mention me in a new message to begin one. {words}".strip()
        )
    closed = questions.close_open_questions(call.execute, call.conversation, call.now)
    conversations.begin_conversation(call.execute, call.thread, call.now)
    return "New conversation. The old one keeps its files and history." + " Its open question is closed." * closed


def _stop_command(call: CommandCall) -> str:
    """Stop every run at this address that this person may stop."""
    stoppable = runs.stoppable_runs(call.execute, call.thread)
    person = call.message.author
    allowed = call.current.access.is_operator(call.thread.channel, person.id)
    withdrawn = inbox.withdraw_pending(call.execute, call.conversation, call.message)  # no turn has begun with them
    if withdrawn:
        conversations.refresh_pending(call.execute, call.conversation)
    if not stoppable:  # a ❌ on an old reply needs no answer
        latest = runs.latest_run(call.execute, call.conversation)
        if latest and (allowed or latest.requester == person.id):
            withdrawn |= questions.close_open_questions(call.execute, call.conversation, call.now)
        if withdrawn or not call.message.addressed:
            return "Stopped." if withdrawn else ""
        return f"Nothing is running here. {_threads_here(call)}".strip()
    mine = [run.id for run in stoppable if allowed or run.requester == person.id]
    if not mine:
        return "Only the person who asked, or an operator, can stop this."
    for run in mine:
        runs.request_stop(call.execute, run, person.id)
        call.after.append(partial(call.service.stop_run, run, person.id))
    return "Stopped."


def _threads_here(call: CommandCall) -> str:
    """Name the running threads of a chat whose conversations are threads; "" elsewhere."""
    if call.message.private or call.thread.topic or runs.count_runs(call.execute, call.conversation):
        return ""
    threads = runs.threads_of_chat(call.execute, call.thread)
    busy = [f"“{title or 'without a title'}”" for title, is_busy in threads if is_busy]
    if not busy:
        return "None of the threads is running." if threads else ""
    more = f" and {len(busy) - MAX_NAMED_THREADS} more" if len(busy) > MAX_NAMED_THREADS else ""
    return f"Running threads: {', '.join(busy[:MAX_NAMED_THREADS])}{more}. Send the command inside one of them."


def _retry_command(call: CommandCall) -> str:
    """Offer the messages of the last run again."""
    run = runs.latest_run(call.execute, call.conversation)
    if run and run.state in (RunState.QUEUED, RunState.RUNNING):
        return "I am still working on it."
    if run and run.state == RunState.WAITING:  # the next message is the answer
        return f"I wait for your answer to my question; `{command_hint('new')}` begins afresh."
    rows = [
        row
        for row in (inbox.rows_of_run(call.execute, run.id) if run else ())
        if row.kind == Kind.CHAT and row.state != InboxState.DEAD
    ]
    if not rows:
        return "There is nothing to try again yet."
    for number, row in enumerate(rows):
        key = f"retry:{call.message.key}:{number}"
        again = replace(row.message, key=key, author=call.message.author, time=call.now)
        inbox.store_message(call.execute, again, call.conversation, ready=call.now, received=call.now)
    conversations.refresh_pending(call.execute, call.conversation)
    call.after.append(call.service.wake_scheduler)
    return "Trying again."


def _status_command(call: CommandCall) -> str:
    run = runs.latest_run(call.execute, call.conversation)
    turns = runs.count_runs(call.execute, call.conversation)
    doing = f"working for {call.now - run.started:.0f} s" if run and run.state == RunState.RUNNING else "idle"
    title = f"“{call.here.title}”, " if call.here.title else ""
    is_operator = call.current.access.is_operator(call.thread.channel, call.message.author.id)
    jobs = f"\n{count_jobs(call.execute)}" if is_operator else ""
    channels = "".join(f"\n{line}" for line in call.service.channel_states()) * (call.thread.channel == "console")
    return (
        f"{call.service.status()}{channels}{jobs}\nThis conversation: {title}{turns} turn{'s' * (turns != 1)}, {doing}."
    )


def _model_command(call: CommandCall) -> str:
    models = call.current.models
    chosen = _chosen_model(call)
    if not call.words:
        return f"This conversation is answered by `{chosen}` ({models.get(chosen, 'not configured any more')})."
    wanted = call.words.split()[0]
    if wanted not in models:
        return f"There is no model `{wanted}`. " + _models_command(call)
    conversations.choose_model(call.execute, call.conversation, wanted)
    return f"From the next turn on this conversation is answered by `{wanted}` ({models[wanted]})."


def _models_command(call: CommandCall) -> str:
    chosen = _chosen_model(call)
    lines = [
        f"`{name}` {label}{' (in use here)' if name == chosen else ''}" for name, label in call.current.models.items()
    ]
    return "Models:\n" + "\n".join(lines) + f"\n`{command_hint('model NAME')}` chooses one for this conversation."


def _notify_command(call: CommandCall) -> str:
    """Set when the end of a turn pings this person, in every chat of this channel."""
    word = call.words.lower()
    if word:
        try:
            seconds = {"off": -1.0, "on": call.current.limits.notify_seconds or 45.0}.get(word) or float(word)
        except ValueError:
            seconds = -2.0
        if not (seconds == -1.0 or 0 < seconds < 1e6):
            return f"{_notify_hints('off', 'on', '120')} (seconds) work."
        people.set_notify(call.execute, call.message, seconds)
    after = access.notify_after(
        call.execute, call.thread.channel, call.message.author.id, call.current.limits.notify_seconds
    )
    if after is None:
        return f"I do not ping you when something is done. {_notify_hints('on', '120')} changes that."
    return f"I ping you when something took longer than {after:g} s. {_notify_hints('off', '120')} changes that."


def _notify_hints(*words: str) -> str:
    hints = [f"`{command_hint(f'notify {word}')}`" for word in words]
    return ", ".join(hints[:-1]) + f" or {hints[-1]}"


def _search_command(call: CommandCall) -> str:
    """Search this chat only: everybody who reads the answer may read what it quotes."""
    words = call.words.split()[: transcripts.MAX_WORDS]
    if not words:
        forms = [f"`{command_hint(f'search {words}')}`" for words in ("WORDS", "budget 2026")]
        return f"{forms[0]} finds what was said in this chat, such as {forms[1]}."
    channel = call.service.channel(call.thread.channel)
    topics = channel is not None and not channel.limits.private_topics
    found = transcripts.search_chat(call.execute, call.thread, words, MAX_FOUND + 1, topics=topics)
    place = "chat" if topics else "thread"
    if not found:
        return f"I found nothing in this {place} with " + ", ".join(f"“{word}”" for word in words) + "."
    name = call.current.config.time_zone
    zone = ZoneInfo(name) if name else None
    lines = [
        f"- {datetime.fromtimestamp(entry.at, zone):%Y-%m-%d %H:%M} · {entry.name or 'I'}:"
        f" {_snippet(entry.text, words[0])}"
        for entry in found[:MAX_FOUND]
    ]
    if len(found) > MAX_FOUND:
        lines.append(f"\nThese are the newest {MAX_FOUND}; add words to find less.")
    return f"Found in this {place}, newest first:\n" + "\n".join(lines)


def _snippet(text: str, word: str) -> str:
    """Return the text around a word on one line, without characters that would format it."""
    line = " ".join(re.sub(r"[`*~|\[\]\\<>#]+", " ", text).split())
    begin = max(0, line.lower().find(word.lower()) - SNIPPET_CHARS // 3)
    cut = line[begin : begin + SNIPPET_CHARS]
    return f"{'…' * (begin > 0)}{cut}{'…' * (begin + len(cut) < len(line))}"


def _chosen_model(call: CommandCall) -> str:
    return call.here.model or next(iter(call.current.models))


COMMANDS = (
    Command("help", "what I can do", _help_command),
    Command("new", "begin a new conversation here", _new_command),
    Command("stop", "stop what I am doing here", _stop_command),
    Command("retry", "try the last request again", _retry_command),
    Command("status", "how I am, and what this conversation does", _status_command),
    Command("model", "show or choose the model of this conversation", _model_command, "NAME"),
    Command("models", "list the models", _models_command),
    Command("search", "find what was said in this chat", _search_command, "WORDS"),
    Command("notify", "whether and when I ping you at the end of long work", _notify_command, "on | off | SECONDS"),
)
REGISTRY: Mapping[str, Command] = {command.name: command for command in COMMANDS} | {"start": COMMANDS[0]}


def listed_commands() -> list[CommandInfo]:
    """Return the commands for platforms that show them natively."""
    return [CommandInfo(command.name, command.help, command.words) for command in COMMANDS]


class CommandRunner:
    """Answers the commands in the inbox."""

    def __init__(self, store: Database, service: CommandService, answered: Callable[[], None]) -> None:
        self._store = store
        self._service = service
        self._answered = answered
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Look for commands."""
        self._wake.set()

    async def serve(self) -> None:
        """Answer commands until cancelled."""
        await run_forever("commands", self._answer_waiting)

    async def _answer_waiting(self) -> None:
        self._wake.clear()
        rows = await self._store.run(lambda execute: inbox.pending_commands(execute, BATCH))
        for row in rows:
            await self._answer_command(row)
        if len(rows) < BATCH:
            await self._wake.wait()

    async def _answer_command(self, row: InboxRow) -> None:
        """Run a command in its own transaction: a failure undoes what it did."""
        after: Sequence[Callable[[], None]] = ()
        try:
            message = row.message
            after = await self._store.run(lambda execute: self._run(execute, row, message))
        except StorageError:
            raise
        except Damaged as error:
            await self._store.run(partial(claims.bury_messages, rows=[row], error=error, now=time.time()))
        except Exception:  # the boundary of one command
            name = message.text.partition(" ")[0]
            log.exception("command.fault name=%s", name)
            words = f"`{command_hint(name)}` failed on my side; the operator can see why in the log."
            await self._store.run(lambda execute: _finish_command(execute, row, message, words))
        for effect in after:
            effect()
        self._answered()

    def _run(self, execute: Execute, row: InboxRow, message: Message) -> list[Callable[[], None]]:
        """Run a command. Returns what to call after the commit."""
        after: list[Callable[[], None]] = []
        name, _, words = message.text.partition(" ")
        log.info("command name=%s key=%s", name, message.key)
        if command := REGISTRY.get(name):
            answer = command.run(
                CommandCall(execute, message, row.conversation, words.strip(), self._service, after, time.time())
            )
        else:
            known = ", ".join(f"`{command_hint(command.name)}`" for command in COMMANDS)
            answer = f"I don't know `{command_hint(name)}`. {known} work."
        _finish_command(execute, row, message, answer)
        return after


def _finish_command(execute: Execute, row: InboxRow, message: Message, words: str) -> None:
    """Mark the command as done and enqueue its answer."""
    inbox.set_state(execute, row.id, InboxState.DONE)
    if words:
        key = f"in:{row.id}"
        outbox.enqueue_notice(execute, message.thread, words, key=key, now=time.time(), reply_to=message.id)
