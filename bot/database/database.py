"""The database: SQLite through aiosqlite, a whole transaction in one thread hop, group commit.

A unit of work is a function of `execute`; concurrent ones share one BEGIN … COMMIT and so one fsync. SQL is written
once, with named parameters, in the subset that SQLite and PostgreSQL share, or by the names of `dialect.py`. After a
commit, whoever listens to what it wrote is woken (`wake_ups.py`). `postgres.py` has the same for PostgreSQL.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from contextvars import copy_context
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeVar

import aiosqlite

from agent.core.context import Execute
from bot.database import upkeep
from bot.database.dialect import EXTRA
from bot.database.wake_ups import Written, create_triggers

__all__ = [
    "Database",
    "DatabaseAway",
    "Execute",
    "Row",
    "StatementError",
    "StorageError",
    "WorkRunner",
    "engine_savepoint",
    "savepoint",
]

log = logging.getLogger(__name__)

T = TypeVar("T")

Row = Mapping[str, Any]
Work = Callable[[Execute], Any]
UpkeepWork = Callable[[sqlite3.Connection], Any]
Outcome = tuple[Any, Exception | None]
Mark = tuple[Written, str]  # a kind of row that was written, and what it is named
PAUSE_SECONDS = 0.01  # between two steps of upkeep
STEP_SECONDS = 0.03  # that a transaction of a longer work may take, with its checkpoint
FIRST_STEP_ROWS, MOST_STEP_ROWS = 10, 100
OVERWRITE_ROUNDS = 3
NEW_FILE_PRAGMAS = (f"auto_vacuum={upkeep.INCREMENTAL}", "secure_delete=ON")  # the first: only of a file without tables
STATEMENT_ERRORS = (
    sqlite3.IntegrityError,
    sqlite3.ProgrammingError,
    sqlite3.InterfaceError,
    sqlite3.DataError,
    sqlite3.NotSupportedError,
)


class StepWork(Protocol):
    """A part of a longer work: at most `limit` rows in one transaction. It returns how many it did, 0 at the end."""

    def __call__(self, execute: Execute, *, limit: int) -> int: ...


class StorageError(Exception):
    """The database could not execute a unit of work and kept nothing of it. A later attempt may succeed.

    `execute` raises it, too, for a fault of the disk, a lock or the connection, which ends the whole transaction.
    """


class DatabaseAway(StorageError):
    """The database's server cannot be reached at the moment, or is starting or stopping."""


class StatementError(Exception):
    """The database refuses this statement or its values. Every retry would fail: the fault is the caller's."""


class WorkRunner(Protocol):
    """Runs units of work, as `Database` does."""

    async def run(self, work: Callable[[Execute], T], *, durable: bool = True, first: bool = False) -> T: ...


class Lease(Protocol):
    """The lease of a process among those that share a database."""

    @property
    def is_sure(self) -> bool:
        """Whether no other process can have taken over what this one holds."""


class LeaseSession(Protocol):
    """A connection that renews the lease of this process and does nothing else, on any event loop."""

    async def renew(self) -> int:
        """Return how many processes have a lease; 0: this one has none any more. Raises StorageError."""

    async def close(self) -> None: ...


class BatchRunner(Protocol):
    """The connection to a database: `commit` runs the present batch in one transaction."""

    async def commit(self) -> None:
        """Raises only if the connection cannot be used any more."""

    async def close(self) -> None: ...


