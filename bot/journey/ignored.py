"""Why some events get no answer, in the words of the log."""

from __future__ import annotations

from collections.abc import Mapping

from agent.messages import Kind, Message, Unreadable
from bot.storage import people
from bot.storage.database import Execute
from bot.storage.states import PairingState
from channels.base import Receipt

NO_ACCESS, SEEN_BEFORE = "no_access", "ignored_before"
OTHER_REASONS: Mapping[Kind, str] = {  # of events that are no messages
    Kind.MOVED: "chat_moved",
    Kind.TITLE: NO_ACCESS,
    Kind.FEEDBACK: "not_an_answer",
    Kind.FEEDBACK_REMOVED: "not_an_answer",
    Kind.EDIT: "nothing_to_change",
    Kind.DELETE: "nothing_to_change",
    Kind.CLICK: "may_not_decide",
}


def refusal_reason(execute: Execute, message: Message, now: float) -> str:
    """Return why somebody who is not let in gets no answer."""
    person = people.find_person(execute, message.thread.channel, message.author.id)
    if person and person.allowed == PairingState.DECLINED:
        return "declined"
    return "waits_for_pairing" if person and person.until > now else NO_ACCESS


def describe_ignored(event: Message | Unreadable, receipt: Receipt, reason: str) -> str:
    """Return the end of the log line about an event, "" unless it is ignored."""
    if isinstance(event, Unreadable) or receipt is not Receipt.IGNORED:
        return ""
    reason = reason or OTHER_REASONS.get(event.kind, SEEN_BEFORE)
    return f" reason={reason} person={event.author.id or '-'} thread={event.thread}"
