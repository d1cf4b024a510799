"""Give a database a random identity, by which its traces differ from those of another service."""

from __future__ import annotations

import secrets

from bot.database.database import Execute


def read_identity(execute: Execute) -> str:
    """Return the identity of this database; it gets one the first time."""
    if not (rows := execute("SELECT id FROM identity", {})):
        rows = execute("INSERT INTO identity(id) VALUES (:id) RETURNING id", {"id": secrets.token_hex(16)})
    return str(rows[0]["id"])
