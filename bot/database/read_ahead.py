"""Read in one message to the server what a unit of work is about to ask for (decision 199).

SQLite is in the process and asks when it is asked; PostgreSQL answers each message only after it was woken for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bot.database.database import Execute
from bot.database.dialect import READ_AHEAD

Part = Callable[[Execute], object]
Read = tuple[str, Mapping[str, Any]]  # a statement and its values


def read_ahead(execute: Execute, part: Part) -> None:
    """Have a connection whose messages cost time read in one what `part` asks for; others do nothing.

    `part` runs twice then, the first time as if there were no rows at all. What it reads must not follow from rows that
    this unit has yet to lock.
    """
    execute(READ_AHEAD, {"part": part})


class ReadAhead:
    """Rows that were read before they were asked for. They hold until the transaction writes or locks something."""

    def __init__(self, read_all: Callable[[Sequence[Read]], Sequence[Sequence[Any]]]) -> None:
        self._read_all = read_all
        self._rows: dict[str, dict[tuple[Any, ...], Sequence[Any]]] = {}  # statement → values → rows

    def clear(self) -> None:
        """Forget them."""
        self._rows.clear()

    def fetch(self, part: Part) -> None:
        """Read what `part` asks for. Raises StatementError and StorageError."""
        reads: dict[tuple[Any, ...], Read] = {}

        def note(sql: str, values: Mapping[str, Any] = {}) -> Sequence[Any]:
            if _is_read(sql):
                reads[(sql, *values.values())] = (sql, values)
            return ()

        part(note)
        self.clear()
        for (sql, values), rows in zip(reads.values(), self._read_all([*reads.values()]), strict=True):
            self._rows.setdefault(sql, {})[(*values.values(),)] = rows

    def execute(
        self, run: Callable[[str, Mapping[str, Any]], Sequence[Any]], sql: str, values: Mapping[str, Any]
    ) -> Sequence[Any]:
        """Return what was read, or run the statement."""
        if self._rows:
            if sql in self._rows and (rows := self._rows[sql].get((*values.values(),))) is not None:
                return rows
            if not _is_read(sql):
                self._rows.clear()
        return run(sql, values)


def _is_read(sql: str) -> bool:
    """Return whether a statement only reads. One with a comment may lock what it reads."""
    return sql.startswith("SELECT") and "/*" not in sql
