"""A small real `TransactionRunner`: SQLite with WAL and synchronous=FULL, on one thread."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

from agent.core.context import Execute, T


class SqliteDatabase:
    """`async with SqliteDatabase(path) as database`. `commits` counts transactions."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.commits = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="test-database")

    async def __aenter__(self) -> Self:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._open)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, lambda: self._connection.close())
        self._thread.shutdown()

    def _open(self) -> None:
        self._connection = sqlite3.connect(self.path, isolation_level=None)
        self._connection.row_factory = sqlite3.Row
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")

    async def run(self, work: Callable[[Execute], T], *, durable: bool = True) -> T:
        """See `agent.core.context.TransactionRunner.run`."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, work)

    def _run(self, work: Callable[[Execute], T]) -> T:
        def execute(sql: str, values: Mapping[str, Any]) -> Sequence[Any]:
            return self._connection.execute(sql, values).fetchall()

        self._connection.execute("BEGIN IMMEDIATE")
        try:
            result = work(execute)
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")
        self.commits += 1
        return result
