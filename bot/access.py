"""Access rules and pairing: who may talk, and who may act for others."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from agent.messages import Message
from bot.config.schema import AccessConfig
from bot.storage.database import Execute, Row

PAIRING_CODE_SECONDS = 3600.0
_CODE_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"  # no 0/O, 1/I


@dataclass(frozen=True, slots=True)
class PairedPerson:
    """The person behind an accepted code, and where they asked."""

    channel: str
    person: str
    name: str
    thread: str


class AccessPolicy:
    """The access rules of every channel, and the people that pairing let in."""

    def __init__(self, rules: Mapping[str, AccessConfig]) -> None:
        self._rules = rules

    def rules_for(self, channel: str) -> AccessConfig:
        """The rules of one channel; the strictest where none are configured."""
        return self._rules.get(channel, AccessConfig(pairing=False))

    def is_operator(self, channel: str, person: str) -> bool:
        """May this person act for others (stop their turns, …)?"""
        return person in self.rules_for(channel).operators

    def may_talk(self, execute: Execute, message: Message) -> bool:
        """May this person talk to the bot in this chat? `allow` names people, chats or workspaces; somebody from
        outside the team must be named themselves, or the chat; a bot must be named itself."""
        channel, author, place = message.thread.channel, message.author, message.thread
        rule = self.rules_for(channel)
        if author.id in {*rule.allow, *rule.operators}:
            return True
        if author.bot:
            return False
        if place.chat in rule.allow or (not author.guest and (rule.open or place.workspace in rule.allow)):
            return True
        rows = execute(
            "SELECT allowed FROM people WHERE channel=:channel AND person=:person",
            {"channel": channel, "person": author.id},
        )
        return bool(rows and rows[0]["allowed"])

    def ask_pairing(self, execute: Execute, message: Message, now: float) -> str:
        """A stranger wrote in a private chat: the sentence with their code, or "" when nothing should be said.

        One code a person and an hour: who writes again before it runs out is not told again.
        """
        channel, author = message.thread.channel, message.author
        if not message.private or not self.rules_for(channel).pairing or author.bot:
            return ""
        rows = execute(
            "SELECT until FROM people WHERE channel=:channel AND person=:person AND until>:now",
            {"channel": channel, "person": author.id, "now": now},
        )
        if rows:
            return ""
        code = "".join(secrets.choice(_CODE_LETTERS) for _ in range(8))
        execute(
            "INSERT INTO people(channel, person, name, code, until, thread)"
            " VALUES (:channel, :person, :name, :code, :until, :thread)"
            " ON CONFLICT(channel, person) DO UPDATE SET name=excluded.name, code=excluded.code,"
            " until=excluded.until, thread=excluded.thread",
            {
                "channel": channel,
                "person": author.id,
                "name": author.name,
                "code": code,
                "until": now + PAIRING_CODE_SECONDS,
                "thread": str(message.thread),
            },
        )
        return (
            f"I don't know you yet. Ask the operator of this bot to run `fawn pair accept {code}`"
            " (the code is good for an hour). Then write to me again."
        )


def accept_pairing(execute: Execute, code: str, now: float) -> PairedPerson | None:
    """Let the person with this code in; None when the code is unknown, used or too old."""
    rows = execute(
        "UPDATE people SET allowed=1, code='', until=0 WHERE code=:code AND code<>'' AND until>:now"
        " RETURNING channel, person, name, thread",
        {"code": code.strip().upper(), "now": now},
    )
    return PairedPerson(**dict(rows[0])) if rows else None


def notify_after(execute: Execute, channel: str, person: str, default: float) -> float | None:
    """Seconds after which the end of a turn pings this person; None: never."""
    rows = execute(
        "SELECT notify FROM people WHERE channel=:channel AND person=:person", {"channel": channel, "person": person}
    )
    own: float | None = rows[0]["notify"] if rows else None
    seconds = default if own is None else own
    return seconds if seconds > 0 else None


def revoke_pairing(execute: Execute, channel: str, person: str) -> bool:
    """Take the permission or the code that pairing gave; False when there was none."""
    rows = execute(
        "DELETE FROM people WHERE channel=:channel AND person=:person AND (allowed=1 OR code<>'') RETURNING person",
        {"channel": channel, "person": person},
    )
    return bool(rows)


def list_paired(execute: Execute, now: float) -> list[Row]:
    """Everybody that pairing knows: allowed people, and codes that still wait."""
    return list(
        execute(
            "SELECT channel, person, name, allowed, code, until FROM people WHERE allowed=1 OR until>:now"
            " ORDER BY allowed, channel, name",
            {"now": now},
        )
    )
