"""Commands: the bot answers them itself, at once and the same on every channel.

A command runs inside the transaction that marks it done and enqueues its answer, so it has its effect once. Effects
outside (cancelling a task) follow the commit and can be repeated safely.
"""

from __future__ import annotations

import asyncio
import difflib
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
from bot.storage import conversations, inbox, languages, outbox, people, runs, transcripts
from bot.storage.conversations import ConversationRow
from bot.storage.database import Database, Execute, StorageError
from bot.storage.inbox import InboxRow
from bot.storage.jobs import count_jobs
from bot.storage.states import InboxState, RunState
from catalogue import LANGUAGES, N_, _, current_language, format_duration, list_items, match_language, ngettext
from channels.base import Channel, CommandInfo

log = logging.getLogger(__name__)

WHAT_I_DO = N_(
    "Tell me what you need. I work in a private sandbox: send me files to use, and I send back what I make."
    " You can keep writing while I work."
)

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
    lines = [f"`{command_hint(command.name)}` {_(command.help)}" for command in COMMANDS]
    return "\n\n".join([_(WHAT_I_DO), "\n".join(lines)])


def _new_command(call: CommandCall) -> str:
    if words := _threads_here(call):
        begin = _("Each thread here is a conversation of its own. Mention me in a new message to begin one.")
        return f"{begin} {words}"
    closed = questions.close_open_questions(call.execute, call.conversation, call.now)
    conversations.begin_conversation(call.execute, call.thread, call.now)
    if closed:
        return _("A fresh start: I no longer see what was said before, and my open question is closed.")
    return _("A fresh start: I no longer see what was said before.")


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
            return _("Stopped.") if withdrawn else ""
        return f"{_('Nothing is running here.')} {_threads_here(call)}".strip()
    mine = [run.id for run in stoppable if allowed or run.requester == person.id]
    if not mine:
        return _("Only the person who asked, or an operator, can stop this.")
    for run in mine:
        runs.request_stop(call.execute, run, person.id)
        call.after.append(partial(call.service.stop_run, run, person.id))
    return _("Stopped.")


def _threads_here(call: CommandCall) -> str:
    """Name the running threads of a chat whose conversations are threads; "" elsewhere."""
    if call.message.private or call.thread.topic or runs.count_runs(call.execute, call.conversation):
        return ""
    threads = runs.threads_of_chat(call.execute, call.thread)
    busy = [_("“{title}”", title=title or _("without a title")) for title, is_busy in threads if is_busy]
    if not busy:
        return _("No thread is running.") if threads else ""
    if more := busy[MAX_NAMED_THREADS:]:
        busy = [*busy[:MAX_NAMED_THREADS], ngettext("{n} more", "{n} more", len(more))]
    return _("Running threads: {threads}. Send the command inside one of them.", threads=list_items(busy))


def _retry_command(call: CommandCall) -> str:
    """Offer the messages of the last run again."""
    run = runs.latest_run(call.execute, call.conversation)
    if run and run.state in (RunState.QUEUED, RunState.RUNNING):
        return _("I'm still working on it.")
    if run and run.state == RunState.WAITING:  # the next message is the answer
        return _("I'm waiting for your answer to my question. `{new}` starts over.", new=command_hint("new"))
    rows = [
        row
        for row in (inbox.rows_of_run(call.execute, run.id) if run else ())
        if row.kind == Kind.CHAT and row.state != InboxState.DEAD
    ]
    if not rows:
        return _("Nothing to retry in this conversation yet.")
    for number, row in enumerate(rows):
        key = f"retry:{call.message.key}:{number}"
        again = replace(row.message, key=key, author=call.message.author, time=call.now)
        inbox.store_message(call.execute, again, call.conversation, ready=call.now, received=call.now)
    conversations.refresh_pending(call.execute, call.conversation)
    call.after.append(call.service.wake_scheduler)
    return _("Trying again.")


