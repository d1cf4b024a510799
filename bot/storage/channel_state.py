"""Store what channels keep over restarts, by name: a position in the platform's events, keys of encryption."""

from __future__ import annotations

from collections.abc import Mapping

from bot.storage.database import Execute
from bot.storage.rows import insert_row


def read_state(execute: Execute, channel: str) -> dict[str, str]:
    """Return what a channel keeps, as it is stored."""
    rows = execute("SELECT item, value FROM channel_state WHERE channel=:channel", {"channel": channel})
    return {str(row["item"]): str(row["value"]) for row in rows}


def list_state(execute: Execute) -> list[tuple[str, str, str]]:
    """Return channel, name and stored value of everything that is kept."""
    rows = execute("SELECT channel, item, value FROM channel_state", {})
    return [(str(row["channel"]), str(row["item"]), str(row["value"])) for row in rows]


def write_state(execute: Execute, channel: str, changes: Mapping[str, str | None]) -> None:
    """Store these values, as they are to be stored; None deletes one."""
    for name, value in changes.items():
        key = {"channel": channel, "item": name}
        if value is None:
            execute("DELETE FROM channel_state WHERE channel=:channel AND item=:item", key)
        else:
            insert_row(execute, "channel_state", "channel, item", {**key, "value": value}, update=("value",))
