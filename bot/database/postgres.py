"""Run units of work on PostgreSQL: the same group commit, by psycopg on the database's own thread.

A unit is a synchronous function of `execute`, so that the synchronous psycopg on one thread fits it as sqlite3 does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from bot.database.audit import DatedEvent, append_rows
from bot.database.audit_later import LaterRows
from bot.database.database import (
    Batch,
    BatchRunner,
    Database,
    DatabaseAway,
    Execute,
    Mark,
    Outcome,
    StepWork,
    StorageError,
    Work,
)
from bot.database.dialect import APPEND_LATER
from bot.database.migrate import DatabaseFault
from bot.database.postgres_schema import MARK, prepare_schema
from bot.database.postgres_session import (
    COPY_LOCK,
    FENCE,
    LOST_SECONDS,
    OWNER_LOCK,
    PROCESS_LOCK,
    SCHEMA_LOCK,
    NamedRow,
    PostgresLease,
    Target,
    check_direct,
    connect,
    own_database,
)
from bot.database.postgres_statements import OUTDATED, Statements
from bot.database.postgres_wake_ups import WakeUps
from bot.database.replicas import LEASE_SECONDS, LEFT, SURE_SECONDS
from bot.database.wake_ups import Written

log = logging.getLogger(__name__)

MAX_BATCH = 8  # units in a transaction: it holds its locks until its end, for which other processes wait
ALONE_BATCH = 64  # where there are no others: SQLite takes all that wait
RETRY_SECONDS = 0.5
AWAY_SECONDS = 5.0  # that units wait for a server that restarts: a third of a lease (`replicas.py`)
UNKNOWN_SECONDS = 60.0  # in which the server has to say what became of a commit whose answer was lost
STEP_ROWS = 500
SPARE_SECONDS = LEASE_SECONDS - SURE_SECONDS  # of its lease that a process has before each commit, at least…
PAUSED_SECONDS = SPARE_SECONDS * 3 / 4  # …and after which the server ends a transaction in which nothing happens
DEADLOCK_TRIES = 5
UNIT = "work"  # the name of its savepoint
SNAPSHOT_SECONDS = 10.0  # to wait for the end of other transactions before deleted rows are overwritten
OLDER_SNAPSHOTS = """SELECT 1 FROM pg_stat_activity WHERE datname=current_database()
    AND pid<>pg_backend_pid() AND age(backend_xmin)>age(CAST(%s AS xid))"""
TAKEN = ({"taken": 1},)  # the answer to APPEND_LATER
TRANSACTION = "SELECT CAST(pg_current_xact_id_if_assigned() AS text)"  # its number; NULL where it wrote nothing
TRANSACTION_AND_LEASE = f"{TRANSACTION}, {LEFT}"
CONFLICTS = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)

Sessions = tuple["psycopg.Connection[NamedRow]", "psycopg.Connection[NamedRow] | None"]  # the second keeps others away


class LeaseOver(StorageError):
    """The lease of this process is over, or nearly: others may have what it holds, so it writes nothing."""


class CommitUnknown(DatabaseAway):
    """The connection was lost before the answer to COMMIT came."""

    def __init__(self, transaction: str, outcomes: Sequence[Outcome], written: frozenset[Mark], why: str) -> None:
        super().__init__(why)
        self.transaction, self.outcomes, self.written = transaction, outcomes, written


@dataclass(frozen=True, slots=True)
class DatabaseServer:
    """Where the database is. `session`: the server itself, where `target` is a pooler."""

    target: Target
    session: Target = ""
    lock_seconds: float = 5.0  # to wait for a row that another session holds
    owner_seconds: float = LOST_SECONDS  # to wait for the end of a process whose connection was lost
    away_seconds: float = AWAY_SECONDS  # that units wait for a server that is away, from when it was lost
    shared: bool = False  # several processes work on it
    no_tables: DatabaseFault | None = None  # why a database without tables must not get any

    @property
    def itself(self) -> Target:
        """Where the server itself is, past a pooler."""
        return self.session or self.target


class PostgresDatabase(Database):
    """A PostgreSQL database that this process alone works on, or `shared` with others.

    Its beginning raises DatabaseInUse, DatabaseAway, StorageError for a server that refuses, and DatabaseFault.
    """

    def __init__(self, server: DatabaseServer) -> None:
        self._server = server
        self.MAX_BATCH = MAX_BATCH if server.shared else ALONE_BATCH
        self.is_shared = server.shared
        self.lost_at: float | None = None  # since when the server is away
        self._wake_ups: WakeUps | None = None
        self._waking: asyncio.Task[None] | None = None
        self._start()

    async def __aenter__(self) -> Database:
        await super().__aenter__()
        if self.is_shared:
            self._wake_ups = WakeUps(self._server.itself, self.me, self._hear, self.wake_all, self._take_letter)
            self._waking = asyncio.create_task(self._wake_ups.serve(), name="wake-ups")
        return self

    def _tell_others(self, marks: Collection[Mark]) -> None:
        if self._wake_ups and marks:
            self._wake_ups.announce(marks)

    def _hear(self, marks: Collection[Mark]) -> None:
        """Wake who waits for what another process has written. What one leaves may be anything."""
        self._wake_listeners(marks)
        if any(kind is Written.LEASE for kind, _name in marks):
            self.wake_all()

    def lease_session(self) -> PostgresLease:
        """Return what renews the lease of this process."""
        return PostgresLease(self._server.itself, self.me)

    def send(self, topic: str, text: str, to: str = "") -> None:
        """Tell another process something soon, or ("") all others. It may be lost."""
        if self._wake_ups:
            self._wake_ups.send(topic, text, to)

    def _close_files(self) -> None:
        """Close nothing: it has no files."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await super().__aexit__(kind, error, trace)
        finally:
            if self._wake_ups and self._waking:
                await self._wake_ups.flush()
                self._waking.cancel()

    async def _connect(self) -> BatchRunner:
        me = self.me if self.is_shared else ""
        return await PostgresConnection.open(
            self._server, lambda: self._batch, lambda: self.me if self.lease else "", process=me
        )

    async def _commit(self, batch: Batch) -> None:
        """Commit a batch: again and again for some seconds, if the connection is lost before anything is kept."""
        while True:
            await super()._commit(batch)
            if not batch.is_away:
                self.lost_at = None
                return
            self.lost_at = self.lost_at or time.monotonic()
            if self._closing or time.monotonic() - self.lost_at >= self._server.away_seconds:
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def _end_lost(self, batch: Batch, error: Exception) -> None:
        log.warning("store.connection_lost reason=%s", error)
        batch.fail(error)
        await self._disconnect()
        if isinstance(error, CommitUnknown):
            await self._settle(batch, error)
            self._batch = batch

    async def _settle(self, batch: Batch, unknown: CommitUnknown) -> None:
        """Ask the server what became of a commit, once it can be reached. Its units fail where it never says it.

        One that was aborted kept nothing: its units stay as those of a batch whose server is away.
        """
        until, ask = time.monotonic() + UNKNOWN_SECONDS, Batch([partial(_read_status, transaction=unknown.transaction)])
        while time.monotonic() < until:
            self._batch = ask
            try:
                self._connection = self._connection or await self._connect()
                await self._connection.commit()
                [(status, fault)] = ask.outcomes
            except Exception as error:  # noqa: BLE001 — it is lost again
                status, fault = "", error
            if fault is None and status != "in progress":
                log.info("store.commit_settled status=%s", status)
                if status == "committed":
                    batch.outcomes, batch.written = unknown.outcomes, unknown.written
                elif status != "aborted":  # the server has forgotten it
                    break
                return
            if fault:
                await self._disconnect()
            await asyncio.sleep(RETRY_SECONDS)
        batch.fail(StorageError(str(unknown)))  # maybe kept: its caller knows whether to repeat it

    async def run_steps(self, work: StepWork) -> int:
        """Run `work` in small transactions until it returns 0; return the sum. Each is safe to repeat."""
        total, done = 0, 1
        while done:
            done = await self.run(partial(work, limit=STEP_ROWS), durable=False)
            total += done
        return total

    async def free_pages(self) -> None:
        """Nothing: PostgreSQL's own vacuum keeps free pages for later rows."""

    async def overwrite_deleted(self) -> bool:
        """Rewrite every table without its deleted rows. Others wait for each table meanwhile. False: a copy is made.

        A checkpoint follows where the user may ask for one: without it, the words stay in the log for some minutes.
        """
        return await asyncio.get_running_loop().run_in_executor(None, _rewrite, self._server.itself)

    def copy_to(self, file: Path) -> None:
        """Make an SQLite file with everything of one moment. It blocks; the service works meanwhile.

        Raises StorageError, DatabaseFault, sqlite3.Error and OSError.
        """
        from bot.database.postgres_copy import copy_to_sqlite

        copy_to_sqlite(self._server.itself, file)

    async def size(self) -> int:
        """Return the size of the database in bytes."""
        sql = "SELECT pg_database_size(current_database()) AS size"
        return int((await self.run(lambda execute: execute(sql, {}), durable=False))[0]["size"])


