"""Store the keys of the HTTP API, each of one person; only their hashes are kept."""

from __future__ import annotations

from dataclasses import dataclass

from bot.database.database import Execute
from bot.database.rows import insert_row, read_row, read_rows

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
