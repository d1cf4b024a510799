"""People whom pairing knows, and their settings.

Roles that people gave with `/access`. A subject, `person:WORKSPACE/PERSON` or `chat:CHAT`, says whose it is: on some
platforms a direct chat has the id of its person.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agent.messages import Author, Message, Thread
from agent.stored_json import build_dataclass
from bot.database.database import Execute
from bot.database.rows import insert_row, read_row, read_rows
from bot.database.states import PairingState

_KEY = "channel, person"
_GOOD_CODE = "code=:code AND code<>'' AND until>:now"


@dataclass(frozen=True, slots=True)
class PersonRow:
    """A person on one channel. `code` is good until `until`; `notify` overrides after how many seconds a ping comes.
    `memory` is 0 for a person who switched memory off, and `zone` the time zone that they gave.

    Notifications go where `notify_where` says: "" in place, "dm", or "push" to `push_url`, a secret. They wait during
    the `quiet` hours ("22:00-07:00") and for the time of the `digest`.

    `thread` is where they wrote last in their private chat with the bot, if that is known, and `message` what they
    wrote while they wait.
    """

    channel: str
    person: str
    name: str
    allowed: int
    code: str
    until: float
    thread: str
    notify: float | None
    operator: int
    message: bytes
    memory: int
    zone: str
    notify_where: str
    quiet: str
    digest: str
    push_url: str

    @property
    def private_chat(self) -> Thread | None:
        """Their private chat, where it is known. It has no topic: the one in which they wrote last may be gone."""
        return Thread.parse(self.thread).without_topic if self.thread else None


def find_person(execute: Execute, channel: str, person: str) -> PersonRow | None:
    """Return a person."""
    sql = "SELECT * FROM people WHERE channel=:channel AND person=:person"
    return read_row(execute, PersonRow, sql, channel=channel, person=person)


def list_people(execute: Execute, channel: str) -> list[PersonRow]:
    """Return everybody who is known on a channel."""
    return read_rows(execute, PersonRow, "SELECT * FROM people WHERE channel=:channel", channel=channel)


def list_operators(execute: Execute) -> list[PersonRow]:
    """Return the people whom pairing made operators."""
    return read_rows(execute, PersonRow, "SELECT * FROM people WHERE operator=1")


def list_paired(execute: Execute, now: float) -> list[PersonRow]:
    """Return the people who were allowed or declined, and those whose code is still good."""
    sql = "SELECT * FROM people WHERE allowed<>0 OR until>:now ORDER BY allowed, channel, name"
    return read_rows(execute, PersonRow, sql, now=now)


def count_waiting(execute: Execute, now: float) -> int:
    """Count the people whose code is good."""
    return int(execute("SELECT count(*) AS n FROM people WHERE code<>'' AND until>:now", {"now": now})[0]["n"])


def withdraw_oldest_code(execute: Execute, now: float) -> str:
    """End the code that has been good for the longest time, and forget what its person wrote; return the person."""
    sql = (
        "UPDATE people SET code='', until=0, message='' WHERE (channel, person) IN (SELECT channel, person FROM people"
        " WHERE code<>'' AND until>:now ORDER BY until, channel, person LIMIT 1) RETURNING channel, person"
    )
    [row] = execute(sql, {"now": now})
    return f"{row['channel']}:{row['person']}"


def store_code(execute: Execute, message: Message, code: str, until: float) -> PersonRow:
    """Store the pairing code of the message's author, and where they asked."""
    values = {"code": code, "until": until, "thread": str(message.thread), "message": b""}
    update = ("name", "code", "until", "thread", "message")
    [row] = insert_row(execute, "people", _KEY, _identity(message) | values, update=update)
    return build_dataclass(PersonRow, dict(row))


def keep_message(execute: Execute, person: PersonRow, thread: Thread, payload: bytes) -> None:
    """Keep what a person wrote until they are accepted."""
    execute(
        "UPDATE people SET message=:payload, thread=:thread WHERE channel=:channel AND person=:person",
        {"payload": payload, "thread": str(thread), "channel": person.channel, "person": person.person},
    )


def store_address(execute: Execute, message: Message) -> None:
    """Store the private chat of a person."""
    insert_row(execute, "people", _KEY, _identity(message) | {"thread": str(message.thread)}, update=("thread",))


