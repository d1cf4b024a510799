"""Store who may use the API and the page: keys, links and sessions, of which only hashes are kept."""

from __future__ import annotations

from dataclasses import dataclass

from bot.database.database import Execute
from bot.database.rows import insert_row, read_row, read_rows
from bot.database.states import PageLogin

READ, THREADS, OPERATE = "read", "threads", "operate"  # the second includes the first
SCOPES = (THREADS, READ, OPERATE)
DEFAULT_SCOPES = (THREADS, READ)
USED_SECONDS = 60.0  # the time of the last use is stored this exactly


@dataclass(frozen=True, slots=True)
class ApiKeyRow:
    """A key by its `hash`. It acts as `person` of `channel`, within `scopes`, until `expires` (Unix time)."""

    hash: str
    name: str
    channel: str
    person: str
    scopes: str  # separated by spaces
    created: float
    expires: float | None
    used: float | None  # when it was last used

    def is_expired(self, now: float) -> bool:
        """Return whether it is not good any more."""
        return self.expires is not None and self.expires <= now


def add_key(execute: Execute, row: ApiKeyRow) -> bool:
    """Store a key. False: another one has this name."""
    values = {name: getattr(row, name) for name in ApiKeyRow.__slots__}
    return bool(insert_row(execute, "api_keys", "name", values))


def list_keys(execute: Execute) -> list[ApiKeyRow]:
    """Return all keys by name."""
    return read_rows(execute, ApiKeyRow, "SELECT * FROM api_keys ORDER BY name")


def find_key(execute: Execute, hashed: str) -> ApiKeyRow | None:
    """Return the key with this hash."""
    return read_row(execute, ApiKeyRow, "SELECT * FROM api_keys WHERE hash=:hash", hash=hashed)


def note_use(execute: Execute, row: ApiKeyRow, now: float) -> None:
    """Store that a key was used, if the stored time is old."""
    if row.used is None or now - row.used > USED_SECONDS:
        execute("UPDATE api_keys SET used=:now WHERE hash=:hash", {"now": now, "hash": row.hash})


def revoke_key(execute: Execute, name: str) -> ApiKeyRow | None:
    """Delete a key by its name and return it."""
    return read_row(execute, ApiKeyRow, "DELETE FROM api_keys WHERE name=:name RETURNING *", name=name)


def revoke_keys_of(execute: Execute, channel: str, person: str) -> int:
    """Delete the keys of a person; return how many."""
    sql = "DELETE FROM api_keys WHERE channel=:channel AND person=:person RETURNING 1"
    return len(execute(sql, {"channel": channel, "person": person}))


@dataclass(frozen=True, slots=True)
class PageSessionRow:
    """A link or a session by its `hash`. It acts as `person` of `channel` until `until` (Unix time).

    `key` is the hash of the key of the API that it began with, with which it ends; "" for a link.
    """

    hash: str
    kind: str
    channel: str
    person: str
    scopes: str  # of its key, separated by spaces; "": whatever the person may
    key: str
    created: float
    until: float


def add_session(execute: Execute, row: PageSessionRow) -> None:
    """Store a link or a session, and delete those that have ended."""
    execute("DELETE FROM page_sessions WHERE until<=:now", {"now": row.created})
    insert_row(execute, "page_sessions", "hash", {name: getattr(row, name) for name in PageSessionRow.__slots__})


def take_link(execute: Execute, hashed: str, now: float) -> PageSessionRow | None:
    """Delete a link and return it: it is used. None: there is no such link, or not any more."""
    sql = "DELETE FROM page_sessions WHERE hash=:hash AND kind=:login AND until>:now RETURNING *"
    return read_row(execute, PageSessionRow, sql, hash=hashed, login=PageLogin.LINK, now=now)


def find_session(execute: Execute, hashed: str, now: float) -> PageSessionRow | None:
    """Return the session with this hash, unless it ended, or the key that it began with."""
    sql = (
        "SELECT s.* FROM page_sessions s WHERE s.hash=:hash AND s.kind=:login AND s.until>:now"
        " AND (s.key='' OR EXISTS (SELECT 1 FROM api_keys k WHERE k.hash=s.key AND (k.expires IS NULL OR"
        " k.expires>:now)))"
    )
    return read_row(execute, PageSessionRow, sql, hash=hashed, login=PageLogin.SESSION, now=now)


def end_session(execute: Execute, hashed: str) -> PageSessionRow | None:
    """Delete a session and return it."""
    sql = "DELETE FROM page_sessions WHERE hash=:hash AND kind=:login RETURNING *"
    return read_row(execute, PageSessionRow, sql, hash=hashed, login=PageLogin.SESSION)


def end_sessions_of(execute: Execute, channel: str, person: str) -> int:
    """Delete the links and sessions of a person; return how many."""
    sql = "DELETE FROM page_sessions WHERE channel=:channel AND person=:person RETURNING 1"
    return len(execute(sql, {"channel": channel, "person": person}))