def _status_command(call: CommandCall) -> str:
    run = runs.latest_run(call.execute, call.conversation)
    turns = runs.count_runs(call.execute, call.conversation)
    doing = _("idle")
    if run and run.state == RunState.RUNNING:
        doing = _("working for {time}", time=format_duration(call.now - run.started))
    title = [_("“{title}”", title=call.here.title)] if call.here.title else []
    here = list_items([*title, ngettext("{n} turn", "{n} turns", turns), doing])
    is_operator = call.current.access.is_operator(call.thread.channel, call.message.author.id)
    jobs = [str(count_jobs(call.execute))] if is_operator else []
    return "\n".join([call.service.status(), *jobs, _("This conversation: {here}.", here=here)])


def _model_command(call: CommandCall) -> str:
    models = call.current.models
    chosen = _chosen_model(call)
    if not call.words:
        label = models.get(chosen) or _("not configured any more")
        return _("`{name}` ({label}) answers here.", name=chosen, label=label)
    wanted = call.words.split()[0]
    if wanted not in models:
        return f"{_('I have no model `{name}`.', name=wanted)} {_models_command(call)}"
    conversations.choose_model(call.execute, call.conversation, wanted)
    return _("From your next message on, `{name}` ({label}) answers here.", name=wanted, label=models[wanted])


def _models_command(call: CommandCall) -> str:
    chosen = _chosen_model(call)
    lines = [
        _("`{name}` ({label}, in use here)", name=name, label=label) if name == chosen else f"`{name}` ({label})"
        for name, label in call.current.models.items()
    ]
    hint = _("`{command}` chooses one for this conversation.", command=command_hint("model NAME"))
    return "\n".join([_("Models:"), *lines, hint])


def _notify_command(call: CommandCall) -> str:
    """Set when the end of a turn pings this person, in every chat of this channel."""
    word = call.words.lower()
    if word:
        try:
            seconds = {"off": -1.0, "on": call.current.limits.notify_seconds or 45.0}.get(word) or float(word)
        except ValueError:
            seconds = -2.0
        if not (seconds == -1.0 or 0 < seconds < 1e6):
            return _(
                "Use `{on}`, `{off}`, or `{number}` (seconds).",
                on=command_hint("notify on"),
                off=command_hint("notify off"),
                number=command_hint("notify 120"),
            )
        people.set_notify(call.execute, call.message, seconds)
    after = access.notify_after(
        call.execute, call.thread.channel, call.message.author.id, call.current.limits.notify_seconds
    )
    if after is None:
        return _(
            "I don't ping you when something is done. `{on}` or `{number}` (seconds) changes that.",
            on=command_hint("notify on"),
            number=command_hint("notify 120"),
        )
    return _(
        "I ping you when something took longer than {time}. `{off}` or `{number}` (seconds) changes that.",
        time=format_duration(after),
        off=command_hint("notify off"),
        number=command_hint("notify 120"),
    )


def _language_command(call: CommandCall) -> str:
    """Show or choose the language of this person, or with "here" of this chat."""
    wanted, _space, place = call.words.lower().partition(" ")
    codes = {code: code for code in LANGUAGES} | {name.lower(): code for code, name in LANGUAGES.items()}
    code = "" if wanted == "auto" else codes.get(wanted) or match_language(wanted)
    if not wanted or (not code and wanted != "auto") or place not in ("", "here"):
        choices = list_items(f"`{command_hint(f'language {each}')}` ({name})" for each, name in LANGUAGES.items())
        return _(
            "I'm speaking {language}. Choose another language for yourself with {choices}, or let me choose with"
            " `{auto}`. Add `here` to choose for everyone in this chat.",
            language=LANGUAGES[current_language()],
            choices=choices,
            auto=command_hint("language auto"),
        )
    author, thread = call.message.author, call.thread
    if place and not (call.message.private or call.current.access.is_operator(thread.channel, author.id)):
        return _("Only an operator can choose the language of a group.")
    languages.choose_language(call.execute, thread, languages.CHAT if place else author.id, code)
    with languages.speak_to(call.execute, thread, author):
        name = LANGUAGES[code or current_language()]
        if place:
            return _("From now on I speak {language} in this chat, unless somebody chose another one.", language=name)
        return _("From now on I speak {language} with you.", language=name)


