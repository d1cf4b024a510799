"""Stamps of the files in outputs/ that were sent."""

from __future__ import annotations

from collections.abc import Mapping

from bot.database.database import Execute
from bot.database.rows import insert_row


def known_stamps(execute: Execute, conversation: str) -> dict[str, str]:
    """Return path → stamp of what was sent of this conversation's outputs."""
    sql = "SELECT path, stamp FROM outputs WHERE conversation=:conversation"
    return {row["path"]: row["stamp"] for row in execute(sql, {"conversation": conversation})}


def replace_stamps(execute: Execute, conversation: str, stamps: Mapping[str, str], before: Mapping[str, str]) -> None:
    """Store the stamps in place of those known before."""
    for path, stamp in stamps.items() - before.items():
        values = {"conversation": conversation, "path": path, "stamp": stamp}
        insert_row(execute, "outputs", "conversation, path", values, update=("stamp",))
    for path in before.keys() - stamps.keys():
        sql = "DELETE FROM outputs WHERE conversation=:conversation AND path=:path"
        execute(sql, {"conversation": conversation, "path": path})
