"""Say which rows wake which reader: triggers that mark the transaction which writes such rows.

A trigger calls `pg_notify(kind, name)`, where the name says more of the row, or nothing. PostgreSQL has this function,
and `database.py` gives it to SQLite: after the commit, and only then, `Database` wakes who listens to the kind. So a
writer can neither forget it nor wake anybody too early.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

import aiosqlite

from agent.messages import Kind
from bot.database.states import InboxState, OutboxState, ScheduleState, TaskState
from bot.database.web_people import WEB


class Written(StrEnum):
    """A kind of row that a reader waits for."""

    COMMAND = "command"  # or press, to answer
    MESSAGE = "message"  # of a conversation that no turn works in
    OUTBOX = "outbox"  # to deliver
    JOB = "job"  # to run, also later
    SCHEDULE = "schedule"  # active, with another time
    TASK = "task"  # queued, or ended while its command may run
    LEASE = "lease"  # given up, or a process that leaves what waits for it to others
    WEB = "web"  # of a thread of the channel `web`, which its mark names


_COMMAND = f"NEW.kind IN ('{Kind.COMMAND}', '{Kind.PRESS}') AND NEW.state={InboxState.NEW}"
_UNCLAIMED = "NEW.pending>0 AND NEW.owner IS NULL"
_FREED = "OLD.owner IS NOT NULL OR NEW.pending<>OLD.pending OR NEW.ready IS NOT OLD.ready"
_UNDELIVERED = f"NEW.state={OutboxState.NEW}"
_WAITING = "NEW.due IS NOT NULL AND NEW.owner IS NULL"
_ACTIVE = f"NEW.state='{ScheduleState.ACTIVE}'"
_QUEUED = f"NEW.state='{TaskState.QUEUED}'"
_ENDED = f"OLD.state='{TaskState.RUNNING}'"
_OF_WEB = f"NEW.thread>='{WEB}/' AND NEW.thread<'{WEB}0'"
_CHANGED = "(NEW.pending<>OLD.pending OR NEW.owner IS NOT OLD.owner OR NEW.title<>OLD.title OR NEW.state<>OLD.state)"
_GIVEN_UP = "OLD.owner IS NOT NULL"
_HAS_LEFT = "OLD.id IS NOT NULL"
_POSTED = "NEW.run=0"  # what the channel `web` posts; others store none like it

TRIGGERS = (  # the kind, its table, the statements, and when a row of them wakes
    (Written.COMMAND, "inbox", "INSERT", _COMMAND),
    (Written.COMMAND, "inbox", "UPDATE OF state", f"{_COMMAND} AND OLD.state<>NEW.state"),
    (Written.MESSAGE, "conversations", "UPDATE OF pending, ready, owner", f"{_UNCLAIMED} AND ({_FREED})"),
    (Written.OUTBOX, "outbox", "INSERT", _UNDELIVERED),
    (Written.OUTBOX, "outbox", "UPDATE OF state", f"{_UNDELIVERED} AND OLD.state<>NEW.state"),
    (Written.JOB, "jobs", "INSERT", _WAITING),
    (Written.JOB, "jobs", "UPDATE OF due, owner", f"{_WAITING} AND (OLD.owner IS NOT NULL OR OLD.due IS NOT NEW.due)"),
    (Written.SCHEDULE, "schedules", "INSERT", _ACTIVE),
    (
        Written.SCHEDULE,
        "schedules",
        "UPDATE OF state, next_at",
        f"{_ACTIVE} AND (OLD.state<>NEW.state OR OLD.next_at IS NOT NEW.next_at)",
    ),
    (Written.TASK, "tasks", "INSERT", _QUEUED),
    (Written.TASK, "tasks", "UPDATE OF state", f"({_QUEUED} OR {_ENDED}) AND OLD.state<>NEW.state"),
    (Written.LEASE, "leases", "DELETE", _GIVEN_UP),
    (Written.LEASE, "replicas", "DELETE", _HAS_LEFT),
    (Written.LEASE, "replicas", "UPDATE OF state", "OLD.state<>NEW.state"),
    (
        Written.WEB,
        "conversations",
        "UPDATE OF pending, owner, title, state",
        f"{_OF_WEB} AND {_CHANGED}",
    ),
    (Written.WEB, "transcript", "INSERT", _POSTED),
    (Written.WEB, "transcript", "UPDATE OF text", f"{_POSTED} AND NEW.text<>OLD.text"),
    (Written.WEB, "questions", "UPDATE OF state", "OLD.state<>NEW.state"),
)
_NAMES = {  # what marks say of rows
    "conversations": "NEW.thread",
    "transcript": "(SELECT thread FROM conversations WHERE key=NEW.conversation)",
    "questions": "(SELECT thread FROM conversations WHERE key=NEW.conversation)",
}
TABLES = tuple(dict.fromkeys(table for _, table, _, _ in TRIGGERS))


class Trigger(NamedTuple):
    """What marks a transaction that has written a row. `says` is an expression: what the mark says of the row."""

    name: str
    written: Written
    table: str
    statements: str
    condition: str
    says: str


async def create_triggers(connection: aiosqlite.Connection) -> None:
    """Have a connection mark the transactions that write what a reader waits for."""
    for table in TABLES:
        if await connection.execute_fetchall(f"PRAGMA table_info({table})"):  # another database has no such table
            await connection.executescript(";".join(_triggers_of(table)))


def _triggers_of(table: str) -> Iterator[str]:
    for name, written, of, statements, condition, says in find_triggers():
        if of == table:
            yield (
                f"CREATE TEMP TRIGGER IF NOT EXISTS {name} AFTER {statements} ON {table} WHEN {condition}"
                f" BEGIN SELECT pg_notify('{written}', {says}); END"
            )


def find_triggers() -> Iterator[Trigger]:
    """Yield the triggers, of which each engine writes its own."""
    for written, table, statements, condition in TRIGGERS:
        name = f"wake_{written}_{table}_{statements.partition(' ')[0].lower()}"
        says = _NAMES[table] if written is Written.WEB else "''"
        yield Trigger(name, written, table, statements, condition, says)
