"""Store the tool calls that people allowed for the future, in a conversation or everywhere."""

from __future__ import annotations

from dataclasses import dataclass

from agent.messages import Author, Thread
from agent.permissions.rules import Grant
from bot.database.database import Execute
from bot.database.rows import insert_row, read_rows

EVERYWHERE = ""  # in place of a conversation


@dataclass(frozen=True, slots=True)
class GrantRow:
    """A grant, and the person who gave it."""

    id: int
    conversation: str
    tool: str
    subject: str
    channel: str
    person: str
    name: str
    place: str  # where it was given
    given: float = 0.0

    @property
    def thread(self) -> Thread:
        return Thread.parse(self.place) if self.place else Thread(self.channel, "", "")


def store_grant(execute: Execute, conversation: str, grant: Grant, place: Thread, by: Author, now: float) -> None:
    """Store a grant for a conversation or EVERYWHERE. One that is given again belongs to its new giver."""
    giver = {"channel": place.channel, "person": by.id, "name": by.name, "given": now, "place": str(place)}
    values = {"conversation": conversation, "tool": grant.tool, "subject": grant.subject, **giver}
    insert_row(execute, "permission_grants", "conversation, tool, subject", values, update=[*giver])


def matching_grants(execute: Execute, conversation: str, grant: Grant) -> list[GrantRow]:
    """Return the grants of the conversation and of operators that cover this call."""
    sql = (
        "SELECT * FROM permission_grants WHERE conversation IN (:conversation, '') AND tool=:tool AND subject=:subject"
        " ORDER BY id"
    )
    return read_rows(execute, GrantRow, sql, conversation=conversation, tool=grant.tool, subject=grant.subject)


def list_grants(execute: Execute, conversation: str) -> list[GrantRow]:
    """Return the grants of the conversation, then those of operators."""
    sql = "SELECT * FROM permission_grants WHERE conversation IN (:conversation, '') ORDER BY conversation='', id"
    return read_rows(execute, GrantRow, sql, conversation=conversation)


def revoke_grant(execute: Execute, id: int) -> None:
    """Delete a grant."""
    execute("DELETE FROM permission_grants WHERE id=:id", {"id": id})