def _read_status(execute: Execute, transaction: str) -> str:
    """Return what became of a transaction; "" if the server has forgotten it."""
    if not transaction:  # it has written nothing
        return "committed"
    [row] = execute("SELECT pg_xact_status(CAST(:transaction AS xid8)) AS status", {"transaction": transaction})
    return row["status"] or ""


def _may_be_repeated(cause: BaseException | None) -> bool:
    """Return whether a transaction failed for what others did at the same time, also to the columns of a table."""
    return isinstance(cause, CONFLICTS) or (isinstance(cause, psycopg.Error) and cause.diag.source_function == OUTDATED)


def _rewrite(target: Target) -> bool:
    """Return whether it did: VACUUM FULL keeps the deleted rows that an older snapshot, such as a copy's, sees."""
    try:
        with closing(connect(target)) as connection:
            [[is_free]] = connection.execute(f"SELECT pg_try_advisory_lock({COPY_LOCK})").fetchall()
            if not is_free or not _wait_for_older_snapshots(connection):
                return False
            connection.execute("VACUUM FULL")
            try:
                connection.execute("CHECKPOINT")
            except psycopg.errors.InsufficientPrivilege:
                log.info("store.no_checkpoint — grant pg_checkpoint to the user, or the words stay in the log longer")
            return True
    except psycopg.Error as error:
        raise StorageError(str(error)) from error


