"""The database: SQLite with whole transactions in one thread hop and group commit.

A unit of work is a function of `execute`; concurrent ones share one BEGIN … COMMIT and so one fsync. SQL is written
once, with named parameters, in the subset that SQLite and PostgreSQL share.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from agent.context import Execute

__all__ = ["DataDirLocked", "DataLock", "Database", "Execute", "Row", "StatementError", "StorageError"]

log = logging.getLogger(__name__)

T = TypeVar("T")

Row = Mapping[str, Any]


STATEMENT_ERRORS = (
    sqlite3.IntegrityError,
    sqlite3.ProgrammingError,
    sqlite3.InterfaceError,
    sqlite3.DataError,
    sqlite3.NotSupportedError,
)


class StorageError(Exception):
    """The database could not do it; nothing of that unit of work was kept. Later it may be able to."""


class StatementError(Exception):
    """The database refuses this statement or its values, and would refuse them again: a fault of the caller."""


class DataDirLocked(Exception):
    """Another process already works on this data_dir. Stop it first, or give this one its own data_dir."""


class Database:
    """One SQLite file in WAL mode, synchronous=FULL: what `run` returns from is on the disk."""

    def __init__(self, path: Path, patience: float = 5.0) -> None:
        self._path = path
        self._patience = patience  # seconds to wait for somebody else's lock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"store-{path.stem}")
        self._waiting: list[tuple[Callable[[Execute], Any], asyncio.Future[Any]]] = []
        self._busy = False
        self._connection: sqlite3.Connection

    async def __aenter__(self) -> Database:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, self._connection.close))
        self._thread.shutdown(wait=False)

    def _open(self) -> None:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        connection.row_factory = sqlite3.Row
        busy = f"busy_timeout={self._patience * 1000:.0f}"
        for pragma in ("journal_mode=WAL", "synchronous=FULL", busy, "temp_store=MEMORY"):
            connection.execute(f"PRAGMA {pragma}")
        self._connection = connection

    async def run(self, work: Callable[[Execute], T]) -> T:
        """Run `work` in a transaction and commit it.

        Whatever `work` raises undoes its own statements and is raised here; sqlite3's own errors come as StatementError
        or, where the database cannot do it at the moment (it is locked, full, broken), as StoreError.
        `work` runs on the database's thread: it must only execute statements and compute.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((work, future))
        if not self._busy:
            self._start()
        return await future

    def _start(self) -> None:
        batch, self._waiting = self._waiting, []
        done = self._thread.submit(self._commit, [work for work, _ in batch])
        self._busy = True
        loop = asyncio.get_running_loop()

        def ended(outcome: Future[list[tuple[Any, Exception | None]]]) -> None:
            loop.call_soon_threadsafe(self._settle, [future for _, future in batch], outcome.result())

        done.add_done_callback(ended)

    def _settle(self, futures: list[asyncio.Future[Any]], outcomes: list[tuple[Any, Exception | None]]) -> None:
        if self._waiting:
            self._start()  # the next batch goes to the disk while these callers go on
        else:
            self._busy = False
        for future, (value, error) in zip(futures, outcomes, strict=True):
            if future.done():  # its caller was cancelled; the work is committed all the same
                continue
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

    def _commit(self, batch: list[Callable[[Execute], Any]]) -> list[tuple[Any, Exception | None]]:
        """Run the whole batch on the thread. Never raises: somebody waits for each outcome."""
        try:
            return self._transact(batch)
        except BaseException as error:  # noqa: BLE001 — locked, full, read-only, broken: the whole batch is undone
            self._recover()
            return [(None, StorageError(str(error)))] * len(batch)

    def _transact(self, batch: list[Callable[[Execute], Any]]) -> list[tuple[Any, Exception | None]]:
        """One transaction for the whole batch, a savepoint for each of several."""
        connection = self._connection

        def execute(sql: str, values: Mapping[str, Any] = {}) -> Sequence[Any]:
            if not connection.in_transaction:  # SQLite undid it at an error that `work` swallowed
                raise sqlite3.OperationalError("the transaction was rolled back")
            return connection.execute(sql, values).fetchall()

        connection.execute("BEGIN IMMEDIATE")
        outcomes = [_one(connection, execute, work, alone=len(batch) == 1) for work in batch]
        connection.execute("COMMIT")
        return outcomes

    def _recover(self) -> None:
        """Undo the open transaction; a connection that cannot even do that is replaced, now or before a later batch."""
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as fault:
            log.error("store.reopened reason=%s", fault)  # noqa: TRY400 — the reason is enough
            try:
                self._connection.close()
                self._open()
            except sqlite3.Error as error:
                log.error("store.not_reopened reason=%s", error)  # noqa: TRY400 — the reason is enough


def _one(
    connection: sqlite3.Connection, execute: Execute, work: Callable[[Execute], Any], *, alone: bool
) -> tuple[Any, Exception | None]:
    """Run one unit of work. Raises what is the whole batch's trouble; gives back an error of `work` itself."""
    mark = "" if alone else "SAVEPOINT work"
    if mark:
        connection.execute(mark)
    try:
        value = work(execute)
        if not connection.in_transaction:
            raise sqlite3.OperationalError("the transaction was rolled back")
    except sqlite3.OperationalError:
        raise  # the disk's or the lock's fault, not this caller's
    except Exception as error:  # noqa: BLE001 — a caller's own error is handed back to that caller
        if mark:
            connection.execute("ROLLBACK TO work")
            connection.execute("RELEASE work")
        else:
            connection.execute("ROLLBACK")
            connection.execute("BEGIN IMMEDIATE")
        if isinstance(error, STATEMENT_ERRORS):
            return None, StatementError(str(error))
        return None, StorageError(str(error)) if isinstance(error, sqlite3.Error) else error
    if mark:
        connection.execute("RELEASE work")
    return value, None


class DataLock:
    """One process per data_dir: an exclusive lock on its `lock` file, released by the kernel when the process ends.

    A record lock (fcntl), not flock: that one lives on in a child that was forked right before the process was killed.
    """

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / "lock"
        self._fd = -1

    def __enter__(self) -> DataLock:
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # POSIX allows both
            os.close(self._fd)
            raise DataDirLocked(DataDirLocked.__doc__) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)
