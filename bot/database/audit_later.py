"""Keep the rows of the audit that a transaction of PostgreSQL appends at its end.

Each row continues the one before it, so who appends one has others wait until its transaction ends. At the end, that is
two messages and the commit; where the first deed of a unit is recorded, it would be all of the transaction
(decision 193).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from bot.database.audit import DatedEvent
from bot.database.dialect import EXTRA, LOCK_AUDIT

AUDIT_TABLES = re.compile(r"\baudit(?:_names|_anchors)?\b")
PART = re.compile(r"(SAVEPOINT|ROLLBACK TO) (\w+)")


class LaterRows:
    """Rows that are appended at the end of a transaction, in their order.

    A statement that reads or writes the audit itself finds them. What was appended then is appended again, where the
    part of the transaction that did so is undone.
    """

    def __init__(self, append: Callable[[Sequence[DatedEvent]], None]) -> None:
        self._append = append
        self._events: list[DatedEvent] = []
        self._appended = 0  # of them
        self._parts: dict[str, tuple[int, int]] = {}  # name → how many there were at its beginning, how many appended

    def clear(self) -> None:
        """Forget them: another transaction begins."""
        self._events.clear()
        self._parts.clear()
        self._appended = 0

    def add(self, event: DatedEvent) -> None:
        """Append a row later. Raises TypeError for one that cannot be stored: its unit fails, and no other."""
        event.check()
        self._events.append(event)

    def append(self) -> None:
        """Append what was not appended yet. Raises StatementError and StorageError."""
        some = self._events[self._appended :]
        if some:
            self._append(some)
            self._appended = len(self._events)

    def begin_part(self, name: str) -> None:
        """Note where a part of the transaction begins that may be undone."""
        self._parts[name] = (len(self._events), self._appended)

    def undo_part(self, name: str) -> None:
        """Forget the rows of a part that is undone."""
        count, self._appended = self._parts[name]
        del self._events[count:]

    def notice(self, sql: str) -> None:
        """Look at a statement of a unit before it is run."""
        kind, name = _meets_audit(sql)
        if kind == "SAVEPOINT":
            self.begin_part(name)
        elif kind == "ROLLBACK TO":
            self.undo_part(name)
        elif kind:
            self.append()


@lru_cache(maxsize=2048)
def _meets_audit(sql: str) -> tuple[str, str]:
    """Return whether a statement reads or writes the audit, or begins or undoes a part of the transaction; its name."""
    if found := PART.match(sql.removeprefix(EXTRA)):
        return found[1], found[2]
    return ("audit" if AUDIT_TABLES.search(sql) or sql == LOCK_AUDIT else ""), ""
