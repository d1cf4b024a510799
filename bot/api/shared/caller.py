"""Find the caller: the person of the key that a request shows, or of the session of the page."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from agent.messages import Author, Thread
from bot.api.shared.keys import allows, find_good_key
from bot.api.shared.sessions import (
    NO_SESSION,
    PERSON_HEADER,
    PERSON_QUERY,
    SIGN_IN,
    Person,
    check_person,
    cookie_var,
    find_session,
    signed_in_by_proxy,
)
from bot.commands.feature import Door
from bot.config.team import Right
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Execute
from bot.database.web_people import WEB, true_person, web_id
from bot.http.route import HttpProblem, route_var
from bot.rights.access import LOCAL_CHANNEL, LOCAL_WORKSPACE
from bot.rights.deeds import Deed
from bot.storage import api_access, people
from bot.storage.api_access import ApiKeyRow, PageSessionRow, find_key
from catalogue import preferred_language

if TYPE_CHECKING:
    from aiohttp import web

T = TypeVar("T")

NO_KEY = HttpProblem(
    *(401, "no_key", "The request has no good key."),
    "Send the header Authorization: Bearer KEY. `fawn key add` makes one; it may have expired, or been revoked.",
    headers={"WWW-Authenticate": 'Bearer realm="fawn"'},
)
NO_SCOPE = "The key does not have the scope `{scope}`."
MAKE_KEY = "`fawn key add NAME --person … --scopes {scope}` makes one that has it."
NO_ACCESS = HttpProblem(
    *(403, "no_access", "The person of this key may not do this."),
    "The command whoami shows their role in their chat; operators change it.",
)


@dataclass(frozen=True, slots=True)
class Caller:
    """The person of a key, as an author on the channel `web`. `credential` names what they showed.

    `is_good` says in a later transaction whether what they showed still opens anything.
    """

    author: Author
    credential: str
    is_good: Callable[[Execute, float], bool]

    @property
    def chat(self) -> Thread:
        """The place of all their threads."""
        return Thread(WEB, "", self.author.id)

    def thread(self, id: str) -> Thread:
        """Return the address of one of their threads."""
        return Thread(WEB, "", self.author.id, id)

    def is_person(self, channel: str, person: str) -> bool:
        """Return whether they are this person, on their platform or over HTTP."""
        return true_person(channel, person) == true_person(WEB, self.author.id)

    def at(self, execute: Execute, channel: str) -> tuple[Thread, Author]:
        """Return where they write privately on this channel, `web` or their own one, and who they are there."""
        if channel == WEB:
            return self.chat, self.author
        home, id = self.home(execute)
        return home, replace(self.author, id=id)

    def home(self, execute: Execute) -> tuple[Thread, str]:
        """Return their direct chat with the bot on their own platform, and their id there. A chat that is not known has
        no name."""
        channel, id = true_person(WEB, self.author.id)
        known = people.find_person(execute, channel, id)
        chat = Thread(LOCAL_CHANNEL, LOCAL_WORKSPACE, id) if channel == LOCAL_CHANNEL else Thread(channel, "", "")
        return (known.private_chat if known else None) or chat, id


async def find_caller(
    door: Door, request: web.Request, scope: str, right: Right | None = None, deed: Deed | None = None
) -> Caller:
    """Return who calls. Raises HttpProblem without a good key of this scope, or where the person lacks the right or
    may not do the deed, which the audit then has."""
    caller = await door.store.run(_look(door, request, scope, right), durable=False)
    if deed and not await door.store.run(partial(_allows, door=door, caller=caller, deed=deed), durable=False):
        raise NO_ACCESS
    return caller


async def read_for_caller(door: Door, request: web.Request, scope: str, read: Callable[[Execute, Caller], T]) -> T:
    """Find the caller as `find_caller` does, and return what `read` returns for them, in one transaction.

    What is wrong with the request is found in `read`: first comes whether there is a good key.
    """
    look = _look(door, request, scope)
    return await door.store.run(lambda execute: read(execute, look(execute)), durable=False)


def _look(door: Door, request: web.Request, scope: str, right: Right | None = None) -> Callable[[Execute], Caller]:
    """Return what finds the caller in a transaction. Raises HttpProblem for no key at all."""
    language = preferred_language(request.headers.get("Accept-Language", ""))
    if (cookie := cookie_var.get()) is not None:
        named = signed_in_by_proxy(door.current.config.http.identity, request)
        person = request.headers.get(PERSON_HEADER) or request.query.get(PERSON_QUERY, "")
        find = partial(_find_session, named=named, person=person)
        return partial(_find, door=door, shown=cookie, scope=scope, right=right, find=find, language=language)
    kind, _blank, key = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer" or len(request.headers.getall("Authorization", ())) != 1:
        raise NO_KEY
    shown = key.strip()
    return partial(_find, door=door, shown=shown, scope=scope, right=right, find=_find_key, language=language)


def _allows(execute: Execute, door: Door, caller: Caller, deed: Deed) -> bool:
    """Return whether the caller may do this now, and note in the audit who tried it."""
    if door.current.access.may_do(execute, caller.chat, caller.author.id, deed):
        return True
    what: dict[str, int | str] = {"via": "http", "path": route_var.get().path}
    audit.record(execute, AuditEvent(AuditKind.ACCESS_DENIED, caller.chat, caller.author.id, what=what))
    return False


def _find_session(execute: Execute, token: str, named: Person | None, person: str) -> PageSessionRow:
    """Return the session of a cookie. It must be that of the person whom the tab shows, and, behind a proxy that signs
    people in, of whom the proxy names."""
    try:
        row = find_session(execute, token)
    except HttpProblem:
        raise SIGN_IN if named else NO_SESSION from None
    if named and (row.channel, row.person) != named:
        raise SIGN_IN
    check_person(row, person)
    return row


def _find_key(execute: Execute, key: str) -> ApiKeyRow:
    if row := find_good_key(execute, key, time.time()):
        return row
    raise NO_KEY


def _find(
    execute: Execute,
    door: Door,
    shown: str,
    scope: str,
    right: Right | None,
    find: Callable[[Execute, str], ApiKeyRow | PageSessionRow],
    language: str,
) -> Caller:
    row = find(execute, shown)
    if row.scopes and not allows(row.scopes, scope):
        raise HttpProblem(403, "no_scope", NO_SCOPE.format(scope=scope), MAKE_KEY.format(scope=scope))
    caller = Caller(_author_of(execute, row, language), row.hash, partial(_is_good, door, row))
    role = door.current.access.role_of(execute, caller.chat, caller.author.id)
    if not role.rights or (right and right not in role.rights):
        raise NO_ACCESS
    return caller


def _is_good(door: Door, row: ApiKeyRow | PageSessionRow, execute: Execute, now: float) -> bool:
    """Return whether a key or a session still opens something for its person."""
    if isinstance(row, PageSessionRow):
        known = api_access.find_session(execute, row.hash, now) is not None
    else:
        key = find_key(execute, row.hash)
        known = key is not None and not key.is_expired(now)
    id = web_id(row.channel, row.person)
    return known and bool(door.current.access.role_of(execute, Thread(WEB, "", id), id).rights)


def _author_of(execute: Execute, row: ApiKeyRow | PageSessionRow, language: str) -> Author:
    known = people.find_person(execute, row.channel, row.person)
    return Author(web_id(row.channel, row.person), known.name if known else "", language=language)
