"""Explain on PostgreSQL what tests run on SQLite: each statement once in a process, where FAWN_TEST_EXPLAIN=1 asks so.

So a statement that only SQLite takes fails in the test that runs it, and nobody has to run all tests on both engines.
What a test itself writes is its own affair.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bot.database.dialect import EXTRA
from tests.support.postgres import ENGINE, new_database

EXPLAINS = os.environ.get("FAWN_TEST_EXPLAIN") == "1" and ENGINE == "sqlite"
PARTS = ("SAVEPOINT", "RELEASE", "ROLLBACK", "CREATE TABLE", EXTRA)  # nothing to plan
TESTS = f"{Path(__file__).parents[1]}/"
_seen: set[str] = set()


class OnlySQLite(AssertionError):
    """PostgreSQL refuses this statement, which SQLite has run: `bot/database/dialect.py` spells what differs."""


@functools.cache
def begin_to_explain() -> Any:
    """Start the server, which ends with the thread that starts it, and return a connection."""
    from bot.database.postgres_session import connect

    return connect(new_database(f"explained{os.getpid()}"))


def explain(sql: str, values: Mapping[str, Any]) -> None:
    """Have PostgreSQL plan a statement. Raises OnlySQLite. It changes nothing."""
    if sql in _seen or sql.lstrip().startswith(PARTS) or sys._getframe(2).f_code.co_filename.startswith(TESTS):
        return
    _seen.add(sql)
    from bot.database.database import StatementError, StorageError
    from bot.database.postgres_session import execute_on

    connection = begin_to_explain()
    connection.execute("BEGIN")
    try:
        execute_on(connection, f"EXPLAIN {sql}", values)
    except (StatementError, StorageError) as error:
        raise OnlySQLite(f"{sql}\n{error}") from error
    finally:
        connection.execute("ROLLBACK")
