"""Store what channels keep over restarts, by name: a position in the platform's events, keys of encryption."""

from __future__ import annotations

from collections.abc import Mapping

from bot.database.database import Execute
from bot.database.rows import insert_row


def read_state(execute: Execute, channel: str) -> dict[str, str]:
    """Return what a channel keeps, as it is stored."""
    rows = execute("SELECT item, value FROM channel_state WHERE channel=:channel", {"channel": channel})
    return {str(row["item"]): str(row["value"]) for row in rows}


def list_state(execute: Execute) -> list[tuple[str, str, str]]:
    """Return channel, name and stored value of everything that is kept."""
    rows = execute("SELECT channel, item, value FROM channel_state", {})
    return [(str(row["channel"]), str(row["item"]), str(row["value"])) for row in rows]


def write_state(
    execute: Execute,
    channel: str,
    changes: Mapping[str, str | None],
    author: str = "",
    until: float | None = None,
) -> None:
    """Store these values, as they are to be stored; None deletes one. `author` is whom they are about."""
    for name, value in changes.items():
        key = {"channel": channel, "item": name}
        if value is None:
            execute("DELETE FROM channel_state WHERE channel=:channel AND item=:item", key)
        else:
            row = {**key, "value": value, "author": author, "until": until}
            insert_row(execute, "channel_state", "channel, item", row, update=("value", "author", "until"))


def replace_value(execute: Execute, channel: str, name: str, value: str) -> None:
    """Replace a stored value that is still there, and nothing else of it."""
    sql = "UPDATE channel_state SET value=:value WHERE channel=:channel AND item=:item"
    execute(sql, {"channel": channel, "item": name, "value": value})


def renew_state(execute: Execute, channel: str, name: str, value: str, until: float) -> bool:
    """Replace a value with its end; return False where it is no more."""
    sql = "UPDATE channel_state SET value=:value, until=:until WHERE channel=:channel AND item=:item RETURNING 1"
    return bool(execute(sql, {"channel": channel, "item": name, "value": value, "until": until}))
