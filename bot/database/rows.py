"""Read rows as dataclasses, and insert them by the names of their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from agent.messages import Requester
from agent.stored_json import build_dataclass
from bot.database.database import Execute, Row

T = TypeVar("T")
ROWS_AT_ONCE = 50  # in one statement
MAX_ID_DIGITS = 18  # what SQLite can compare

MAX_ROW = 1 << 62  # greater than the number of each row


def read_rows(execute: Execute, kind: type[T], sql: str, **values: Any) -> list[T]:
    """Run a statement and return its rows as `kind`. Columns that are not fields are ignored."""
    return [build_dataclass(kind, dict(row)) for row in execute(sql, values)]


def read_row(execute: Execute, kind: type[T], sql: str, **values: Any) -> T | None:
    """Run a statement and return its first row; None where there is none."""
    return next(iter(read_rows(execute, kind, sql, **values)), None)


def insert_row(
    execute: Execute, table: str, key: str, values: Mapping[str, Any], update: Sequence[str] = ()
) -> Sequence[Row]:
    """Insert a row and return it. Where a row with this `key` exists, replace its columns `update` instead.

    Without `update` that row stays as it is, and nothing is returned.
    """
    columns, parameters = ", ".join(values), ", ".join(f":{name}" for name in values)
    changes = ", ".join(f"{name}=excluded.{name}" for name in update)
    return execute(
        f"INSERT INTO {table}({columns}) VALUES ({parameters})"
        f" ON CONFLICT({key}) DO {f'UPDATE SET {changes}' if changes else 'NOTHING'} RETURNING *",
        values,
    )


def insert_rows(
    execute: Execute, table: str, key: str, rows: Sequence[Mapping[str, Any]], update: Sequence[str] = ()
) -> None:
    """Insert rows with the same columns in few statements, as `insert_row` does one of them."""
    for begin in range(0, len(rows), ROWS_AT_ONCE):
        some = rows[begin : begin + ROWS_AT_ONCE]
        lines = (", ".join(f":{name}_{number}" for name in rows[0]) for number, _ in enumerate(some))
        changes = ", ".join(f"{name}=excluded.{name}" for name in update)
        execute(
            f"INSERT INTO {table}({', '.join(rows[0])}) VALUES ({'), ('.join(lines)})"
            f" ON CONFLICT({key}) DO {f'UPDATE SET {changes}' if changes else 'NOTHING'}",
            {f"{name}_{number}": value for number, row in enumerate(some) for name, value in row.items()},
        )


def requester_columns(who: Requester, person: str) -> dict[str, Any]:
    """Return the columns that name a requester; the column `person` has the id of the person."""
    return {
        "channel": who.thread.channel,
        person: who.person.id,
        "name": who.person.name,
        "language": who.person.language,
        "guest": int(who.person.guest),
        "private": int(who.private),
        "thread": str(who.thread),
    }


def parse_row_id(text: str) -> int | None:
    """Return the number of a row that a person wrote; None for what cannot be one."""
    return int(text) if text.isdecimal() and len(text) <= MAX_ID_DIGITS else None