def _search_command(call: CommandCall) -> str:
    """Search this chat only: everybody who reads the answer may read what it quotes."""
    words = call.words.split()[: transcripts.MAX_WORDS]
    if not words:
        return _(
            "`{command}` finds what was said in this chat, such as `{example}`.",
            command=command_hint("search WORDS"),
            example=command_hint("search budget 2026"),
        )
    channel = call.service.channel(call.thread.channel)
    topics = channel is not None and not channel.limits.private_topics
    found = transcripts.search_chat(call.execute, call.thread, words, MAX_FOUND + 1, topics=topics)
    if not found:
        nothing = N_("I found nothing in this chat with {words}.")
        nothing = nothing if topics else N_("I found nothing in this thread with {words}.")
        return _(nothing, words=list_items(f"“{word}”" for word in words))
    name = call.current.config.time_zone
    zone = ZoneInfo(name) if name else None
    lines = [
        f"- {datetime.fromtimestamp(entry.at, zone):%Y-%m-%d %H:%M} · {entry.name or _('I')}:"
        f" {_snippet(entry.text, words[0])}"
        for entry in found[:MAX_FOUND]
    ]
    if len(found) > MAX_FOUND:
        lines += ["", _("These are the newest {n}; add words to find less.", n=MAX_FOUND)]
    heading = _("Found in this chat, newest first:") if topics else _("Found in this thread, newest first:")
    return "\n".join([heading, *lines])


def _snippet(text: str, word: str) -> str:
    """Return the text around a word on one line, without characters that would format it."""
    line = " ".join(re.sub(r"[`*~|\[\]\\<>#]+", " ", text).split())
    begin = max(0, line.lower().find(word.lower()) - SNIPPET_CHARS // 3)
    cut = line[begin : begin + SNIPPET_CHARS]
    return f"{'…' * (begin > 0)}{cut}{'…' * (begin + len(cut) < len(line))}"


def _chosen_model(call: CommandCall) -> str:
    return call.here.model or next(iter(call.current.models))


COMMANDS = (
    Command("help", N_("what I can do"), _help_command),
    Command("new", N_("begin a new conversation here"), _new_command),
    Command("stop", N_("stop what I am doing here"), _stop_command),
    Command("retry", N_("try the last request again"), _retry_command),
    Command("status", N_("is everything well, and what am I doing here?"), _status_command),
    Command("model", N_("show or change the model here"), _model_command, "NAME"),
    Command("models", N_("list the models"), _models_command),
    Command("search", N_("find what was said in this chat"), _search_command, "WORDS"),
    Command("notify", N_("get a ping when long work is done"), _notify_command, "on | off | SECONDS"),
    Command("language", N_("show or change the language I speak"), _language_command, "en | zh | auto"),
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
            await self._store.run(lambda execute: _report_fault(execute, row, message, name))
        for effect in after:
            effect()
        self._answered()

    def _run(self, execute: Execute, row: InboxRow, message: Message) -> list[Callable[[], None]]:
        """Run a command. Returns what to call after the commit."""
        after: list[Callable[[], None]] = []
        name, _space, words = message.text.partition(" ")
        log.info("command name=%s key=%s", name, message.key)
        with languages.speak_to(execute, message.thread, message.author):
            if command := REGISTRY.get(name):
                call = CommandCall(execute, message, row.conversation, words.strip(), self._service, after, time.time())
                answer = command.run(call)
            else:
                answer = _unknown_command(name)
            _finish_command(execute, row, message, answer)
        return after


def _unknown_command(name: str) -> str:
    if similar := difflib.get_close_matches(name, REGISTRY, 1):
        return _(
            "I don't know `{command}`. Did you mean `{similar}`?",
            command=command_hint(name),
            similar=command_hint(similar[0]),
        )
    return _(
        "I don't know `{command}`. `{help}` lists what I know.", command=command_hint(name), help=command_hint("help")
    )


def _report_fault(execute: Execute, row: InboxRow, message: Message, name: str) -> None:
    with languages.speak_to(execute, message.thread, message.author):
        words = _("`{command}` failed on my side. It's logged.", command=command_hint(name))
        _finish_command(execute, row, message, words)


def _finish_command(execute: Execute, row: InboxRow, message: Message, words: str) -> None:
    """Mark the command as done and enqueue its answer."""
    inbox.set_state(execute, row.id, InboxState.DONE)
    if words:
        key = f"in:{row.id}"
        outbox.enqueue_notice(execute, message.thread, words, key=key, now=time.time(), reply_to=message.id)
