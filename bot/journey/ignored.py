"""Events that get no answer: why, in the words of the log, and what is kept of them.

The talk of a group is kept for the next question there where the platform has no history that could be read then. The
first such message of a group where the bot is used is not kept: the group is told first.

Bound how long bots talk to each other: so many turns in a row, then silence until a person writes there.

Tell a person without access, who addresses the bot in a group, that it knows them not: rarely, and privately.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

from agent.blocks import command_hint
from agent.messages import Kind, Message
from agent.stored_json import Damaged
from bot.config.schema import ServiceLimits
from bot.database.database import Execute
from bot.database.states import PairingState
from bot.rights.access import AccessPolicy
from bot.storage import conversations, inbox, languages, outbox, overheard, people
from bot.storage.inbox import InboxRow
from catalogue import N_, _, format_duration

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


MAX_IGNORED = 5000  # that a process keeps for `fawn why`


@dataclass(frozen=True, slots=True)
class IgnoredEvent:
    """An event without an answer: when it came (unix time), why it has none, and whose it is. Not its words."""

    at: float
    key: str
    reason: str
    person: str  # the id: names are looked up, so that those of forgotten people are gone
    thread: str
    chat: str  # the title of its group, where the platform says it
    id: str

    @classmethod
    def of(cls, event: Message, reason: str, now: float) -> IgnoredEvent:
        """Return what is kept of an event."""
        reason, author = reason or OTHER_REASONS.get(event.kind, SEEN_BEFORE), event.author
        return cls(now, event.key, reason, author.id, str(event.thread), event.chat_name, event.id)


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


ONLY_BOTS = "only_bots"  # why an event was ignored
ROWS_PER_TURN = 10  # that are looked at: a bot may write several messages before a turn takes them
QUIET = N_(
    "Only bots have written to me here for {n} turns, so I don't answer them any more. When a person writes, I go on."
)


def bots_talk_too_long(execute: Execute, event: Message, allowed: int, now: float) -> bool:
    """Return whether a message of a bot would begin one turn too many. The chat gets one notice of it."""
    if not event.author.bot or event.kind is not Kind.CHAT:
        return False
    latest = inbox.latest_of_thread(execute, str(event.thread), (allowed + 1) * ROWS_PER_TURN)
    row_ids, turns = list[int](), set[int | None]()
    for row in latest:
        if row.kind != Kind.CHAT:
            continue
        if not _is_of_bot(row):
            break
        row_ids.append(row.id)
        turns.add(row.run)
    if len(turns) < allowed or (turns and latest[0].run is None):  # the latter waits, and this joins it
        return False
    with languages.speak_to(execute, event.thread, event.author):
        key = f"bots:{event.thread}:{min(row_ids, default=0)}"
        outbox.enqueue_notice(execute, event.thread, _(QUIET, n=allowed), key=key, now=now, reply_to=event.id)
    return True


def _is_of_bot(row: InboxRow) -> bool:
    try:
        return row.message.author.bot
    except Damaged:
        return False


DAY_SECONDS = 86400.0
MAX_PER_CHAT = 5  # people who are told within a day: a flood of strangers must not become one of the bot's
NO_ACCESS_PAIRING = N_(
    "I don't know you yet, so I can't answer you here. Write to me in a direct chat: I'll tell you how to get in."
)
NO_ACCESS_HERE = N_("I don't know you yet, so I can't answer you here. Whoever runs me can give you access.")


def answer_stranger(execute: Execute, access: AccessPolicy, message: Message, now: float) -> None:
    """Tell the author once a day in this chat that they have no access, unless they were declined or it is switched
    off."""
    channel, author = message.thread.channel, message.author
    rules = access.rules_for(channel)
    if message.private or not message.addressed or message.kind not in (Kind.CHAT, Kind.COMMAND):
        return
    if author.bot or not author.id or not rules.answer_strangers:
        return
    if is_declined(execute, message):
        return
    chat = f"no-access:{_digest(str(message.thread.without_topic))}:"
    person = f"{chat}{_digest(f'{channel}:{author.id}')}:"
    since = now - DAY_SECONDS
    if outbox.latest_notice(execute, person) > since or outbox.count_notices(execute, chat, since) >= MAX_PER_CHAT:
        return
    sentence = NO_ACCESS_PAIRING if rules.pairing else NO_ACCESS_HERE
    key = f"{person}{now:.0f}"
    with languages.speak_to(execute, message.thread, author):
        outbox.enqueue_notice(
            execute, message.thread, _(sentence), key=key, now=now, reply_to=message.id, reader=author.id
        )


def is_declined(execute: Execute, message: Message) -> bool:
    """Return whether an operator declined the author of a message."""
    known = people.find_person(execute, message.thread.channel, message.author.id)
    return known is not None and known.allowed == PairingState.DECLINED


def _digest(text: str) -> str:
    """Return what a row may keep: neither the person nor the chat by name."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=9).hexdigest()
