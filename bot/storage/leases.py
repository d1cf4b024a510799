"""Leases of what one process at a time does, such as listening to an account of a platform.

A lease names the process that has it, and is worth what that process's own lease is worth (`replicas.py`): it is never
renewed, and whoever looks takes those of the dead.
"""

from __future__ import annotations

from collections.abc import Collection

from bot.database.database import Execute
from bot.database.dialect import NOW
from bot.database.replicas import LIVING


def take_leases(execute: Execute, me: str, names: Collection[str]) -> set[str]:
    """Take those of these leases that no living process has. Returns all that this process has; none if it is dead."""
    if not execute(f"SELECT 1 FROM replicas WHERE id=:me AND until>={NOW}", {"me": me}):
        return set()
    held = {str(row["name"]): str(row["owner"]) for row in execute(f"SELECT * FROM leases WHERE owner IN {LIVING}", {})}
    sql = (
        f"INSERT INTO leases(name, owner, taken_at) VALUES (:name, :me, {NOW}) ON CONFLICT(name) DO UPDATE"
        f" SET owner=excluded.owner, taken_at=excluded.taken_at WHERE leases.owner NOT IN {LIVING} RETURNING name"
    )
    taken = {name for name in names if name not in held and execute(sql, {"name": name, "me": me})}
    return taken | {name for name in names if held.get(name) == me}


def release_lease(execute: Execute, me: str, name: str) -> None:
    """Give up a lease, which another process may take at once."""
    execute("DELETE FROM leases WHERE name=:name AND owner=:me", {"name": name, "me": me})
