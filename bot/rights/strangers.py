"""Tell a person without access, who addresses the bot in a group, that it knows them not: rarely, and privately."""

from __future__ import annotations

from hashlib import blake2b

from agent.messages import Kind, Message
from bot.database.database import Execute
from bot.database.states import PairingState
from bot.rights.access import AccessPolicy
from bot.storage import languages, outbox, people
from catalogue import N_, _

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
