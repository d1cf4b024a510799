"""The words the bot answers itself, from one registry, at once: no queue, no model, on every channel the same.

A command runs inside the transaction that marks it done and writes its answer, so it has its effect once; what must
happen outside (cancelling a task) follows the commit and is repeated safely.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from agent.messages import Message, Thread
from agent.stored_json import Damaged
from bot import access
from bot.access import AccessPolicy
from bot.background import run_forever
from bot.storage import conversations
from bot.storage.database import Database, Execute, Row, StorageError
from channels.base import CommandInfo

log = logging.getLogger(__name__)

BATCH = 20  # commands taken in one look


@dataclass(frozen=True, slots=True)
class CommandService:
    """Values and functions of the running service that commands use."""

    models: Mapping[str, str]  # name → label of every model, the lead's first
    notify_seconds: float  # a turn that takes longer pings the requester; 0: only on request
    status: Callable[[], str]  # a few lines: version, model, sandbox, running turns
    stop_run: Callable[[int, str], None]  # cancels the work of a run for a person
    wake_scheduler: Callable[[], None]


@dataclass(frozen=True, slots=True)
class CommandCall:
    """One use of a command."""

    execute: Execute
    message: Message
    conversation: str
    words: str  # what follows the command's name
    doors: AccessPolicy
    service: CommandService
    after: list[Callable[[], None]]  # to do once the transaction is committed
    now: float

    @property
    def thread(self) -> Thread:
        return self.message.thread


@dataclass(frozen=True, slots=True)
class Command:
    """A command: `run` gives the answer (Markdown), "" for none; `words` names what may follow it."""

    name: str
    help: str
    run: Callable[[CommandCall], str]
    words: str = ""


def _help_command(call: CommandCall) -> str:
    lines = [f"`/{command.name}` {command.help}" for command in COMMANDS]
    return (
        "Write to me and I work on it in this conversation's own sandbox; files you send arrive there, files I leave"
        " in outputs/ come back. What you write while I work is taken into account.\n\n" + "\n".join(lines)
    )


def _new_command(call: CommandCall) -> str:
    conversations.begin_conversation(call.execute, call.thread, call.now)
    return "New conversation. The old one keeps its files and history."


def _stop_command(call: CommandCall) -> str:
    """Everything at this address that this person may stop."""
    runs = call.execute(
        "SELECT r.id, r.requester FROM runs r JOIN conversations c ON c.key=r.conversation"
        " WHERE c.thread=:thread AND r.state IN ('queued', 'running') AND r.stop_by=''",
        {"thread": str(call.thread)},
    )
    person = call.message.author
    withdrawn = call.execute(  # asked a moment ago, and not begun yet
        "UPDATE inbox SET state=2 WHERE conversation=:key AND author=:author AND state=0 AND run IS NULL"
        " AND kind='chat' RETURNING id",
        {"key": call.conversation, "author": f"{call.thread.channel}:{person.id}"},
    )
    if withdrawn:
        conversations.refresh_pending(call.execute, call.conversation)
    if not runs:  # who only put a ❌ on an old reply wants no answer
        return "Stopped." if withdrawn else "Nothing is running here." if call.message.addressed else ""
    allowed = call.doors.is_operator(call.thread.channel, person.id)
    mine = [int(run["id"]) for run in runs if allowed or run["requester"] == person.id]
    if not mine:
        return "Only the person who asked, or an operator, can stop this."
    for run in mine:
        call.execute("UPDATE runs SET stop_by=:by WHERE id=:run", {"by": person.id, "run": run})
        call.after.append(partial(call.service.stop_run, run, person.id))
    return "Stopped."


def _retry_command(call: CommandCall) -> str:
    """Offer the messages of the last run once more."""
    runs = call.execute(
        "SELECT id, state FROM runs WHERE conversation=:key ORDER BY id DESC LIMIT 1", {"key": call.conversation}
    )
    if not runs:
        return "There is nothing to try again yet."
    if runs[0]["state"] in ("queued", "running"):
        return "I am still working on it."
    if runs[0]["state"] == "waiting":  # whatever comes now is the answer
        return "I wait for your answer to my question; `/new` begins afresh."
    rows = call.execute(
        "SELECT payload FROM inbox WHERE run=:run AND kind='chat' AND state<>3 ORDER BY id", {"run": runs[0]["id"]}
    )
    for number, row in enumerate(rows):
        message = Message.load(row["payload"])
        again = replace(message, key=f"retry:{call.message.key}:{number}", author=call.message.author, time=call.now)
        call.execute(
            "INSERT INTO inbox(key, conversation, kind, author, payload, ready, received)"
            " VALUES (:key, :conversation, 'chat', :author, :payload, :now, :now) ON CONFLICT(key) DO NOTHING",
            {
                "key": again.key,
                "conversation": call.conversation,
                "author": f"{call.thread.channel}:{again.author.id}",
                "payload": again.dump(),
                "now": call.now,
            },
        )
    if not rows:
        return "There is nothing to try again yet."
    conversations.refresh_pending(call.execute, call.conversation)
    call.after.append(call.service.wake_scheduler)
    return "Trying again."


def _status_command(call: CommandCall) -> str:
    rows = call.execute(
        "SELECT c.title, c.model, (SELECT count(*) FROM runs WHERE conversation=c.key) AS turns,"
        " (SELECT started FROM runs WHERE conversation=c.key AND state='running'"
        " AND state IN ('queued', 'running')) AS since"  # the words of the index `runs_open`
        " FROM conversations c WHERE c.key=:key",
        {"key": call.conversation},
    )
    here = rows[0]
    doing = f"working for {call.now - here['since']:.0f} s" if here["since"] else "idle"
    title = f"“{here['title']}”, " if here["title"] else ""
    return (
        f"{call.service.status()}\nThis conversation: {title}{here['turns']} turn{'s' * (here['turns'] != 1)}, {doing}."
    )


def _model_command(call: CommandCall) -> str:
    models = call.service.models
    chosen = _chosen_model(call)
    if not call.words:
        return f"This conversation is answered by `{chosen}` ({models.get(chosen, 'not configured any more')})."
    wanted = call.words.split()[0]
    if wanted not in models:
        return f"There is no model `{wanted}`. " + _models_command(call)
    call.execute("UPDATE conversations SET model=:model WHERE key=:key", {"model": wanted, "key": call.conversation})
    return f"From the next turn on this conversation is answered by `{wanted}` ({models[wanted]})."


def _models_command(call: CommandCall) -> str:
    chosen = _chosen_model(call)
    lines = [
        f"`{name}` {label}{' (in use here)' if name == chosen else ''}" for name, label in call.service.models.items()
    ]
    return "Models:\n" + "\n".join(lines) + "\n`/model NAME` chooses one for this conversation."


def _notify_command(call: CommandCall) -> str:
    """When the end of a turn pings this person; kept for them on this channel, in every chat."""
    word = call.words.lower()
    person = {"channel": call.thread.channel, "person": call.message.author.id}
    if word:
        try:
            seconds = {"off": -1.0, "on": call.service.notify_seconds or 45.0}.get(word) or float(word)
        except ValueError:
            seconds = -2.0
        if not (seconds == -1.0 or 0 < seconds < 1e6):
            return "`/notify off`, `/notify on` or `/notify 120` (seconds) work."
        call.execute(
            "INSERT INTO people(channel, person, name, notify) VALUES (:channel, :person, :name, :notify)"
            " ON CONFLICT(channel, person) DO UPDATE SET notify=excluded.notify",
            {**person, "name": call.message.author.name, "notify": seconds},
        )
    after = access.notify_after(call.execute, **person, default=call.service.notify_seconds)
    if after is None:
        return "I do not ping you when something is done. `/notify on` or `/notify 120` changes that."
    return f"I ping you when something took longer than {after:g} s. `/notify off` or `/notify 120` changes that."


def _chosen_model(call: CommandCall) -> str:
    rows = call.execute("SELECT model FROM conversations WHERE key=:key", {"key": call.conversation})
    return str(rows[0]["model"]) or next(iter(call.service.models))


COMMANDS = (
    Command("help", "what I can do", _help_command),
    Command("new", "begin a new conversation here", _new_command),
    Command("stop", "stop what I am doing here", _stop_command),
    Command("retry", "try the last request again", _retry_command),
    Command("status", "how I am, and what this conversation does", _status_command),
    Command("model", "show or choose the model of this conversation", _model_command, "NAME"),
    Command("models", "list the models", _models_command),
    Command("notify", "whether and when I ping you at the end of long work", _notify_command, "on | off | SECONDS"),
)
REGISTRY: Mapping[str, Command] = {command.name: command for command in COMMANDS} | {"start": COMMANDS[0]}


def listed_commands() -> list[CommandInfo]:
    """For platforms that show commands natively."""
    return [CommandInfo(command.name, command.help, command.words) for command in COMMANDS]


class CommandRunner:
    """Takes commands from the inbox and answers them."""

    def __init__(
        self, store: Database, doors: AccessPolicy, service: CommandService, answered: Callable[[], None]
    ) -> None:
        self._store = store
        self._doors = doors
        self._service = service
        self._answered = answered
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """There may be commands."""
        self._wake.set()

    async def serve(self) -> None:
        """Answer commands until cancelled."""
        await run_forever("commands", self._answer_waiting)

    async def _answer_waiting(self) -> None:
        self._wake.clear()
        rows = await self._store.run(
            lambda execute: execute(
                "SELECT * FROM inbox WHERE state=0 AND kind='command' ORDER BY id LIMIT :most", {"most": BATCH}
            )
        )
        for row in rows:
            await self._answer_command(row)
        if len(rows) < BATCH:
            await self._wake.wait()

    async def _answer_command(self, row: Row) -> None:
        """One command, in a transaction of its own: what it did before it failed is undone."""
        after: Sequence[Callable[[], None]] = ()
        try:
            message = Message.load(row["payload"])
            after = await self._store.run(lambda execute: self._run(execute, row, message))
        except StorageError:
            raise
        except Damaged as error:
            await self._store.run(partial(conversations.bury, rows=[row], error=error, now=time.time()))
        except Exception:  # the boundary of one command: the others and the service go on
            name = message.text.partition(" ")[0]
            log.exception("command.fault name=%s", name)
            words = f"`/{name}` failed on my side; the operator can see why in the log."
            await self._store.run(lambda execute: _done(execute, row, message, words))
        for effect in after:
            effect()
        self._answered()

    def _run(self, execute: Execute, row: Row, message: Message) -> list[Callable[[], None]]:
        """Run a command. Returns what to call after the commit."""
        after: list[Callable[[], None]] = []
        name, _, words = message.text.partition(" ")
        log.info("command name=%s key=%s", name, message.key)
        if command := REGISTRY.get(name):
            answer = command.run(
                CommandCall(
                    execute, message, row["conversation"], words.strip(), self._doors, self._service, after, time.time()
                )
            )
        else:
            answer = f"I don't know `/{name}`. " + ", ".join(f"`/{command.name}`" for command in COMMANDS) + " work."
        _done(execute, row, message, answer)
        return after


def _done(execute: Execute, row: Row, message: Message, words: str) -> None:
    """The command has its answer, in the transaction of what it did."""
    execute("UPDATE inbox SET state=1 WHERE id=:id", {"id": row["id"]})
    if words:
        conversations.enqueue_notice(
            execute, message.thread, words, key=f"in:{row['id']}", now=time.time(), reply_to=message.id
        )
