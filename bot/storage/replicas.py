"""Registry of the processes that work on this database: each has a lease, by the database's clock.

Whatever a process holds names it as `owner` (`Database.me`): a claimed conversation, a row of the outbox on its way, a
command that runs, a job, a model call. Who has no lease any more is dead, and anyone may release what it held. A
process that works alone (SQLite, and PostgreSQL without `replicas`) has a lease without an end: a lock keeps others
away, so a start releases what all earlier ones held.
"""

from __future__ import annotations

from dataclasses import dataclass

from bot.storage.database import Execute
from bot.storage.dialect import NOW, SKIP_LOCKED, AdvisoryLock, lock_until_commit
from bot.storage.rows import insert_row, read_rows

LEASE_SECONDS = 12.0  # with a look each second, another process takes over within 15
RENEW_SECONDS = LEASE_SECONDS / 4
ALONE = 1e12  # the end of a lease that has none
LIVING = f"(SELECT id FROM replicas WHERE until>={NOW})"
DEAD_OWNER = f"owner IS NOT NULL AND owner NOT IN {LIVING}"
DEAD_OR_NO_OWNER = f"coalesce(owner, '') NOT IN {LIVING}"  # of a row whose state says that it is held

HOST = "coalesce((SELECT host FROM replicas WHERE id=:owner), '')"  # of the process `owner`
LIVES_ELSEWHERE = (  # whose files another living process has
    f"host<>'' AND host<>{HOST} AND host IN (SELECT host FROM replicas WHERE until>={NOW})"
)

_LOCK_RELEASE = lock_until_commit(AdvisoryLock.RELEASE)


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """A process. Times are in unix time, `until` by the database's clock; `digest` is that of its configuration."""

    id: str
    host: str
    until: float
    started_at: float
    version: str
    digest: str


def register(execute: Execute, replica: ReplicaRow, *, alone: bool) -> None:
    """Give a process its lease. `alone`: a lock keeps all others away, so none of them lives."""
    execute(_LOCK_RELEASE, {})
    execute("DELETE FROM replicas" if alone else f"DELETE FROM replicas WHERE until>={ALONE}", {})
    insert_row(execute, "replicas", "id", {name: getattr(replica, name) for name in ReplicaRow.__slots__})
    if not alone:
        renew(execute, replica.id, begin=True)


def renew(execute: Execute, id: str, *, begin: bool = False) -> bool:
    """Extend the lease of a process. False: it has ended, and others may have what it held."""
    sql = f"UPDATE replicas SET until={NOW}+{LEASE_SECONDS} WHERE id=:id AND (until>={NOW} OR :begin=1) RETURNING id"
    return bool(execute(sql, {"id": id, "begin": int(begin)}))


def leave(execute: Execute, id: str) -> None:
    """End the lease of a process that has released what it held, or cannot."""
    execute("DELETE FROM replicas WHERE id=:id", {"id": id})


def living(execute: Execute) -> list[ReplicaRow]:
    """Return the processes that have a lease, the oldest first."""
    return read_rows(execute, ReplicaRow, f"SELECT * FROM replicas WHERE until>={NOW} ORDER BY started_at, id")


def forget_dead(execute: Execute) -> list[str]:
    """Remove the processes whose lease has ended and return them. None of two callers at once has the same one.

    The caller releases what they held, in the same transaction.
    """
    dead = execute(f"SELECT id FROM replicas WHERE until<{NOW}{SKIP_LOCKED}", {})
    if dead:
        execute(_LOCK_RELEASE, {})
    for row in dead:
        leave(execute, row["id"])
    return [str(row["id"]) for row in dead]
