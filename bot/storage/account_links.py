"""Linked accounts: which accounts on different platforms are one person's, by their own proof from both sides."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from agent.messages import Author
from bot.database.database import Execute
from bot.database.rows import insert_row, read_row, read_rows

_OPEN = "id=:id AND until>:now"
_ALONE = "SELECT linked FROM account_links GROUP BY linked HAVING count(*)=1"


@dataclass(frozen=True, slots=True)
class LinkedAccount:
    """An account that is linked with others: those with the same `linked` are one person's, at most one a channel."""

    channel: str
    person: str
    name: str
    guest: int
    linked: str
    since: float

    @property
    def author(self) -> Author:
        """The account as the author of what its person does from another one."""
        return Author(self.person, self.name, guest=bool(self.guest))


@dataclass(frozen=True, slots=True)
class LinkRequest:
    """A code that an account was given, good until `until`, and the account `to_…` that sent it, which has `agreed` or
    not; "" before. The code is "" from then on: it works once."""

    id: int
    code: str
    until: float
    channel: str
    person: str
    name: str
    guest: int
    to_channel: str
    to_person: str
    to_name: str
    to_guest: int
    agreed: int


# ------------------------------------------------------------ requests


def add_request(execute: Execute, channel: str, author: Author, code: str, until: float) -> None:
    """Store the code of an account, in place of any other request that it takes part in."""
    _end_requests(execute, channel, author.id)
    values: dict[str, object] = {"code": code, "until": until, "channel": channel, "person": author.id}
    values |= {"name": author.name, "guest": int(author.guest), "agreed": 0}
    values |= {"to_channel": "", "to_person": "", "to_name": "", "to_guest": 0}
    insert_row(execute, "link_codes", "id", values)


def find_code(execute: Execute, code: str, now: float) -> LinkRequest | None:
    """Return the request with this code; None when it is unknown, used or too old."""
    sql = "SELECT * FROM link_codes WHERE code=:code AND code<>'' AND until>:now"
    return read_row(execute, LinkRequest, sql, code=code, now=now)


def take_code(execute: Execute, code: str, channel: str, author: Author, now: float) -> LinkRequest | None:
    """Use a code for the account that sent it; None when it is unknown, used or too old."""
    sql = """UPDATE link_codes SET code='', to_channel=:channel, to_person=:person, to_name=:name, to_guest=:guest
        WHERE code=:code AND code<>'' AND until>:now RETURNING *"""
    to = {"channel": channel, "person": author.id, "name": author.name, "guest": int(author.guest)}
    taken = read_row(execute, LinkRequest, sql, code=code, now=now, **to)
    if taken:
        _end_requests(execute, channel, author.id, keep=taken.id)
    return taken


def find_request(execute: Execute, id: int, now: float) -> LinkRequest | None:
    """Return a request that is still open."""
    return read_row(execute, LinkRequest, f"SELECT * FROM link_codes WHERE {_OPEN}", id=id, now=now)


def request_of(execute: Execute, channel: str, person: str, now: float) -> LinkRequest | None:
    """Return the open request that an account has to confirm: as the sender of the code, or then as its owner."""
    sql = """SELECT * FROM link_codes WHERE until>:now AND code='' AND ((agreed=0 AND to_channel=:channel AND
        to_person=:person) OR (agreed=1 AND channel=:channel AND person=:person)) ORDER BY id DESC LIMIT 1"""
    return read_row(execute, LinkRequest, sql, channel=channel, person=person, now=now)


def agree(execute: Execute, id: int, now: float) -> bool:
    """Note that the account that sent the code agreed; return whether this is new."""
    sql = f"UPDATE link_codes SET agreed=1 WHERE {_OPEN} AND agreed=0 RETURNING 1"
    return bool(execute(sql, {"id": id, "now": now}))


def end_request(execute: Execute, id: int, now: float) -> bool:
    """Delete an open request; return whether there was one."""
    return bool(execute(f"DELETE FROM link_codes WHERE {_OPEN} RETURNING 1", {"id": id, "now": now}))


def _end_requests(execute: Execute, channel: str, person: str, keep: int = 0) -> None:
    sql = """DELETE FROM link_codes WHERE id<>:keep AND
        ((channel=:channel AND person=:person) OR (to_channel=:channel AND to_person=:person))"""
    execute(sql, {"channel": channel, "person": person, "keep": keep})


# ------------------------------------------------------------ links


def others_of(execute: Execute, channel: str, person: str) -> list[LinkedAccount]:
    """Return the other accounts of a person, in the order of their channels."""
    sql = """SELECT other.* FROM account_links mine JOIN account_links other ON other.linked=mine.linked
        WHERE mine.channel=:channel AND mine.person=:person AND other.channel<>:channel ORDER BY other.channel"""
    return read_rows(execute, LinkedAccount, sql, channel=channel, person=person)


def accounts_of(execute: Execute, channel: str, person: str) -> list[tuple[str, str]]:
    """Return channel and id of all accounts of a person, first this one."""
    return [(channel, person), *((each.channel, each.person) for each in others_of(execute, channel, person))]


def account_on(execute: Execute, channel: str, person: str, wanted: str) -> str:
    """Return the id of a person's account on the wanted channel; "" if none is linked."""
    return next((id for found, id in accounts_of(execute, channel, person) if found == wanted), "")


def fit_together(execute: Execute, request: LinkRequest) -> bool:
    """Return whether two accounts can become one person's: then that person has at most one on each channel."""
    first = accounts_of(execute, request.channel, request.person)
    second = accounts_of(execute, request.to_channel, request.to_person)
    return {channel for channel, _id in first}.isdisjoint(channel for channel, _id in second)


def link(execute: Execute, request: LinkRequest, now: float) -> None:
    """Make two accounts, and what is linked with each, one person's."""
    sides = (
        (request.channel, request.person, request.name, request.guest),
        (request.to_channel, request.to_person, request.to_name, request.to_guest),
    )
    linked = secrets.token_hex(16)
    for channel, person, name, guest in sides:
        values: dict[str, object] = {"channel": channel, "person": person, "name": name, "guest": guest}
        sql = """UPDATE account_links SET linked=:linked WHERE linked=
            (SELECT linked FROM account_links WHERE channel=:channel AND person=:person)"""
        execute(sql, {"channel": channel, "person": person, "linked": linked})
        update = ("name", "guest", "linked")
        insert_row(execute, "account_links", "channel, person", {**values, "linked": linked, "since": now}, update)


def unlink(execute: Execute, channel: str, person: str) -> Sequence[LinkedAccount]:
    """End the links and requests of an account; return the other accounts that it was linked with."""
    others = others_of(execute, channel, person)
    _end_requests(execute, channel, person)
    execute(
        "DELETE FROM account_links WHERE channel=:channel AND person=:person", {"channel": channel, "person": person}
    )
    execute(f"DELETE FROM account_links WHERE linked IN ({_ALONE})", {})
    return others