def _identity(message: Message) -> dict[str, Any]:
    return {"channel": message.thread.channel, "person": message.author.id, "name": message.author.name}


def find_code(execute: Execute, code: str, now: float) -> PersonRow | None:
    """Return the person with this code; None when the code is unknown, used or too old."""
    sql = f"SELECT * FROM people WHERE {_GOOD_CODE}"
    return read_row(execute, PersonRow, sql, code=code.strip().upper(), now=now)


def accept_code(execute: Execute, code: str, now: float, *, operator: bool = False) -> PersonRow | None:
    """Allow the person with this code; None when the code is unknown, used or too old."""
    sql = (
        f"UPDATE people SET allowed={PairingState.ALLOWED}, code='', until=0, message='',"
        f" operator=CASE WHEN operator>:operator THEN operator ELSE :operator END WHERE {_GOOD_CODE} RETURNING *"
    )
    return read_row(execute, PersonRow, sql, code=code.strip().upper(), now=now, operator=int(operator))


def decline_code(execute: Execute, code: str, now: float) -> PersonRow | None:
    """Decline the person with this code; None when the code is unknown, used or too old."""
    sql = (
        f"UPDATE people SET allowed={PairingState.DECLINED}, code='', until=:now, message=''"
        f" WHERE {_GOOD_CODE} RETURNING *"
    )
    return read_row(execute, PersonRow, sql, code=code.strip().upper(), now=now)


def revoke_pairing(execute: Execute, channel: str, person: str) -> bool:
    """Delete the permission, the refusal or the code of a person; return whether there was one."""
    rows = execute(
        "DELETE FROM people WHERE channel=:channel AND person=:person AND (allowed<>0 OR code<>'') RETURNING person",
        {"channel": channel, "person": person},
    )
    return bool(rows)


def set_notify(execute: Execute, message: Message, seconds: float) -> None:
    """Store after how many seconds the end of a turn pings the message's author; -1: never."""
    insert_row(execute, "people", _KEY, _identity(message) | {"notify": seconds}, update=("notify",))


def set_preference(execute: Execute, message: Message, column: str, value: str) -> None:
    """Store a preference about notifications: `notify_where`, `quiet`, `digest` or `push_url`."""
    insert_row(execute, "people", _KEY, _identity(message) | {column: value}, update=(column,))


def set_memory(execute: Execute, message: Message, *, on: bool) -> None:
    """Store whether the bot keeps memories of what the message's author says."""
    insert_row(execute, "people", _KEY, _identity(message) | {"memory": int(on)}, update=("memory",))


def set_zone(execute: Execute, channel: str, person: str, name: str, zone: str) -> None:
    """Store the time zone of a person."""
    insert_row(execute, "people", _KEY, {"channel": channel, "person": person, "name": name, "zone": zone}, ("zone",))


def zone_of(execute: Execute, channel: str, person: str) -> str:
    """Return the time zone of a person; "" if it is unknown."""
    row = find_person(execute, channel, person)
    return row.zone if row else ""


def allows_memory(execute: Execute, channel: str, person: str) -> bool:
    """Return whether a person lets the bot keep and use memories; they do until they switch it off."""
    row = find_person(execute, channel, person)
    return row is None or bool(row.memory)


def list_push_urls(execute: Execute) -> list[tuple[str, str, str]]:
    """Return channel, person and stored address of everybody who has a Bark device."""
    rows = execute("SELECT channel, person, push_url FROM people WHERE push_url<>''", {})
    return [(channel, person, url) for channel, person, url in rows]


def set_push_url(execute: Execute, channel: str, person: str, url: str) -> None:
    """Store the address of a person's Bark device."""
    values = {"channel": channel, "person": person, "url": url}
    execute("UPDATE people SET push_url=:url WHERE channel=:channel AND person=:person", values)


def remove_push_secrets(execute: Execute) -> int:
    """Remove the addresses of Bark devices, which contain keys; return how many. Notifications then come in place."""
    sql = "UPDATE people SET push_url='', notify_where=CASE notify_where WHEN 'push' THEN '' ELSE notify_where END"
    return len(execute(f"{sql} WHERE push_url<>'' RETURNING 1", {}))


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
