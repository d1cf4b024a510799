"""People whom pairing knows, and their settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent.messages import Message
from bot.storage.database import Execute
from bot.storage.rows import insert_row, read_row, read_rows

_KEY = "channel, person"


@dataclass(frozen=True, slots=True)
class PersonRow:
    """A person on one channel. `code` is good until `until`; `notify` overrides after how many seconds a ping comes."""

    channel: str
    person: str
    name: str
    allowed: int
    code: str
    until: float
    thread: str
    notify: float | None


def find_person(execute: Execute, channel: str, person: str) -> PersonRow | None:
    """Return a person."""
    sql = "SELECT * FROM people WHERE channel=:channel AND person=:person"
    return read_row(execute, PersonRow, sql, channel=channel, person=person)


def list_paired(execute: Execute, now: float) -> list[PersonRow]:
    """Return the people who are allowed, and those whose code is still good."""
    sql = "SELECT * FROM people WHERE allowed=1 OR until>:now ORDER BY allowed, channel, name"
    return read_rows(execute, PersonRow, sql, now=now)


def count_waiting(execute: Execute, now: float) -> int:
    """Count the people who have a pairing code and are not allowed yet."""
    [[count]] = execute("SELECT count(*) FROM people WHERE allowed=0 AND until>:now", {"now": now})
    return int(count)


def store_code(execute: Execute, message: Message, code: str, until: float) -> None:
    """Store the pairing code of the message's author, and where they asked."""
    values = {"code": code, "until": until, "thread": str(message.thread)}
    insert_row(execute, "people", _KEY, _identity(message) | values, update=("name", "code", "until", "thread"))


def _identity(message: Message) -> dict[str, Any]:
    return {"channel": message.thread.channel, "person": message.author.id, "name": message.author.name}


def accept_code(execute: Execute, code: str, now: float) -> PersonRow | None:
    """Allow the person with this code; None when the code is unknown, used or too old."""
    sql = "UPDATE people SET allowed=1, code='', until=0 WHERE code=:code AND code<>'' AND until>:now RETURNING *"
    return read_row(execute, PersonRow, sql, code=code.strip().upper(), now=now)


def revoke_pairing(execute: Execute, channel: str, person: str) -> bool:
    """Delete the permission or the code of a person; return whether there was one."""
    rows = execute(
        "DELETE FROM people WHERE channel=:channel AND person=:person AND (allowed=1 OR code<>'') RETURNING person",
        {"channel": channel, "person": person},
    )
    return bool(rows)


def set_notify(execute: Execute, message: Message, seconds: float) -> None:
    """Store after how many seconds the end of a turn pings the message's author; -1: never."""
    insert_row(execute, "people", _KEY, _identity(message) | {"notify": seconds}, update=("notify",))
