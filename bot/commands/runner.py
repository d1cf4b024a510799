"""Answer the commands of the inbox, each in its own transaction."""

from __future__ import annotations

import difflib
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial

from agent.blocks import command_hint
from agent.messages import Kind, Message
from agent.stored_json import Damaged
from bot.base.background import run_forever
from bot.commands.call import CommandCall, CommandService
from bot.commands.table import PressTable
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Database, Execute, StorageError
from bot.database.states import InboxState
from bot.database.wake_ups import Written
from bot.journey import claims
from bot.rights.work_rights import NOT_ALLOWED, record_refusal
from bot.storage import conversations, inbox, languages, outbox
from bot.storage.inbox import InboxRow
from catalogue import _

log = logging.getLogger(__name__)

BATCH = 20  # commands read at once


class CommandRunner:
    """Answers the commands in the inbox, and the presses on the bot's own questions."""

    def __init__(self, store: Database, service: CommandService, presses: PressTable) -> None:
        self._store = store
        self._service = service
        self._presses = presses
        self._wake = store.listen(Written.COMMAND)

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
            await self._store.run(partial(_bury_command, row=row, error=error))
        except Exception:  # the boundary of one command
            name = self._name_of(message)
            log.exception("command.fault name=%s", name)
            await self._store.run(lambda execute: self._report_fault(execute, row, message, name))
        for effect in after:
            effect()

    def _run(self, execute: Execute, row: InboxRow, message: Message) -> list[Callable[[], None]]:
        """Run a command that nobody has answered. Returns what to call after the commit."""
        after: list[Callable[[], None]] = []
        if not inbox.take_command(execute, row.id):  # another process was first
            return after
        if not self._service.current.access.may_enter(execute, message):  # they lost their access while it waited
            inbox.set_state(execute, row.id, InboxState.DONE, NOT_ALLOWED)
            record_refusal(execute, message)
            return after
        name, call = self._name_of(message), self._call(execute, message, row.conversation, after)
        log.info("command name=%s key=%s", name, message.key)
        with languages.speak_to(execute, message.thread, message.author):
            known = name
            if message.kind is Kind.PRESS:
                answer = self._presses.answer(call)
            elif command := self._service.commands.find(name):
                answer = command.answer(call)
            else:
                answer, known = self._unknown_command(name), ""
            _finish_command(execute, row, message, answer, known, "done" if known else "unknown")
        return after

    def _call(
        self, execute: Execute, message: Message, conversation: str, after: list[Callable[[], None]]
    ) -> CommandCall:
        words = message.text.partition(" ")[2]
        return CommandCall(execute, message, conversation, words.strip(), self._service, after, time.time())

    async def answer_now(self, message: Message) -> str:
        """Run a command that has nobody work, and return its answer instead of posting it. The audit has it."""
        after: list[Callable[[], None]] = []

        def work(execute: Execute) -> str:
            after.clear()  # a unit may run twice
            command = self._service.commands.find(self._name_of(message))
            if command is None or not self._service.current.access.may_enter(execute, message):
                raise LookupError(message.text)
            conversation = conversations.find_current(execute, message.thread)
            call = self._call(execute, message, conversation, after)
            with languages.speak_to(execute, message.thread, message.author):
                answer = command.answer(call)
            call.record(AuditKind.COMMAND, {"name": command.name, "via": "http"})
            return answer

        answer = await self._store.run(work)
        for effect in after:
            effect()
        return answer

    def _name_of(self, message: Message) -> str:
        """Return the name of a command, that of a press for one."""
        if message.kind is Kind.PRESS and (found := self._presses.find(message.target)):
            return found[1].name
        return message.text.partition(" ")[0]

    def _unknown_command(self, name: str) -> str:
        if similar := difflib.get_close_matches(name, self._service.commands.known, 1):
            return _(
                "I don't know `{command}`. Did you mean `{similar}`?",
                command=command_hint(name),
                similar=command_hint(similar[0]),
            )
        return _(
            "I don't know `{command}`. `{help}` lists what I know.",
            command=command_hint(name),
            help=command_hint("help"),
        )

    def _report_fault(self, execute: Execute, row: InboxRow, message: Message, name: str) -> None:
        if not inbox.take_command(execute, row.id):
            return
        with languages.speak_to(execute, message.thread, message.author):
            words = _("`{command}` failed on my side. It's logged.", command=command_hint(name))
            known = name if name in self._service.commands.known else ""
            _finish_command(execute, row, message, words, known, "failed")


def _bury_command(execute: Execute, row: InboxRow, error: Damaged) -> None:
    """Turn a command that cannot be read into a dead letter."""
    if inbox.take_command(execute, row.id):
        claims.bury_messages(execute, [row], error, time.time())


def _finish_command(execute: Execute, row: InboxRow, message: Message, words: str, name: str, outcome: str) -> None:
    """Enqueue the answer of a command that was taken. The audit gets its `name`, "" for one that may be anything."""
    what = {"name": name} if name else {}
    event = AuditEvent(AuditKind.COMMAND, message.thread, message.author.id, what=what, result=outcome)
    audit.record(execute, event)
    if words:
        key = f"in:{row.id}"
        outbox.enqueue_notice(execute, message.thread, words, key=key, now=time.time(), reply_to=message.id)
