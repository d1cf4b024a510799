"""Delete rows that are older than the retention period. Open work is never deleted."""

from __future__ import annotations

import time
from dataclasses import dataclass

from bot.database.database import Execute
from bot.database.dialect import ROLE_PERSON, ROW_ID
from bot.database.states import (
    OPEN_RUN,
    OutboxKind,
    OutboxState,
)
from bot.storage.outcomes import OUTCOME_DAYS, day_of
from bot.storage.personal import PersonalTable

USAGE_SECONDS = 32 * 86400  # the budgets of a month are sums of usage

_DELETE = "DELETE FROM {table} WHERE {id} IN (SELECT {id} FROM {table} WHERE {finished} LIMIT :limit) RETURNING 1"


def delete_finished(execute: Execute, table: PersonalTable, before: float, limit: int) -> int:
    """Delete some rows of a table that were finished before this unix time; return how many."""
    now = time.time()
    values = {"before": before, "now": now, "month_ago": now - USAGE_SECONDS, "limit": limit}
    values["oldest_day"] = day_of(now) - OUTCOME_DAYS + 1
    return len(execute(_DELETE.format(table=table.table, id=ROW_ID, finished=table.finished), values))


@dataclass(frozen=True, slots=True)
class OpenCopies:
    """What needs copies of files: rows of the outbox with their payloads, and runs that have not ended."""

    rows: dict[int, bytes]
    runs: frozenset[int]


def open_copies(execute: Execute) -> OpenCopies:
    """Return what needs copies of files: being delivered, a dead letter that may be requeued, or an open run."""
    rows = execute(
        f"SELECT id, payload FROM outbox WHERE kind='{OutboxKind.FILE}'"
        f" AND state IN ({OutboxState.NEW}, {OutboxState.CLAIMED}, {OutboxState.DEAD})",
        {},
    )
    runs = execute(f"SELECT id FROM runs WHERE {OPEN_RUN}", {})
    return OpenCopies({int(row["id"]): row["payload"] for row in rows}, frozenset(int(row["id"]) for row in runs))


_EVERYWHERE = "conversation='' AND name<>'' AND given<:before"  # others end with their conversation
_UNHEARD = "NOT EXISTS (SELECT 1 FROM inbox i WHERE i.author="
_NAMES = (
    f"UPDATE people SET name='' WHERE name<>'' AND code='' AND {_UNHEARD}people.channel || ':' || people.person)",
    f"UPDATE person_roles SET name='' WHERE name<>'' AND given<:before AND {_UNHEARD}channel || ':' || {ROLE_PERSON})",
    f"UPDATE person_roles SET giver_name='' WHERE giver_name<>'' AND given<:before AND {_UNHEARD}channel||':'||giver)",
    f"UPDATE permission_grants SET name='' WHERE {_EVERYWHERE} AND {_UNHEARD}channel || ':' || person)",
)


def end_names(execute: Execute, before: float) -> int:
    """Drop the names of people of whom no message is left; their ids, roles and choices stay. Return how many."""
    return sum(len(execute(f"{sql} RETURNING 1", {"before": before})) for sql in _NAMES)


def idle_conversations(execute: Execute, before: float, skip: int) -> list[str]:
    """Return keys of conversations that were not used since `before`."""
    rows = execute(
        "SELECT key FROM conversations WHERE used<:before AND pending=0 AND owner IS NULL"
        " ORDER BY used, key LIMIT 20 OFFSET :skip",
        {"before": before, "skip": skip},
    )
    return [str(row["key"]) for row in rows]


def delete_conversation(execute: Execute, key: str) -> None:
    """Delete an idle conversation. A conversation with a new message continues with an empty memory."""
    if not execute(
        "DELETE FROM conversations WHERE key=:key AND pending=0 AND owner IS NULL RETURNING key", {"key": key}
    ):
        return
    execute("DELETE FROM outputs WHERE conversation=:key", {"key": key})
    execute("DELETE FROM questions WHERE conversation=:key", {"key": key})
    execute("DELETE FROM permission_grants WHERE conversation=:key", {"key": key})
    execute("DELETE FROM exposures WHERE conversation=:key", {"key": key})
    execute("DELETE FROM ledger WHERE conversation=:key", {"key": key})
    execute("DELETE FROM run_steps WHERE conversation=:key", {"key": key})
    execute("DELETE FROM quoted WHERE conversation=:key", {"key": key})
    execute("UPDATE addresses SET conversation='' WHERE conversation=:key", {"key": key})
