"""Registry of the processes that work on this database: each has a lease, by the database's clock.

Whatever a process holds names it as `owner` (`Database.me`): a claimed conversation, a row of the outbox on its way, a
command that runs, a job, a model call. Who has no lease any more is dead, and anyone may release what it held. A
process that works alone (SQLite, and PostgreSQL without `replicas`) has a lease without an end: a lock keeps others
away, so a start releases what all earlier ones held.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bot.database.database import Execute
from bot.database.dialect import NOW, SKIP_LOCKED, AdvisoryLock, lock_until_commit
from bot.database.migrate import DatabaseFault
from bot.database.rows import insert_row, read_rows
from bot.database.states import ReplicaState
from catalogue import N_

LEASE_SECONDS = 12.0  # with a look each second, another process takes over within 15
RENEW_SECONDS = LEASE_SECONDS / 4
SURE_SECONDS = LEASE_SECONDS * 2 / 3  # since the last renewal began: then a process stops by itself
FRESH_SECONDS = RENEW_SECONDS + 2.0  # since the last renewal: so long others leave it what its files belong to
ALONE = 1e12  # the end of a lease that has none
LIVING = f"(SELECT id FROM replicas WHERE until>={NOW})"
DEAD_OWNER = f"owner IS NOT NULL AND owner NOT IN {LIVING}"
DEAD_OR_NO_OWNER = f"coalesce(owner, '') NOT IN {LIVING}"  # of a row whose state says that it is held

LEFT = f"coalesce((SELECT until-{NOW} FROM replicas WHERE id=:id), 0)"  # seconds of the lease of a process

HOST = "coalesce((SELECT host FROM replicas WHERE id=:owner), '')"  # of the process `owner`
# Whose files another process has, which serves: one that begins or ends would have them wait, and one that has not
# renewed its lease lately may be dead.
LIVES_ELSEWHERE = (
    f"host<>'' AND host<>{HOST} AND host IN (SELECT host FROM replicas"
    f" WHERE until>={NOW}+{LEASE_SECONDS - FRESH_SECONDS} AND state='{ReplicaState.SERVING}')"
)

_GOES_ON = f"state<>'{ReplicaState.STOPPING}'"
_LOCK_RELEASE = lock_until_commit(AdvisoryLock.RELEASE)
_PROCESS_LOCK = int(AdvisoryLock.PROCESS)
_HAS_NO_SESSION = f"SELECT pg_try_advisory_xact_lock({_PROCESS_LOCK}, hashtext(:id)) AS so"


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """A process. Times are in unix time, `until` by the database's clock; `digest` is that of its settings.

    `data_lock` names the lock on its data_dir, which one process at a time has; "" where that is not known.
    """

    id: str
    host: str
    until: float
    started_at: float
    version: str
    digest: str
    state: str = ReplicaState.SERVING
    data_lock: str = ""


class OtherVersions(DatabaseFault):
    """Processes work on the database whose rows this version may not understand, or the other way round."""

    def __init__(self, version: str, others: Iterable[ReplicaRow]) -> None:
        text = N_(
            "this is version {version}, and other services work on the database: {others}. Only versions that differ in"
            " the last number work together: stop all services, then start this version"
        )
        super().__init__(text, version=version, others=name_replicas(others))


def name_replicas(replicas: Iterable[ReplicaRow]) -> str:
    """Return processes as a person reads them."""
    return ", ".join(f"{each.host or each.id} ({each.version})" for each in replicas)


def work_together(one: str, other: str) -> bool:
    """Return whether processes of these versions may share a database: all but the last number is the same."""
    return one.rpartition(".")[0] == other.rpartition(".")[0]


def register(execute: Execute, replica: ReplicaRow, *, alone: bool) -> None:
    """Give a process its lease. `alone`: a lock keeps all others away, so none of them lives. Raises OtherVersions."""
    execute(_LOCK_RELEASE, {})
    others = [] if alone else living(execute)
    if strangers := [each for each in others if not work_together(each.version, replica.version)]:
        raise OtherVersions(replica.version, strangers)
    execute("DELETE FROM replicas" if alone else f"DELETE FROM replicas WHERE until>={ALONE}", {})
    insert_row(execute, "replicas", "id", {name: getattr(replica, name) for name in ReplicaRow.__slots__})
    if not alone:
        renew(execute, replica.id, begin=True)


RENEW = (
    f"UPDATE replicas SET until={NOW}+{LEASE_SECONDS} WHERE id=:id AND (until>={NOW} OR :begin=1)"
    f" RETURNING (SELECT count(*) FROM replicas WHERE until>={NOW}) AS living"
)


def renew(execute: Execute, id: str, *, begin: bool = False) -> int:
    """Extend the lease of a process. Returns how many have one; 0: its own has ended, others may have what it held."""
    rows = execute(RENEW, {"id": id, "begin": int(begin)})
    return int(rows[0]["living"]) if rows else 0


def enter(execute: Execute, id: str, state: ReplicaState) -> None:
    """Record whether a process begins, serves or ends: others take what waits for one that does not serve."""
    execute(f"UPDATE replicas SET state=:state WHERE id=:id AND {_GOES_ON}", {"id": id, "state": state})


def others_serve(execute: Execute, id: str) -> bool:
    """Return whether another process serves, or none lives. One process at a time asks, until its transaction ends."""
    execute(_LOCK_RELEASE, {})
    others = [each for each in living(execute) if each.id != id]
    return not others or any(each.state == ReplicaState.SERVING for each in others)


def leave(execute: Execute, id: str) -> None:
    """End the lease of a process that has released what it held, or cannot."""
    execute("DELETE FROM replicas WHERE id=:id", {"id": id})


def living(execute: Execute) -> list[ReplicaRow]:
    """Return the processes that have a lease, the oldest first."""
    return read_rows(execute, ReplicaRow, f"SELECT * FROM replicas WHERE until>={NOW} ORDER BY started_at, id")


def living_with_leases(execute: Execute) -> list[tuple[ReplicaRow, float]]:
    """Return the processes that have a lease, and the seconds until it ends."""
    [row] = execute(f"SELECT {NOW} AS now", {})
    return [(each, each.until - row["now"]) for each in living(execute)]


def note_digest(execute: Execute, id: str, digest: str) -> None:
    """Record the digest of the configuration that a process has read again."""
    execute("UPDATE replicas SET digest=:digest WHERE id=:id", {"id": id, "digest": digest})


def host_of(execute: Execute, id: str) -> str:
    """Return the name of the data_dir of a process; "" for one without a row."""
    return next((str(row["host"]) for row in execute("SELECT host FROM replicas WHERE id=:id", {"id": id})), "")


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


def forget_predecessors(execute: Execute, id: str) -> tuple[list[str], bool]:
    """Remove the processes that had the lock on data_dir before the process `id`, which has it now and serves.

    They are dead, however long their leases last. One whose last transaction has not ended yet is left. Returns those
    that were removed, whose things the caller releases in the same transaction, and whether it is to be asked again.
    """
    sql = (
        "SELECT id, (SELECT state FROM replicas WHERE id=:id) AS state FROM replicas WHERE id<>:id AND data_lock<>''"
        f" AND data_lock=(SELECT data_lock FROM replicas WHERE id=:id){SKIP_LOCKED}"
    )
    found = execute(sql, {"id": id})
    if not found or found[0]["state"] != ReplicaState.SERVING:  # before, others would take what waits for its files
        return [], bool(found)
    execute(_LOCK_RELEASE, {})
    dead = [str(row["id"]) for row in found if execute(_HAS_NO_SESSION, {"id": row["id"]})[0]["so"]]
    for each in dead:
        leave(execute, each)
    return dead, len(dead) < len(found)
