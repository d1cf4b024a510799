"""Events that get no answer: why, in the words of the log, and what is kept of them.

The talk of a group is kept for the next question there where the platform has no history that could be read then. The
first such message of a group where the bot is used is not kept: the group is told first.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.blocks import command_hint
from agent.messages import Kind, Message, Unreadable
from bot.config.schema import ServiceLimits
from bot.database.database import Execute
from bot.database.states import PairingState
from bot.storage import conversations, languages, outbox, overheard, people
from catalogue import N_, _, format_duration
from channels.base import Receipt

NOT_ADDRESSED, NO_ACCESS, SEEN_BEFORE = "not_addressed", "no_access", "ignored_before"
DECLINED, WAITS_FOR_PAIRING, MAY_NOT_TALK = "declined", "waits_for_pairing", "may_not_talk"
OTHER_REASONS: Mapping[Kind, str] = {  # of events that are no messages
    Kind.MOVED: "chat_moved",
    Kind.TITLE: NO_ACCESS,
    Kind.FEEDBACK: "not_an_answer",
    Kind.FEEDBACK_REMOVED: "not_an_answer",
    Kind.EDIT: "nothing_to_change",
    Kind.DELETE: "nothing_to_change",
    Kind.CLICK: "may_not_decide",
    Kind.UNDELIVERED: "undelivered",
}

LISTENING = N_(
    "From now on I keep what is written in this group for {time}, so that I know what you talk about when somebody asks"
    " me here. I use it for nothing else. `{forget}` deletes yours, `{privacy}` says more."
)


def refusal_reason(execute: Execute, message: Message, now: float) -> str:
    """Return why somebody who is not let in gets no answer."""
    person = people.find_person(execute, message.thread.channel, message.author.id)
    if person and person.allowed == PairingState.DECLINED:
        return DECLINED
    return WAITS_FOR_PAIRING if person and person.until > now else NO_ACCESS


def describe_ignored(event: Message | Unreadable, receipt: Receipt, reason: str) -> str:
    """Return the end of the log line about an event, "" unless it is ignored."""
    if isinstance(event, Unreadable) or receipt is not Receipt.IGNORED:
        return ""
    reason = reason or OTHER_REASONS.get(event.kind, SEEN_BEFORE)
    return f" reason={reason} person={event.author.id or '-'} thread={event.thread}"


def keeps_talk(limits: ServiceLimits) -> bool:
    """Return whether the talk of groups is kept at all."""
    return limits.talk_hours > 0 and limits.earlier_messages > 0


def overhear(execute: Execute, message: Message, limits: ServiceLimits, now: float) -> None:
    """Keep a message that is not for the bot, if its platform has no history and its chat was told."""
    if not (message.fleeting and message.kind is Kind.CHAT and message.text and keeps_talk(limits)):
        return
    chat = message.thread.without_topic
    if overheard.is_listening(execute, chat):
        if message.time > now - limits.talk_hours * 3600:
            overheard.keep_message(execute, message)
    elif conversations.list_threads(execute, str(chat)):
        overheard.begin_listening(execute, chat, now)
        with languages.speak_to(execute, message.thread, message.author):
            time = format_duration(limits.talk_hours * 3600)
            words = _(LISTENING, time=time, forget=command_hint("forget me"), privacy=command_hint("privacy"))
        outbox.enqueue_notice(execute, message.thread, words, key=f"listening:{chat}:{now:.0f}", now=now)
