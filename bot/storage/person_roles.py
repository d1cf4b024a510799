"""Roles that people gave with `/access`. A subject, `person:WORKSPACE/PERSON` or `chat:CHAT`, says whose it is: on some
platforms a direct chat has the id of its person.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent.messages import Author, Thread
from bot.database.database import Execute
from bot.database.rows import insert_row, read_rows

PERSON, CHAT = "person:", "chat:"  # what subjects begin with
_ENDS = "length(subject)>length(:person) AND substr(subject, length(subject)-length(:person))='/' || :person"
OF_PERSON = f"channel=:channel AND subject LIKE '{PERSON}%' AND {_ENDS}"
"""The condition for the roles of a person, in any workspace."""


@dataclass(frozen=True, slots=True)
class PersonRoleRow:
    """A role, whom it was given to (`name`, where it is known), and who gave it."""

    channel: str
    subject: str
    role: str
    name: str
    giver: str
    giver_name: str
    given: float

    @property
    def shown(self) -> str:
        """The subject as people write it: `WORKSPACE/PERSON`, or the chat."""
        return self.subject.removeprefix(PERSON).removeprefix(CHAT)

    @property
    def workspace(self) -> str:
        """Where the role of a person holds; "" for that of a chat."""
        return self.subject.removeprefix(PERSON).rpartition("/")[0] if self.person else ""

    @property
    def person(self) -> str:
        """The person; "" for the role of a chat."""
        return self.subject.rpartition("/")[2] if self.subject.startswith(PERSON) else ""


def person_subject(workspace: str, person: str) -> str:
    """Return the subject of a person in a workspace."""
    return f"{PERSON}{workspace}/{person}"


def chat_subject(chat: str) -> str:
    """Return the subject of everybody in a chat."""
    return f"{CHAT}{chat}"


def subjects_of(place: Thread, person: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what the configuration can name: the person in three ways, and the chat and workspace; most specific
    first."""
    return (f"{place.chat}/{person}", f"{place.workspace}/{person}", person), (place.chat, place.workspace)


def find_roles(execute: Execute, channel: str, subjects: Iterable[str]) -> Mapping[str, PersonRoleRow]:
    """Return the roles of these subjects."""
    named = {f"subject{number}": subject for number, subject in enumerate(subjects)}
    wanted = ", ".join(f":{name}" for name in named)
    sql = f"SELECT * FROM person_roles WHERE channel=:channel AND subject IN ({wanted})"
    return {row.subject: row for row in read_rows(execute, PersonRoleRow, sql, channel=channel, **named)}


def list_roles(execute: Execute) -> list[PersonRoleRow]:
    """Return all roles that were given."""
    return read_rows(execute, PersonRoleRow, "SELECT * FROM person_roles ORDER BY channel, role, name, subject")


def store_role(execute: Execute, place: Thread, subject: str, role: str, *, name: str, by: Author, now: float) -> None:
    """Store the role of a subject, in place of its earlier one."""
    values = {"role": role, "name": name, "giver": by.id, "giver_name": by.name, "given": now}
    insert_row(
        execute, "person_roles", "channel, subject", {"channel": place.channel, "subject": subject} | values, [*values]
    )


def roles_of_person(execute: Execute, channel: str, person: str) -> list[PersonRoleRow]:
    """Return the roles of a person in all workspaces."""
    sql = f"SELECT * FROM person_roles WHERE {OF_PERSON} ORDER BY subject"
    return read_rows(execute, PersonRoleRow, sql, channel=channel, person=person)


def delete_role(execute: Execute, channel: str, subject: str) -> None:
    """Delete the role of a subject."""
    values = {"channel": channel, "subject": subject}
    execute("DELETE FROM person_roles WHERE channel=:channel AND subject=:subject", values)
