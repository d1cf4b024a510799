"""Convert rows between SQLite, which keeps any type in any column, and PostgreSQL; and say which ones cannot be.

Both sides have the tables of the same revision. The full-text index is read and filled as a table: each engine makes
its own words from the same columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.database.audit_check import ChainReport
from bot.database.database import Execute
from bot.database.migrate import DatabaseFault
from catalogue import N_

Verify = Callable[[Execute], ChainReport]  # the audit of a database
Record = Callable[[Execute], None]  # what the copied audit says about the copy

VERSION_TABLE = "alembic_version"  # both sides have its row
FULL_TEXT_TABLE = "memory_index"
FULL_TEXT_COLUMNS = {"rowid": "bigint", "text": "text", "before": "text", "after": "text", "audience": "text"}
MOST_FAULTS = 10  # that are told
SHOWN_CHARS = 60  # of a value
_MOST = 2**63
# An empty value of a column of bytes is a text in SQLite, as its statements write and compare it. States are bytes.
_STATES = ("checkpoints", "checkpoint_writes")


class RowsRefused(DatabaseFault):
    """Some rows fit no column of PostgreSQL; the text names them."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__(
            N_("these rows cannot be copied; mend or delete them in {table}: {faults}"),
            table="fawn.db",
            faults="; ".join(faults),
        )


class CopyDiffers(DatabaseFault):
    """The copy is not what it was made from."""

    def __init__(self, table: str, found: object, expected: object) -> None:
        text = N_("the copy of {table} differs from its source: {found} instead of {expected}. Nothing was kept")
        super().__init__(text, table=table, found=found, expected=expected)


@dataclass(slots=True)
class Copied:
    """What a copy has: rows by table. `replaced` texts had a NUL or bytes that are no text, which became U+FFFD."""

    counts: dict[str, int] = field(default_factory=dict)
    replaced: int = 0
    audit: ChainReport | None = None
    faults: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Table:
    """A table and the types of its columns, in PostgreSQL's words."""

    name: str
    columns: Mapping[str, str]

    @property
    def names(self) -> str:
        """Its columns, for a statement."""
        return ", ".join(f'"{name}"' for name in self.columns)


def convert_rows(table: Table, rows: Iterable[Sequence[Any]], copied: Copied) -> Iterator[list[Any]]:
    """Yield SQLite's rows, each behind its row number, as PostgreSQL takes them. Those that do not fit are faults."""
    kinds = [*table.columns.items()]
    for number, *values in rows:
        if len(copied.faults) >= MOST_FAULTS:
            return
        converted = []
        for (column, kind), value in zip(kinds, values, strict=True):
            try:
                converted.append(_convert(kind, value, copied))
            except (ValueError, OverflowError):
                shown = repr(value)[:SHOWN_CHARS]
                copied.faults.append(f"{table.name}, rowid {number}, {column}: {shown} ({kind})")
                break
        else:
            yield converted


def _convert(kind: str, value: Any, copied: Copied) -> Any:
    """Return a value of a column of this type. Texts come as their bytes. Raises ValueError and OverflowError."""
    if value is None:
        return None
    if kind == "bytea":
        return value if isinstance(value, bytes) else str(value).encode()
    if kind == "text":
        return _text(value, copied) if isinstance(value, bytes) else str(value)
    number = float(value) if isinstance(value, bytes) else value
    if kind == "double precision":
        return float(number)
    if isinstance(number, float):
        number = round(number) if math.isfinite(number) else _MOST  # as PostgreSQL does it
    if not -_MOST <= number < _MOST:
        raise OverflowError
    return number


def _text(value: bytes, copied: Copied) -> str:
    text = value.decode("utf-8", "replace").replace("\0", "\ufffd")
    copied.replaced += text.encode() != value
    return text


def restore_rows(table: Table, rows: Iterable[Sequence[Any]]) -> Iterator[Sequence[Any]]:
    """Yield PostgreSQL's rows as SQLite has them."""
    empty = [number for number, kind in enumerate(table.columns.values()) if kind == "bytea"]
    if not empty or table.name in _STATES:
        yield from rows
        return
    for row in rows:
        values = list(row)
        for number in empty:
            if values[number] == b"":
                values[number] = ""
        yield values
