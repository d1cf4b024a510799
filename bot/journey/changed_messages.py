"""Apply edits and deletions: before a turn, to the message; during it, the turn takes an edit in, or ends.

Also the deletion of the bot's own message, while it is being written, ends its turn.

Record what becomes of answers: 👍 and 👎 of people, and that a platform took one and did not deliver it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from agent.messages import Kind, Message
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Execute
from bot.database.states import InboxState, OutboxState
from bot.journey.ignored import NOT_ADDRESSED
from bot.rights.access import AccessPolicy
from bot.rights.current import Current
from bot.service.pings import tell_operators
from bot.storage import conversations, inbox, languages, outbox, outcomes, overheard, runs, sent_messages
from bot.storage.inbox import InboxRow
from bot.storage.outbox import OutboxItem
from catalogue import N_, _
from channels.base import Receipt

QUESTION_DELETED, ANSWER_DELETED = "withdrawn", "answer deleted"  # who stopped a run
LINKED = N_("This is what I linked to.")
REASONS = {
    QUESTION_DELETED: N_("The message was deleted, so I stopped."),
    ANSWER_DELETED: N_("My message was deleted, so I stopped."),
}
"""The last words of a reply, by the reason that stopped its run."""


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


def as_new_mention(execute: Execute, event: Message) -> Message | None:
    """Return the message that an edit makes of one which was not for the bot, by a mention; None for another edit."""
    if event.kind is not Kind.EDIT or event.private or not event.addressed:
        return None
    row = inbox.find_message(execute, event.target)
    if row is not None and row.error != NOT_ADDRESSED:
        return None
    overheard.change_message(execute, event.target, "")
    return replace(event, kind=Kind.CHAT, key=event.target, target="")


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
    same, links = event.text == old.text, [quote for quote in event.quotes if quote not in old.quotes]
    if event.kind is Kind.EDIT and ((same and not links) or event.author.id != old.author.id):
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


log = logging.getLogger(__name__)

AGAIN = "again"  # `Message.target` where it can be delivered once the person writes
DAY_SECONDS = 86_400.0
NOT_DELIVERED = N_(
    "**{channel} did not deliver what I wrote to {name}**, though it took it: {reason}. `fawn dead list` has it, and"
    " `fawn dead requeue` sends it again. I say this once a day for each chat."
)


def store_feedback(execute: Execute, access: AccessPolicy, event: Message) -> Receipt | Message:
    """Record what a person thinks of an answer. A 👎 on one that is still being written is returned as /stop."""
    run = sent_messages.run_of_message(execute, event.thread, event.reply_to)
    is_given = event.kind is Kind.FEEDBACK
    if run is not None and is_given and event.text == "down" and runs.is_open(execute, run):
        return replace(event, kind=Kind.COMMAND, text="stop")
    if run is None or not access.may_enter(execute, event):
        return Receipt.IGNORED
    record = outcomes.record_feedback if is_given else outcomes.remove_feedback
    record(execute, run, event.author, event.text, event.time)
    what = {"value": event.text if event.text in outcomes.VALUES else ""}
    result = "given" if is_given else "taken back"
    audit.record(
        execute, AuditEvent(AuditKind.FEEDBACK, event.thread, event.author.id, run=run, what=what, result=result)
    )
    return Receipt.ACCEPTED


def note_undelivered(execute: Execute, current: Current, event: Message, now: float) -> Receipt:
    """Make the delivery of a message a dead letter, or let it wait for the person. Returns IGNORED: it asks nothing."""
    found = sent_messages.reply_of_message(execute, event.thread, event.reply_to)
    item = outbox.find_row_of_reply(execute, found[0]) if found else None
    if not found or item is None or item.state != OutboxState.SENT:
        return Receipt.IGNORED
    sent_messages.forget_post(execute, *found)  # or another delivery would take it for visible
    if event.target == AGAIN:
        outbox.deliver_again(execute, item.id)
        log.warning("outbox.again row=%d thread=%s reason=%s", item.id, item.thread, event.text)
        return Receipt.IGNORED
    outbox.end_row(execute, item.id, OutboxState.DEAD, event.text)
    what: dict[str, int | str] = {"id": item.id, "kind": item.kind}
    audit.record(execute, AuditEvent(AuditKind.DEAD_LETTER, item.thread, run=item.run, what=what, result="undelivered"))
    log.error("outbox.undelivered row=%d thread=%s reason=%s", item.id, item.thread, event.text)
    _tell_operators(execute, current, event, item, now)
    return Receipt.IGNORED


def _tell_operators(execute: Execute, current: Current, event: Message, item: OutboxItem, now: float) -> None:
    name = event.author.name or event.author.id
    tell_operators(
        *(execute, current, f"undelivered:{item.thread}:{int(now // DAY_SECONDS)}"),
        *(lambda: _(NOT_DELIVERED, channel=event.thread.channel, name=name, reason=event.text), now),
        is_unheard=lambda _row, place: place.without_topic == event.thread.without_topic,
    )