def _wait_for_older_snapshots(connection: psycopg.Connection[NamedRow]) -> bool:
    """Return whether the snapshots from before this moment end in time, such as that of an automatic ANALYZE."""
    [[now]] = connection.execute("SELECT CAST(pg_snapshot_xmax(pg_current_snapshot()) AS xid)").fetchall()
    until = time.monotonic() + SNAPSHOT_SECONDS
    while connection.execute(OLDER_SNAPSHOTS, [now]).fetchall():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


class PostgresConnection:
    """A connection on a thread of its own, which runs a whole batch for each `commit`."""

    def __init__(
        self,
        next_batch: Callable[[], Batch],
        sessions: Sessions,
        lock_seconds: float,
        leased: Callable[[], str] = str,
        *,
        process: str = "",
    ) -> None:
        self._next_batch = next_batch
        self._leased = leased  # the process whose lease each commit needs; "" where none does
        self._connection, self._keeper = sessions
        self._statements = Statements(self._connection, keeps=self._keeper is None)
        self._later = LaterRows(self._append)
        self._written: set[Mark] = set()  # by the present transaction
        self._begin = f"BEGIN; SET LOCAL lock_timeout={lock_seconds * 1000:.0f}"
        if process:  # a process that was paused holds no row for longer than this
            self._begin += f"; SET LOCAL idle_in_transaction_session_timeout={PAUSED_SECONDS * 1000:.0f}"
        if self._keeper:
            self._begin += f"; SELECT pg_advisory_xact_lock_shared({FENCE})"
            if process:  # until its last transaction has ended (`replicas.forget_predecessors`)
                self._begin += f", pg_advisory_xact_lock_shared({PROCESS_LOCK}, hashtext('{process}'))"
        self._connection.add_notice_handler(self._take_notice)

    @classmethod
    async def open(
        cls, server: DatabaseServer, next_batch: Callable[[], Batch], leased: Callable[[], str] = str, process: str = ""
    ) -> BatchRunner:
        """Connect, and prepare the schema. `process`: where others share it. Raises as `PostgresDatabase`."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="database")
        opening = thread.submit(_open, server, process)
        try:
            sessions = await asyncio.wrap_future(opening)
        except BaseException:
            opening.add_done_callback(_close_unwanted)  # the thread goes on after a cancellation
            thread.shutdown(wait=False)
            raise
        return _OnThread(cls(next_batch, sessions, server.lock_seconds, leased, process=process), thread)

    def commit(self) -> None:
        """Run the batch in one transaction, again where it and another process waited for each other.

        Raises only if the connection cannot be used any more.
        """
        batch = self._next_batch()
        for left in reversed(range(DEADLOCK_TRIES)):
            if self._has_ended(batch, is_last=not left):
                return

    def _has_ended(self, batch: Batch, *, is_last: bool) -> bool:
        """Run the batch. False: it is to be tried again."""
        try:
            self._written.clear()
            self._later.clear()
            self._statements.control(
                self._begin if batch.durable else f"{self._begin}; SET LOCAL synchronous_commit=off"
            )
            self._check_owner()
            outcomes = [self._run_unit(work, alone=len(batch.works) == 1) for work in batch.works]
            self._later.append()
            self._end(batch, outcomes)
        except CommitUnknown:
            raise
        except BaseException as error:  # lost, locked, full: every caller gets an answer
            batch.fail(error)
            if self._connection.closed:
                raise DatabaseAway(str(error).strip()) from error
            self._connection.rollback()
            return is_last or not _may_be_repeated(error.__cause__)
        return True

    def _end(self, batch: Batch, outcomes: Sequence[Outcome]) -> None:
        """Commit. Raises CommitUnknown if the connection is lost before the answer, and LeaseOver.

        A pause between the look at the lease and the commit ends the session before the lease ends.
        """
        process = self._leased()
        [asked] = (
            self._statements.execute(TRANSACTION_AND_LEASE, {"id": process})
            if process
            else self._statements.execute(TRANSACTION)
        )
        if process and asked[0] and asked[1] < SPARE_SECONDS:
            raise LeaseOver("the lease of this process is over")
        written = frozenset(self._written)
        try:
            self._statements.control("COMMIT")
        except psycopg.Error as error:
            if not self._connection.closed:
                raise
            raise CommitUnknown(asked[0] or "", outcomes, written, str(error).strip()) from error
        batch.outcomes, batch.written = outcomes, written

    def _check_owner(self) -> None:
        """Raise psycopg.OperationalError if the session is gone that keeps others away, where it is another one."""
        if self._keeper is None:
            return
        held = self._connection.execute(
            "SELECT 1 FROM pg_locks WHERE locktype='advisory' AND granted AND pid=%s AND objid=%s",
            (self._keeper.info.backend_pid, OWNER_LOCK),
        ).fetchone()
        if not held:
            self._connection.close()
            raise psycopg.OperationalError("the session that holds the lock on the database was lost")

    def close(self) -> None:
        """Give the database free."""
        for each in filter(None, (self._connection, self._keeper)):
            each.close()

    def _run_unit(self, work: Work, *, alone: bool) -> Outcome:
        """Run one unit of work. Raises what concerns the whole batch; returns an error of `work` itself."""
        if not alone:
            self._statements.control("SAVEPOINT work")
        before = frozenset(self._written)
        self._later.begin_part(UNIT)
        try:
            value = work(self._execute)
            if self._connection.pgconn.transaction_status != TransactionStatus.INTRANS:
                raise StorageError("the transaction was rolled back")
        except StorageError:
            raise
        except Exception as error:  # noqa: BLE001 — a caller's own error is handed back to that caller
            self._written &= before
            self._later.undo_part(UNIT)
            self._statements.control(f"ROLLBACK; {self._begin}" if alone else "ROLLBACK TO work; RELEASE work")
            return None, error
        if not alone:
            self._statements.control("RELEASE work")
        return value, None

    def _append(self, events: Sequence[DatedEvent]) -> None:
        append_rows(self._statements.execute, events)

    def _execute(self, sql: str, values: Mapping[str, Any] = {}) -> Sequence[Any]:
        if sql == APPEND_LATER:
            self._later.add(values["event"])
            return TAKEN
        self._later.notice(sql)
        return self._statements.execute(sql, values)

    def _take_notice(self, notice: psycopg.errors.Diagnostic) -> None:
        text = notice.message_primary or ""
        if text.startswith(MARK):
            kind, _, name = text.removeprefix(MARK).partition(" ")
            self._written.add((Written(kind), name))


class _OnThread:
    """A connection whose work is done on its thread."""

    def __init__(self, connection: PostgresConnection, thread: ThreadPoolExecutor) -> None:
        self._connection, self._thread = connection, thread

    async def commit(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._connection.commit)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._connection.close)
        self._thread.shutdown(wait=False)


def _close_unwanted(opening: Future[Sessions]) -> None:
    """Close what was opened for a start that was given up meanwhile."""
    if not opening.cancelled() and not opening.exception():
        for each in filter(None, opening.result()):
            each.close()


def _prepare(session: psycopg.Connection[NamedRow], server: DatabaseServer) -> None:
    """Make or upgrade the tables: where processes share the database, one after the other."""
    if server.shared:
        session.execute(f"SELECT pg_advisory_lock({SCHEMA_LOCK})")
    prepare_schema(session, server.itself, server.no_tables)
    if server.shared:
        session.execute(f"SELECT pg_advisory_unlock({SCHEMA_LOCK})")


def _open(server: DatabaseServer, process: str) -> Sessions:
    connection = connect(server.target)
    keeper = None
    try:
        if server.session:
            keeper = connect(server.session)
        else:
            check_direct(connection)
        own_database(keeper or connection, server.owner_seconds, shared=server.shared)
        if process:
            lock = f"SELECT pg_advisory_lock_shared({PROCESS_LOCK}, hashtext(%s))"
            (keeper or connection).execute(lock, (process,))
        _prepare(keeper or connection, server)
    except BaseException as error:
        sessions = [*filter(None, (connection, keeper))]
        is_lost = any(each.closed for each in sessions)  # cut off in the middle, which is no refusal
        for each in sessions:
            each.close()
        if is_lost and isinstance(error, psycopg.Error | StorageError):
            raise DatabaseAway(str(error).strip()) from error
        if isinstance(error, psycopg.Error):
            raise StorageError(str(error).strip()) from error
        raise
    return connection, keeper
