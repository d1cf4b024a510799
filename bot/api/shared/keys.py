"""Keys: a program shows one with each request, and acts as its person, never beyond that person's rights."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from bot.config.addresses import parse_person
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Execute
from bot.rights.access import LOCAL_CHANNEL
from bot.rights.known_people import is_possible_id, names_of_channel
from bot.storage import api_access
from bot.storage.api_access import READ, SCOPES, THREADS, ApiKeyRow
from catalogue import N_, _, list_items

PREFIX, KEY_BYTES = "fawn_", 32
MAX_NAME_CHARS = 60
DAY_SECONDS = 86400.0
MAX_DAYS = 3650
_KEY = re.compile(rf"{PREFIX}[\w-]{{43}}", re.ASCII)
_NAME = re.compile(rf"\w[\w.@-]{{0,{MAX_NAME_CHARS - 1}}}")

BAD_NAME = N_("a name has up to {n} letters, digits and . @ _ - without blanks: {name}")
BAD_PERSON = N_("{person} is not CHANNEL/ID, such as slack/U0123ABCD")
BAD_SCOPES = N_("{scopes}: the scopes are {known}, separated by commas")
BAD_EXPIRY = N_("{text} is no number of days from 1d to {most}d, such as 90d")
UNKNOWN_PERSON = N_(
    "nobody on {channel} is called {person}: write the platform id, which the command whoami shows in the chat"
)
SEVERAL = N_("several people on {channel} are called {person}: write one of the ids {ids}")
TAKEN = N_("there is a key {name} already: see `fawn key list`")


class BadKey(Exception):
    """A key cannot be made so; the text says why."""


def hash_key(key: str) -> str:
    """Return what is stored of a key. It is random and long, so that nobody finds it by trying."""
    return hashlib.sha256(key.encode()).hexdigest()


def find_good_key(execute: Execute, key: str, now: float) -> ApiKeyRow | None:
    """Return the row of a key that is good now, and note that it was used."""
    if not _KEY.fullmatch(key):
        return None
    hashed = hash_key(key)
    row = api_access.find_key(execute, hashed)
    if row is None or not hmac.compare_digest(row.hash, hashed) or row.is_expired(now):
        return None
    api_access.note_use(execute, row, now)
    return row


def allows(scopes: str, scope: str) -> bool:
    """Return whether the scopes of a key have this one: `threads` includes `read`, and nothing else `operate`."""
    given = scopes.split()
    return scope in given or (scope == READ and THREADS in given)


def make_key(execute: Execute, name: str, person: str, scopes: str, expires: str) -> tuple[str, ApiKeyRow]:
    """Make a key and return it with its row: it is shown now, and never again. Raises BadKey."""
    if not _NAME.fullmatch(name):
        raise BadKey(_(BAD_NAME, n=MAX_NAME_CHARS, name=name))
    return make_key_of(execute, name, *find_known_person(execute, person), scopes, expires)


def make_key_of(execute: Execute, name: str, channel: str, id: str, scopes: str, expires: str) -> tuple[str, ApiKeyRow]:
    """Make the key of a person who need not be known, as `make_key` does."""
    now = time.time()
    seconds = _parse_expiry(expires)
    key = PREFIX + secrets.token_urlsafe(KEY_BYTES)
    until = now + seconds if seconds else None
    row = ApiKeyRow(hash_key(key), name, channel, id, " ".join(_parse_scopes(scopes)), now, until, None)
    if not api_access.add_key(execute, row):
        raise BadKey(_(TAKEN, name=name))
    what: dict[str, int | str] = {"scopes": row.scopes, "days": int(seconds / DAY_SECONDS)}
    _record(execute, AuditKind.KEY_ADDED, row, what)
    return key, row


def end_key(execute: Execute, name: str) -> ApiKeyRow | None:
    """Revoke a key by its name. None: there is none."""
    if row := api_access.revoke_key(execute, name):
        _record(execute, AuditKind.KEY_REVOKED, row, {})
    return row


def describe_key(row: ApiKeyRow) -> dict[str, Any]:
    """Return what may be shown of a key."""
    shown = asdict(row)
    del shown["hash"]
    return shown | {"scopes": row.scopes.split()}


def _record(execute: Execute, kind: AuditKind, row: ApiKeyRow, what: dict[str, int | str]) -> None:
    subject = audit.person_name(row.channel, row.person)
    details: dict[str, int | str] = {**audit.command_line(), "key": row.hash[:16], **what}
    audit.record(execute, AuditEvent(kind, subject=subject, what=details))


def find_known_person(execute: Execute, text: str) -> tuple[str, str]:
    """Return channel and id of `CHANNEL/ID` or `CHANNEL/NAME`. Raises BadKey."""
    try:
        channel, word = parse_person(text)
    except ValueError:
        raise BadKey(_(BAD_PERSON, person=text)) from None
    named = [id for id, name in names_of_channel(execute, channel).items() if name.casefold() == word.casefold()]
    if channel == LOCAL_CHANNEL or is_possible_id(execute, channel, word):
        return channel, word
    if len(named) > 1:
        raise BadKey(_(SEVERAL, channel=channel, person=word, ids=list_items(sorted(named))))
    if not named:
        raise BadKey(_(UNKNOWN_PERSON, channel=channel, person=word))
    return channel, named[0]


def _parse_scopes(text: str) -> Sequence[str]:
    scopes = [each.strip() for each in text.split(",")]
    if not {*scopes} <= {*SCOPES}:
        raise BadKey(_(BAD_SCOPES, scopes=text, known=list_items(SCOPES)))
    return [scope for scope in SCOPES if scope in scopes]


def _parse_expiry(text: str) -> float:
    """Return seconds; 0: never. Raises BadKey."""
    if not text:
        return 0.0
    found = re.fullmatch(r"([0-9]{1,4})d", text)
    if not found or not 1 <= int(found[1]) <= MAX_DAYS:
        raise BadKey(_(BAD_EXPIRY, text=text, most=MAX_DAYS))
    return int(found[1]) * DAY_SECONDS
