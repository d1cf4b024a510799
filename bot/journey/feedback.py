"""Record what becomes of answers: 👍 and 👎 of people, and that a platform took one and did not deliver it."""

from __future__ import annotations

import logging
from dataclasses import replace

from agent.messages import Kind, Message
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Execute
from bot.database.states import OutboxState
from bot.rights.access import AccessPolicy
from bot.rights.current import Current
from bot.service.pings import tell_operators
from bot.storage import feedback, outbox, runs, sent_messages
from bot.storage.outbox import OutboxItem
from catalogue import N_, _
from channels.base import Receipt

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
    record = feedback.record_feedback if is_given else feedback.remove_feedback
    record(execute, run, event.author, event.text, event.time)
    what = {"value": event.text if event.text in feedback.VALUES else ""}
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