class Database:
    """One SQLite file in WAL mode: `run` returns after its transaction is on the disk, unless it is not `durable`."""

    MAX_BATCH: int | None = None  # units of work in one transaction
    path: Path | None = None  # of its file, where it is one
    is_shared = False  # with other processes, each of which has a lease (`replicas.py`)
    lease: Lease | None = None  # of this process there, while it is kept: without it, nothing is written

    def __init__(self, path: Path, busy_timeout_seconds: float = 5.0) -> None:
        self._path = self.path = path
        self._busy_timeout_seconds = busy_timeout_seconds  # seconds to wait for another process's lock
        self._scrubber: upkeep.GapScrubber | None = None
        self._start()

    def _start(self) -> None:
        self.me = f"{os.getpid()}-{secrets.token_hex(4)}"  # as which it owns rows (`replicas.py`)
        self._waiting: list[tuple[Work, bool, asyncio.Future[Any]]] = []
        self._urgent: list[tuple[Work, bool, asyncio.Future[Any]]] = []  # goes first, by itself
        self._upkeep: list[tuple[UpkeepWork, asyncio.Future[Any]]] = []  # each alone, after a transaction
        self._batch = Batch([])  # the one that the connection commits
        self._wake = asyncio.Event()
        self._closing = False
        self.commits = self.units = 0  # so far: transactions, and the units of work in them
        self._listeners: dict[Written, list[asyncio.Event]] = {}
        self._followers: list[Callable[[Collection[Mark]], None]] = []
        self._readers: dict[str, Callable[[str, str], None]] = {}  # of letters, by topic
        self._connection: BatchRunner | None = None
        self._writer: asyncio.Task[None]

    async def __aenter__(self) -> Database:
        self._connection = await self._connect()
        self._writer = asyncio.create_task(self._write(), name="database")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        self._wake.set()
        try:
            await asyncio.shield(self._writer)
        finally:
            self._close_files()

    def _close_files(self) -> None:
        if self._scrubber:
            self._scrubber.close()

    async def _connect(self) -> BatchRunner:
        factory = partial(BatchConnection, lambda: self._batch, self._busy_timeout_seconds)
        connection = await aiosqlite.connect(self._path, isolation_level=None, factory=factory)
        try:
            await create_triggers(connection)
        except BaseException:
            await connection.close()
            raise
        return connection

    def listen(self, written: Written) -> asyncio.Event:
        """Return an event that is set after each commit that wrote such rows, on the loop's thread.

        Whoever waits for it clears it before a look at the rows: what is written during the look is looked at again.
        """
        event = asyncio.Event()
        self._listeners.setdefault(written, []).append(event)
        return event

    def follow(self, follower: Callable[[Collection[Mark]], None]) -> None:
        """Call `follower` on the loop's thread with what marks each commit: kinds of rows, and what they are named."""
        self._followers.append(follower)

    def lease_session(self) -> LeaseSession:
        """Return what renews the lease of this process, where others share the database."""
        raise NotImplementedError

    def send(self, topic: str, text: str, to: str = "") -> None:
        """Tell another process something soon, or ("") all others. A process that works alone has none."""

    def read_letters(self, topic: str, reader: Callable[[str, str], None]) -> None:
        """Call `reader` on the loop's thread with the sender and the text of each letter with this topic."""
        self._readers[topic] = reader

    def _take_letter(self, sender: str, topic: str, text: str) -> None:
        """Give a letter to its reader, whose failure ends nothing else."""
        try:
            if reader := self._readers.get(topic):
                reader(sender, text)
        except Exception:
            log.exception("letter.not_read topic=%s", topic)

    def wake_all(self) -> None:
        """Have everyone who listens look."""
        for events in self._listeners.values():
            for event in events:
                event.set()

    def _tell_others(self, marks: Collection[Mark]) -> None:
        """Called after each commit, where other processes may wait for what it wrote."""

    def _wake_listeners(self, marks: Collection[Mark]) -> None:
        for kind in {kind for kind, _name in marks}:
            for event in self._listeners.get(kind, ()):
                event.set()
        for follower in self._followers if marks else ():
            follower(marks)

    async def run(self, work: Callable[[Execute], T], *, durable: bool = True, first: bool = False) -> T:
        """Run `work` in a transaction and commit it. `first`: before what waits already, in a transaction without it.

        Until the next durable commit, a power failure can undo work that is not `durable`, but the end of the process
        cannot. Such a commit does not wait for the disk.

        An error of `work` undoes its own statements and is raised here. Errors of sqlite3 are raised as StatementError
        or, where the database is locked, full or broken at the moment, as StorageError. `work` runs on the database's
        thread: it only executes statements and computes. A caller that is cancelled does not undo its work.
        """
        if self._closing:
            raise StorageError("the database is closed")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        context = copy_context()  # with the caller's language
        waiting = self._urgent if first else self._waiting
        waiting.append((lambda execute: context.run(work, execute), durable, future))
        self._wake.set()
        return await future

    async def maintain(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` between two transactions: it takes a few milliseconds. Raises StorageError."""
        if self._closing:
            raise StorageError("the database is closed")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._upkeep.append((work, future))
        self._wake.set()
        return await future

    async def run_steps(self, work: StepWork) -> int:
        """Run `work` in small transactions until it returns 0; return the sum. Each is safe to repeat.

        How many rows one may take follows from how long the last one took. A checkpoint follows each of them: that of a
        thousand pages at once would make others wait.
        """
        total, limit, done = 0, FIRST_STEP_ROWS, 1
        while done:
            begun = time.monotonic()
            done = await self.run(partial(work, limit=limit), durable=False)
            if done:
                await self.maintain(upkeep.write_log)
            seconds = time.monotonic() - begun
            total += done
            limit = max(1, limit // 2) if seconds > STEP_SECONDS else min(limit * 2, MOST_STEP_ROWS)
            await asyncio.sleep(PAUSE_SECONDS)  # others have the disk in between
        return total

    async def free_pages(self) -> None:
        """Give most free pages back to the file system, a few at a time."""
        more = True
        while more:
            more = await self.maintain(upkeep.free_pages)
            await asyncio.sleep(PAUSE_SECONDS)

    async def overwrite_deleted(self) -> bool:
        """Overwrite all that is left of deleted rows. False: another process reads the database; try again later.

        Pages can be moved meanwhile, so that it looks again until it finds nothing. Raises StorageError.
        """
        if self._scrubber is None:
            self._scrubber = upkeep.GapScrubber(self._path)
        for _ in range(OVERWRITE_ROUNDS):
            group: int | None = 0
            found = 0
            while group is not None:
                step = await self.maintain(partial(self._scrubber.scrub, group=group))
                if step is None:
                    return False
                group, more = step
                found += more
                await asyncio.to_thread(self._scrubber.sync)  # else the next checkpoint would do it
                await asyncio.sleep(PAUSE_SECONDS)
            if not found:
                break
        return True

    def copy_to(self, file: Path) -> None:
        """Make a file with everything of one moment. It blocks; the service works meanwhile. Raises sqlite3.Error."""
        with closing(sqlite3.connect(self._path)) as source, closing(sqlite3.connect(file)) as copy:
            source.backup(copy)

    async def size(self) -> int:
        """Return the size of the file in bytes."""
        return (await asyncio.to_thread(self._path.stat)).st_size

    async def _write(self) -> None:
        """Commit batch after batch; once closed, commit what still waits and close the connection."""
        try:
            while self._urgent or self._waiting or self._upkeep or not self._closing:
                await self._wake.wait()
                self._wake.clear()
                while self._urgent or self._waiting or self._upkeep:
                    if self._upkeep and not (self._urgent or self._waiting):
                        await self._run_upkeep(*self._upkeep.pop(0))
                        continue
                    if self._urgent:
                        waiting, self._urgent = self._urgent, []
                    else:
                        size = self.MAX_BATCH or len(self._waiting)
                        waiting, self._waiting = self._waiting[:size], self._waiting[size:]
                    self._batch = Batch([work for work, _, _ in waiting], any(durable for _, durable, _ in waiting))
                    await self._commit(self._batch)
                    self.commits += 1
                    self.units += len(waiting)
                    for (_, _, future), outcome in zip(waiting, self._batch.outcomes, strict=True):
                        _settle(future, outcome)
                    self._wake_listeners(self._batch.written)
                    self._tell_others(self._batch.written)
        finally:
            self._closing = True
            await self._disconnect()

    async def _run_upkeep(self, work: UpkeepWork, future: asyncio.Future[Any]) -> None:
        self._batch = Upkeep(work)
        await self._commit(self._batch)
        _settle(future, self._batch.outcomes[0])

    async def _commit(self, batch: Batch) -> None:
        """Commit a batch. A lost connection is replaced before the next batch."""
        try:
            if self._connection is None:
                self._connection = await self._connect()
            await self._connection.commit()
        except Exception as error:  # noqa: BLE001 — the boundary of a connection: every caller gets an answer
            await self._end_lost(batch, error)

    async def _end_lost(self, batch: Batch, error: Exception) -> None:
        """End a batch whose connection was lost."""
        log.error("store.connection_lost", exc_info=error)
        batch.fail(error)
        await self._disconnect()

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        try:
            if connection:
                await connection.close()
        except sqlite3.Error as error:
            log.error("store.not_closed reason=%s", error)  # noqa: TRY400 — the reason is enough


def _settle(future: asyncio.Future[Any], outcome: Outcome) -> None:
    value, error = outcome
    if future.done():  # its caller was cancelled; the work is committed nevertheless
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


class Batch:
    """Units of work that share one transaction; afterwards, their outcomes and the kinds of rows that they wrote."""

    def __init__(self, works: Sequence[Work], durable: bool = True) -> None:
        self.works = works
        self.durable = durable
        self.outcomes: Sequence[Outcome] = ()
        self.written: Collection[Mark] = ()

    @property
    def is_away(self) -> bool:
        """Whether nothing of it was kept, because the database was away."""
        return any(isinstance(error, DatabaseAway) for _value, error in self.outcomes)

    def fail(self, error: BaseException) -> None:
        """End every unit of work with StorageError, or DatabaseAway if it is one."""
        kind = DatabaseAway if isinstance(error, DatabaseAway) else StorageError
        self.outcomes = [(None, kind(str(error)))] * len(self.works)


class Upkeep(Batch):
    """One piece of upkeep, outside of any transaction."""

    def __init__(self, upkeep_work: UpkeepWork) -> None:
        super().__init__([])
        self._upkeep_work = upkeep_work

    def fail(self, error: BaseException) -> None:
        self.outcomes = [(None, StorageError(str(error)))]

    def run(self, connection: sqlite3.Connection) -> None:
        """Run it; its error is its outcome."""
        try:
            self.outcomes = [(self._upkeep_work(connection), None)]
        except Exception as error:  # noqa: BLE001 — the boundary of a caller, who gets it
            self.fail(error)


class BatchConnection(sqlite3.Connection):
    """A connection whose `commit` runs a whole batch: aiosqlite then takes one thread hop for a transaction."""

    def __init__(
        self, next_batch: Callable[[], Batch], busy_timeout_seconds: float, *args: Any, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._next_batch = next_batch
        self._durable = True
        self._written: set[Mark] = set()  # by the present transaction
        self.row_factory = sqlite3.Row
        busy = f"busy_timeout={busy_timeout_seconds * 1000:.0f}"
        try:
            for pragma in (*NEW_FILE_PRAGMAS, "journal_mode=WAL", "synchronous=FULL", busy, "temp_store=MEMORY"):
                self.execute(f"PRAGMA {pragma}").fetchall()
            self.create_function("pg_notify", 2, self._mark)
        except sqlite3.Error:
            self.close()
            raise

    def commit(self) -> None:
        """Run the batch in one transaction. Raises sqlite3.Error only if the connection cannot be used any more."""
        batch = self._next_batch()
        if isinstance(batch, Upkeep):
            batch.run(self)
            return
        try:
            if batch.durable is not self._durable:  # every commit with FULL syncs the commits before it, too
                self.execute("PRAGMA synchronous=FULL" if batch.durable else "PRAGMA synchronous=NORMAL")
                self._durable = batch.durable
            self._written.clear()
            self._begin()
            outcomes = [self._run_unit(work, alone=len(batch.works) == 1) for work in batch.works]
            super().commit()
            batch.outcomes, batch.written = outcomes, frozenset(self._written)
        except BaseException as error:  # noqa: BLE001 — locked, full, read-only, broken: every caller gets an answer
            batch.fail(error)
            self.rollback()

    def _mark(self, kind: str, name: str | None) -> None:
        self._written.add((Written(kind), name or ""))

    def _run_unit(self, work: Work, *, alone: bool) -> Outcome:
        """Run one unit of work. Raises what concerns the whole batch; returns an error of `work` itself."""
        if not alone:
            self.execute("SAVEPOINT work")
        before = frozenset(self._written)
        try:
            value = work(self._execute)
            self._check_transaction()
        except StorageError:
            raise  # the disk's or the lock's fault, not this caller's
        except Exception as error:  # noqa: BLE001 — a caller's own error is handed back to that caller
            self._written &= before
            if alone:
                self.rollback()
                self._begin()
            else:
                self._execute("ROLLBACK TO work")
                self.execute("RELEASE work")
            return None, StorageError(str(error)) if isinstance(error, sqlite3.Error) else error
        if not alone:
            self.execute("RELEASE work")
        return value, None

    def _begin(self) -> None:
        self.execute("BEGIN IMMEDIATE")

    def _execute(self, sql: str, values: Mapping[str, Any] = {}) -> Sequence[Any]:
        """Run a statement. Raises StatementError, and StorageError for what ends the whole transaction."""
        if sql.startswith(EXTRA):
            return ()
        self._check_transaction()
        try:
            return self.execute(sql, values).fetchall()
        except sqlite3.OperationalError as error:
            raise StorageError(str(error)) from error
        except STATEMENT_ERRORS as error:
            raise StatementError(str(error)) from error

    def _check_transaction(self) -> None:
        if not self.in_transaction:  # SQLite undid it at an error that `work` swallowed
            raise StorageError("the transaction was rolled back")


@contextmanager
def savepoint(execute: Execute, name: str, engine: str = "") -> Iterator[None]:
    """Undo what fails inside, but not the transaction around it. The error goes on to the caller.

    With EXTRA as `engine`, only on PostgreSQL, which refuses whatever follows an error that is not undone.
    """
    execute(f"{engine}SAVEPOINT {name}", {})
    try:
        yield
    except BaseException:
        execute(f"{engine}ROLLBACK TO {name}", {})
        execute(f"{engine}RELEASE {name}", {})
        raise
    execute(f"{engine}RELEASE {name}", {})


engine_savepoint = partial(savepoint, engine=EXTRA)
