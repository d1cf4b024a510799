"""Small files that each process on one database has in its own folder: their latest content, with a number.

Where one process works alone there are none.

The files of skills that were accepted or wait for a decision, as archives in parts, for processes with folders of
their own.

Where one process works alone there are none.
"""

from __future__ import annotations

from collections.abc import Collection
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


Version = tuple[str, str]
"""The name of a skill and the hash of its files."""


def whole_versions(execute: Execute) -> dict[Version, int]:
    """Return the versions of which all parts are there, with how many those are."""
    sql = "SELECT name, hash, parts FROM skill_versions GROUP BY name, hash, parts HAVING count(*)=parts"
    return {(str(row["name"]), str(row["hash"])): int(row["parts"]) for row in execute(sql, {})}


def read_part(execute: Execute, version: Version, part: int) -> bytes:
    """Return a part of a version, from 0; b"" for one that is not there."""
    sql = "SELECT content FROM skill_versions WHERE name=:name AND hash=:hash AND part=:part"
    rows = execute(sql, {"name": version[0], "hash": version[1], "part": part})
    return bytes(rows[0]["content"]) if rows else b""


def write_part(execute: Execute, version: Version, part: int, parts: int, content: bytes) -> None:
    """Store a part of a version. The first replaces what a process that ended has left of it."""
    values = {"name": version[0], "hash": version[1]}
    if not part:
        execute("DELETE FROM skill_versions WHERE name=:name AND hash=:hash", values)
    sql = "INSERT INTO skill_versions(name, hash, part, parts, content) VALUES (:name, :hash, :part, :parts, :content)"
    execute(sql, {**values, "part": part, "parts": parts, "content": content})


def delete_other_versions(execute: Execute, named: Collection[Version]) -> None:
    """Delete the versions that no decision names any more."""
    for row in execute("SELECT DISTINCT name, hash FROM skill_versions", {}):
        if (str(row["name"]), str(row["hash"])) not in named:
            sql = "DELETE FROM skill_versions WHERE name=:name AND hash=:hash"
            execute(sql, {"name": row["name"], "hash": row["hash"]})
