"""Delete rows that are older than the retention period. Open work is never deleted."""

from __future__ import annotations

import time

from bot.storage.database import Execute
from bot.storage.dialect import ROW_ID
from bot.storage.states import (
    OPEN_RUN,
    InboxState,
    OutboxKind,
    OutboxState,
    PairingState,
    QuestionState,
    ScheduleState,
    TaskState,
)

USAGE_SECONDS = 32 * 86400  # the budgets of a month are sums of usage
FINISHED = {
    "inbox": f"state<>{InboxState.NEW} AND received<:before",
    "outbox": f"state IN ({OutboxState.SENT}, {OutboxState.DROPPED}) AND created<:before",
    "posts": "created<:before",
    "runs": "finished IS NOT NULL AND finished<:before",
    "transcript": "at<:before",
    "questions": f"state='{QuestionState.CLOSED}' AND asked<:before",
    "people": f"(allowed={PairingState.DECLINED} OR code<>'') AND until<:before AND notify IS NULL AND memory=1"
    " AND zone='' AND notify_where='' AND quiet='' AND digest=''",
    "held_pings": "created<:before",
    "heard": "topic<>'' AND time<:before",
    "jobs": "owner IS NULL AND due IS NULL AND created<:before",
    "usage": "at<:before AND at<:month_ago",
    "budgets": "until<:now",
    "feedback": "at<:before",
    "schedules": f"state IN ('{ScheduleState.PROPOSED}', '{ScheduleState.ENDED}') AND created<:before"
    " AND coalesce(next_at, 0)<:before",
    "schedule_fires": "at<:before",
    "tasks": f"created<:before AND state NOT IN ('{TaskState.QUEUED}', '{TaskState.RUNNING}')",
    "memory_queue": "at<:before",
}
"""Table → the rows of it that may be deleted."""

_DELETE = {
    table: f"DELETE FROM {table} WHERE {ROW_ID} IN (SELECT {ROW_ID} FROM {table} WHERE {finished} LIMIT :limit)"
    " RETURNING 1"
    for table, finished in FINISHED.items()
}


def delete_finished(execute: Execute, table: str, before: float, limit: int) -> int:
    """Delete some rows of a table that were finished before this unix time; return how many."""
    now = time.time()
    values = {"before": before, "now": now, "month_ago": now - USAGE_SECONDS, "limit": limit}
    return len(execute(_DELETE[table], values))


def runs_with_copies(execute: Execute) -> set[str]:
    """Return the runs whose copies of files are needed: open, being delivered, or dead letters that may be requeued."""
    rows = execute(
        f"SELECT run FROM outbox WHERE kind='{OutboxKind.FILE}'"
        f" AND state IN ({OutboxState.NEW}, {OutboxState.CLAIMED}, {OutboxState.DEAD})"
        f" UNION SELECT id FROM runs WHERE {OPEN_RUN}",
        {},
    )
    return {str(row["run"]) for row in rows}


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
    execute("DELETE FROM ledger WHERE conversation=:key", {"key": key})
    execute("UPDATE addresses SET conversation='' WHERE conversation=:key", {"key": key})
