"""Store who uses the page: links to be opened once, and sessions; only hashes are kept."""

from __future__ import annotations

from dataclasses import dataclass

from bot.database.database import Execute
from bot.database.rows import insert_row, read_row
from bot.database.states import PageLogin


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
