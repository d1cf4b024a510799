"""Small files that each process on one database has in its own folder: their latest content, with a number.

Where one process works alone there are none.
"""

from __future__ import annotations

from dataclasses import dataclass

from bot.database.database import Execute
from bot.database.rows import read_row


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A file. `content` is None once it was removed; `version` grows with each change."""

    name: str
    version: int
    content: bytes | None


def read_versions(execute: Execute) -> dict[str, int]:
    """Return name → version of all files."""
    return {str(row["name"]): int(row["version"]) for row in execute("SELECT name, version FROM shared_files", {})}


def read_version(execute: Execute, name: str) -> int:
    """Return the version of a file; 0 for one that nobody has shared yet."""
    rows = execute("SELECT version FROM shared_files WHERE name=:name", {"name": name})
    return int(rows[0]["version"]) if rows else 0


def read_shared(execute: Execute, name: str) -> SharedFile | None:
    """Return a file; None for one that nobody has shared yet."""
    return read_row(execute, SharedFile, "SELECT * FROM shared_files WHERE name=:name", name=name)


def write_shared(execute: Execute, name: str, content: bytes | None) -> int:
    """Replace a file, or (None) remove it, and return its new version. The caller has its lease."""
    sql = (
        "INSERT INTO shared_files(name, version, content) VALUES (:name, 1, :content) ON CONFLICT(name)"
        " DO UPDATE SET version=shared_files.version+1, content=excluded.content RETURNING version"
    )
    return int(execute(sql, {"name": name, "content": content})[0]["version"])
