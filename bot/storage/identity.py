"""The identity of a database: a random name, by which the ids of its traces differ from those of another service."""

from __future__ import annotations

import secrets

from bot.storage.database import Execute


def read_identity(execute: Execute) -> str:
    """Return the name of this database; it gets one the first time."""
    if not (rows := execute("SELECT name FROM identity", {})):
        rows = execute("INSERT INTO identity(name) VALUES (:name) RETURNING name", {"name": secrets.token_hex(16)})
    return str(rows[0]["name"])
