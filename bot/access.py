"""Access rules and pairing: which people may talk, and which may act for others."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from agent.messages import Message
from bot.config.schema import AccessConfig
from bot.storage import people
from bot.storage.database import Execute

PAIRING_CODE_SECONDS = 3600.0
_CODE_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"  # no 0/O, 1/I


class AccessPolicy:
    """The access rules of every channel, and the people whom pairing allowed."""

    def __init__(self, rules: Mapping[str, AccessConfig]) -> None:
        self._rules = rules

    def rules_for(self, channel: str) -> AccessConfig:
        """Return the rules of one channel; the strictest where none are configured."""
        return self._rules.get(channel, AccessConfig(pairing=False))

    def is_operator(self, channel: str, person: str) -> bool:
        """Return whether this person may act for others (stop their turns, …)."""
        return person in self.rules_for(channel).operators

    def may_talk(self, execute: Execute, message: Message) -> bool:
        """Return whether the author may talk to the bot in this chat.

        `allow` names people, chats or workspaces. A guest must be named, or the chat; a bot must be named.
        """
        channel, author, place = message.thread.channel, message.author, message.thread
        rule = self.rules_for(channel)
        if author.id in {*rule.allow, *rule.operators}:
            return True
        if author.bot:
            return False
        if place.chat in rule.allow or (not author.guest and (rule.open or place.workspace in rule.allow)):
            return True
        person = people.find_person(execute, channel, author.id)
        return bool(person and person.allowed)

    def ask_pairing(self, execute: Execute, message: Message, now: float) -> str:
        """Create and return a pairing code for a person who is not allowed.

        "" outside private chats, and while an earlier code of this person is good: one code a person and an hour.
        """
        channel, author = message.thread.channel, message.author
        if not message.private or not self.rules_for(channel).pairing or author.bot:
            return ""
        person = people.find_person(execute, channel, author.id)
        if person and person.until > now:
            return ""
        code = "".join(secrets.choice(_CODE_LETTERS) for _ in range(8))
        people.store_code(execute, message, code, now + PAIRING_CODE_SECONDS)
        return code


def notify_after(execute: Execute, channel: str, person: str, default: float) -> float | None:
    """Return after how many seconds the end of a turn pings this person; None: never."""
    known = people.find_person(execute, channel, person)
    seconds = default if known is None or known.notify is None else known.notify
    return seconds if seconds > 0 else None
