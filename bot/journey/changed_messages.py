"""Apply edits and deletions: before a turn, to the message; during it, the turn takes an edit in, or ends.

Also the deletion of the bot's own message, while it is being written, ends its turn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent.messages import Kind, Message
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Execute
from bot.database.states import InboxState
from bot.storage import conversations, inbox, languages, overheard, runs, sent_messages
from bot.storage.inbox import InboxRow
from catalogue import N_, _

QUESTION_DELETED, ANSWER_DELETED = "withdrawn", "answer deleted"  # who stopped a run
LINKED = N_("This is what I linked to.")
REASONS = {
    QUESTION_DELETED: N_("The message was deleted, so I stopped."),
    ANSWER_DELETED: N_("My message was deleted, so I stopped."),
}
"""What a reply says that ends for such a reason."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """A run that a deletion stopped, and by whom: a key of `REASONS`."""

    run: int
    by: str


def apply_change(execute: Execute, event: Message) -> Message | Stopped | None:
    """Apply an edit or a deletion. Returns what a running turn gets of it, or the run that it stops."""
    overheard.change_message(execute, event.target, event.text if event.kind is Kind.EDIT else "")
    if row := inbox.find_editable(execute, event.target):
        _change_waiting(execute, event, row)
        return None
    row = inbox.find_worked_on(execute, event.target)
    if row is None or row.run is None:
        if event.kind is Kind.DELETE and (run := _run_of_answer(execute, event)) is not None:
            return _stop(execute, event, run, ANSWER_DELETED)
        return None
    if event.kind is Kind.DELETE and inbox.is_only_message(execute, row):
        return _stop(execute, event, row.run, QUESTION_DELETED)
    return _as_steering(execute, event, row)


def _change_waiting(execute: Execute, event: Message, row: InboxRow) -> None:
    """Change a message with which no turn has begun. A queued run has not begun."""
    if event.kind is Kind.DELETE and row.run:  # its place in the queue is visible: that reply needs an end
        runs.request_stop(execute, row.run, QUESTION_DELETED)
    elif event.kind is Kind.DELETE:
        inbox.set_state(execute, row.id, InboxState.WITHDRAWN)
    else:
        old = row.message
        inbox.replace_message(execute, row.id, replace(old, text=event.text, quotes=event.quotes or old.quotes))
    _record(execute, event, {"id": row.id})
    conversations.refresh_pending(execute, row.conversation)


def _stop(execute: Execute, event: Message, run: int, by: str) -> Stopped:
    runs.request_stop(execute, run, by)
    _record(execute, event, {"run": run})
    return Stopped(run, by)


def _record(execute: Execute, event: Message, what: dict[str, int]) -> None:
    audit.record(
        execute, AuditEvent(AuditKind.MESSAGE, event.thread, event.author.id, what={**what, "kind": event.kind})
    )


def _run_of_answer(execute: Execute, event: Message) -> int | None:
    """Return the open run whose reply begins or began with this message. (The channel itself deletes later parts.)"""
    for thread in sent_messages.threads_of_message(execute, event.id):
        if (thread.channel, thread.workspace) == (event.thread.channel, event.thread.workspace):
            run = sent_messages.run_of_message(execute, thread, event.id, begins=True)
            if run is not None and runs.is_open(execute, run):
                return run
    return None


def _as_steering(execute: Execute, event: Message, row: InboxRow) -> Message | None:
    """Return the change of a message as a further one of its author, which the running turn takes."""
    old = row.message
    same = event.text == old.text
    if event.kind is Kind.EDIT and ((same and not event.quotes) or event.author.id != old.author.id):
        return None
    if conversations.find_current(execute, old.thread) != row.conversation:  # `/new`: another turn would take it
        return None
    with languages.speak_to(execute, old.thread, old.author):
        if event.kind is Kind.EDIT and same:
            text = _(LINKED)
        elif event.kind is Kind.EDIT:
            text = _("I changed it to: {text}", text=event.text)
        else:
            text = _("I deleted this message: {text}", text=old.text)
    return replace(
        old,
        key=event.key,
        kind=Kind.CHAT,
        text=text,
        quotes=event.quotes,
        attachments=(),
        time=event.time,
        addressed=True,
        group="",
        long=False,
        mode="",
        skill="",
    )
