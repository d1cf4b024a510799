"""Record what people think of answers: 👍 and 👎 on a message of the bot."""

from __future__ import annotations

from dataclasses import replace

from agent.messages import Kind, Message
from bot.rights.access import AccessPolicy
from bot.storage import audit, feedback, runs, sent_messages
from bot.storage.audit import AuditEvent, AuditKind
from bot.storage.database import Execute
from channels.base import Receipt


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
