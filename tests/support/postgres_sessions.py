"""Run two transactions of PostgreSQL at once, as two processes do; open databases that processes share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import Any

from bot.database import replicas
from bot.database.database import Database, Execute
from bot.database.replicas import ALONE, LEASE_SECONDS, ReplicaRow

ENDED = "UPDATE replicas SET until=until-:seconds WHERE id=:id"


class Session:
    """A transaction of another process, on this thread or on one beside it."""

    def __init__(self, url: str) -> None:
        from bot.database.postgres_session import connect

        self._connection = connect(url)
        self._connection.execute("BEGIN")

    def execute(self, sql: str, values: Mapping[str, Any] = MappingProxyType({})) -> Sequence[Any]:
        from bot.database.postgres_session import execute_on

        return execute_on(self._connection, sql, values)

    def commit(self) -> None:
        self._connection.execute("COMMIT; BEGIN")

    def rollback(self) -> None:
        self._connection.execute("ROLLBACK; BEGIN")

    def waits(self, observer: Session) -> bool:
        """Return whether it waits for a lock."""
        pid = self._connection.info.backend_pid
        rows = observer.execute("SELECT wait_event_type AS event FROM pg_stat_activity WHERE pid=:pid", {"pid": pid})
        return bool(rows) and rows[0]["event"] == "Lock"

    def close(self) -> None:
        self._connection.close()


@contextmanager
def session(url: str) -> Iterator[Session]:
    made = Session(url)
    try:
        yield made
    finally:
        made.close()


def beside(url: str, first: Callable[[Execute], Any], second: Callable[[Execute], Any]) -> tuple[Any, Any]:
    """Run two units in two transactions: the second begins before the first is committed, and waits if it must."""
    with ExitStack() as stack:
        one, two, observer = (stack.enter_context(session(url)) for _ in range(3))
        found: list[Any] = []

        def run() -> None:
            found.append(second(two.execute))
            two.commit()

        value = first(one.execute)
        thread = threading.Thread(target=run)
        thread.start()
        while thread.is_alive() and not two.waits(observer):
            observer.rollback()  # a transaction sees one state of the activity
            thread.join(0.01)
        one.commit()
        thread.join(60)
        return value, found[0]


def opened(url: str, **options: Any) -> Database:
    """Return the database of a process that shares it, to be entered."""
    from bot.database.postgres import DatabaseServer, PostgresDatabase

    return PostgresDatabase(DatabaseServer(url, **({"shared": True} | options)))


def replica(store: Database) -> ReplicaRow:
    """Return the row of a process."""
    return ReplicaRow(store.me, f"host of {store.me}", ALONE, 1.0, "0.1.0", "d")


async def register(store: Database, *, alone: bool = False) -> None:
    """Give a process its lease."""
    await store.run(lambda execute: replicas.register(execute, replica(store), alone=alone))


async def die(observer: Database, dead: Database) -> None:
    """Have a lease end that nobody renews."""
    await observer.run(lambda execute: execute(ENDED, {"seconds": 2 * LEASE_SECONDS, "id": dead.me}))
