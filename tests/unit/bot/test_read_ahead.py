"""What units of work read ahead of their need: all of it is asked for, and nothing that was changed since."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from bench.journeys import Found, Travel
from bot.database.database import Database, Execute
from bot.database.dialect import READ_AHEAD
from bot.database.migrate import migrate_database
from bot.database.read_ahead import Read, ReadAhead, read_ahead
from bot.storage.conversations import lock_conversation
from tests.support.postgres_sessions import session

TITLE = "SELECT title FROM conversations WHERE key='c'"
BEGIN = "INSERT INTO conversations(key, thread, title, created, used) VALUES ('c', 't', 'old', 0, 0)"
RETITLE = "UPDATE conversations SET title='new' WHERE key='c'"


def opened(url: str) -> Database:
    from bot.database.postgres import DatabaseServer, PostgresDatabase

    return PostgresDatabase(DatabaseServer(url))


def title(execute: Execute) -> str:
    return str(execute(TITLE, {})[0]["title"])


def ask(execute: Execute) -> None:
    execute(TITLE, {})


class AheadStore:
    """SQLite's database, with what reads ahead as PostgreSQL has it."""

    is_shared = False

    def __init__(self, store: Database) -> None:
        self._store, self.me = store, store.me
        self.fetched, self.asked = Counter[Any](), Counter[Any]()  # in the units so far; in how many, without a fetch

    async def run(self, work: Callable[[Execute], Any], **options: Any) -> Any:
        def counted(execute: Execute) -> Any:
            def read_all(reads: Sequence[Read]) -> Sequence[Sequence[Any]]:
                self.fetched.update((sql, *values.values()) for sql, values in reads)
                return [execute(sql, values) for sql, values in reads]

            ahead = ReadAhead(read_all)

            def missed(sql: str, values: Mapping[str, Any]) -> Sequence[Any]:
                if sql.startswith("SELECT"):
                    self.asked[(sql, *values.values())] += 1
                return execute(sql, values)

            def noted(sql: str, values: Mapping[str, Any] = {}) -> Sequence[Any]:
                if sql == READ_AHEAD:
                    ahead.fetch(values["part"])
                    return ()
                return ahead.execute(missed, sql, values)

            return work(noted)

        return await self._store.run(counted, **options)


async def test_a_journey_asks_for_all_that_it_reads_ahead_and_for_nothing_of_it_again(tmp_path: Path) -> None:
    migrate_database(tmp_path / "fawn.db")
    async with Database(tmp_path / "fawn.db") as store:
        counted: Any = AheadStore(store)
        travel = Travel(counted, Found())
        await travel.go(0, "first")
        counted.fetched.clear()
        counted.asked.clear()
        await travel.go(0, "second")
    assert len(counted.fetched) == 14  # statements that share 3 messages instead
    again = {key[0] for key in counted.asked.keys() & counted.fetched.keys()}
    assert {sql.partition(" WHERE ")[0] for sql in again} == {"SELECT * FROM people", "SELECT * FROM person_roles"}


async def test_what_was_read_ahead_does_not_outlive_a_write_a_lock_or_the_unit(url: str) -> None:
    async with opened(url) as store:

        def look(execute: Execute, then: Callable[[Execute], object]) -> list[str]:
            read_ahead(execute, ask)
            with session(url) as other:
                other.execute("UPDATE conversations SET title='theirs' WHERE key='c'")
                other.commit()
            found = [title(execute)]
            then(execute)
            return [*found, title(execute)]

        def write(execute: Execute) -> None:
            execute("UPDATE conversations SET agent='a' WHERE key='c'", {})

        def lock(execute: Execute) -> None:
            lock_conversation(execute, "c")

        await store.run(lambda execute: execute(BEGIN, {}))
        for then in (write, lock):
            await store.run(lambda execute: execute("UPDATE conversations SET title='old'", {}))
            assert await store.run(lambda execute, then=then: look(execute, then)) == ["old", "theirs"]  # type: ignore[misc]  # bound
        await store.run(lambda execute: execute("UPDATE conversations SET title='old'", {}))

        def change(_execute: Execute) -> None:
            with session(url) as other:
                other.execute(RETITLE)
                other.commit()

        units = [lambda execute: read_ahead(execute, ask), change, title]  # of one transaction
        assert (await asyncio.gather(*map(store.run, units)))[2] == "new"


async def test_what_is_read_ahead_shares_a_message_with_what_waits(url: str, tmp_path: Path) -> None:
    from bot.database.postgres_session import connect
    from bot.database.postgres_statements import Statements

    reads = [
        "SELECT count(*) AS n FROM addresses",
        "SELECT count(*) AS n FROM people",
        "SELECT count(*) AS n FROM languages",
    ]

    def part(execute: Execute) -> None:
        for sql in reads:
            execute(sql, {})
        execute(RETITLE, {})  # what is no read is left to its time

    with closing(connect(url)) as connection, (tmp_path / "trace").open("w+") as trace:
        statements = Statements(connection, keeps=True)
        ahead = ReadAhead(statements.read_all)
        connection.pgconn.trace(trace.fileno())
        statements.control("BEGIN")
        statements.execute(BEGIN, {})
        ahead.fetch(part)
        found = [ahead.execute(statements.execute, sql, {})[0]["n"] for sql in reads]
        connection.pgconn.untrace()
        trace.seek(0)
        sent = sum(line.split("\t")[1:2] == ["F"] and "\tSync" in line for line in trace)
        assert (sent, found) == (1, [0, 0, 0])
        assert title(statements.execute) == "old"
