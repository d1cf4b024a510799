"""Access rules: which people may talk, and which may act for others."""

from __future__ import annotations

from collections.abc import Mapping

from agent.messages import Message
from bot.config.schema import AccessConfig
from bot.storage import people
from bot.storage.database import Execute
from bot.storage.people import PersonRow
from bot.storage.states import PairingState

LOCAL_CHANNEL = "console"  # its person started the service


class AccessPolicy:
    """The access rules of every channel, and the people whom pairing allowed."""

    def __init__(self, rules: Mapping[str, AccessConfig]) -> None:
        self._rules = rules

    def rules_for(self, channel: str) -> AccessConfig:
        """Return the rules of one channel; the strictest where none are configured."""
        return self._rules.get(channel, AccessConfig(pairing=False))

    def is_operator(self, execute: Execute, channel: str, person: str) -> bool:
        """Return whether this person may act for others (stop their turns, accept pairings, …)."""
        rule = self.rules_for(channel)
        if person in rule.operators or (channel == LOCAL_CHANNEL and rule.open):
            return True
        known = people.find_person(execute, channel, person)
        return bool(known and known.operator)

    def reachable_operators(self, execute: Execute, *, console: bool) -> list[PersonRow]:
        """Return the operators whose private chat with the bot is known; the terminal's while its `console` is open."""
        named = [(channel, id) for channel, rule in self._rules.items() for id in rule.operators]
        found = [people.find_person(execute, *each) for each in named] + people.list_operators(execute)
        if console and self.rules_for(LOCAL_CHANNEL).open:
            found += people.list_people(execute, LOCAL_CHANNEL)
        return [*{(row.channel, row.person): row for row in found if row and row.thread}.values()]

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
        return bool(person and person.allowed == PairingState.ALLOWED)


def notify_after(execute: Execute, channel: str, person: str, default: float) -> float | None:
    """Return after how many seconds the end of a turn pings this person; None: never."""
    known = people.find_person(execute, channel, person)
    seconds = default if known is None or known.notify is None else known.notify
    return seconds if seconds > 0 else None
