"""Contract of every store, for all statements of Fawn. Add another engine to `STORES`."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from agent.messages import Author, Kind, Message, Origin, Thread
from bot.database.database import Database, Execute, StatementError, StorageError, savepoint
from bot.database.dialect import EXTRA
from bot.database.migrate import SCHEMA_FILE
from bot.database.rows import insert_row
from bot.database.states import OutboxState
from bot.database.wake_ups import Written
from bot.storage import conversations, inbox, jobs, outbox, transcripts
from bot.storage.leases import release_lease
from bot.storage.outbox import Holder
from tests.support.postgres import database_of, need_postgres
from tests.support.rehearsed_database import make_empty_database

Make = Callable[[Path], AbstractAsyncContextManager[Database]]
INSERT = "INSERT INTO addresses(thread, conversation) VALUES (:thread, 'c')"


def sqlite(folder: Path) -> AbstractAsyncContextManager[Database]:
    make_empty_database(folder / "fawn.db")
    return Database(folder / "fawn.db")


def postgresql(folder: Path) -> AbstractAsyncContextManager[Database]:
    need_postgres()
    from bot.database.postgres import DatabaseServer, PostgresDatabase

    return PostgresDatabase(DatabaseServer(database_of(folder)))


STORES: dict[str, Make] = {"sqlite": sqlite, "postgresql": postgresql}


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async with STORES[request.param](tmp_path) as made:
        yield made


def threads(execute: Execute) -> list[str]:
    return [row["thread"] for row in execute("SELECT thread FROM addresses ORDER BY thread", {})]


async def test_committed_rows_can_be_read(store: Database) -> None:
    def work(execute: Execute) -> str:
        execute(INSERT, {"thread": "a"})
        return "value"

    assert await store.run(work) == "value"
    assert await store.run(threads) == ["a"]


async def test_rows_are_read_by_name_and_returning_gives_them(store: Database) -> None:
    rows = await store.run(lambda execute: execute(INSERT + " RETURNING thread, count", {"thread": "a"}))
    assert rows[0]["thread"] == "a"
    assert rows[0]["count"] == 1


async def test_a_failing_unit_of_work_is_rolled_back_alone(store: Database) -> None:
    """Also when it shares its commit with others."""

    def good(name: str) -> Callable[[Execute], None]:
        return lambda execute: [execute(INSERT, {"thread": name}), None][1]  # type: ignore[return-value]  # one expression

    def bad(execute: Execute) -> None:
        execute(INSERT, {"thread": "never"})
        raise LookupError("mine")

    outcomes = await asyncio.gather(
        store.run(good("a")), store.run(bad), store.run(good("b")), store.run(bad), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [type(None), LookupError, type(None), LookupError]
    assert await store.run(threads) == ["a", "b"]
    with pytest.raises(LookupError):
        await store.run(bad)
    assert await store.run(threads) == ["a", "b"]


async def test_a_constraint_violation_is_raised_to_its_own_unit_of_work(store: Database) -> None:
    await store.run(lambda execute: execute(INSERT, {"thread": "a"}))
    again = store.run(lambda execute: execute(INSERT, {"thread": "a"}))
    other = store.run(lambda execute: execute(INSERT, {"thread": "b"}))
    first, second = await asyncio.gather(again, other, return_exceptions=True)
    assert isinstance(first, StatementError)
    assert not isinstance(second, BaseException)
    assert await store.run(threads) == ["a", "b"]


async def test_a_unit_of_work_meets_faults_as_errors_of_the_store(store: Database) -> None:
    """Whatever the engine calls them: what the unit may answer for, and what ends its transaction."""

    def repeated(execute: Execute) -> None:
        execute(INSERT, {"thread": "a"})
        with pytest.raises(StatementError), savepoint(execute, "again", EXTRA):
            execute(INSERT, {"thread": "a"})

    def misplaced(execute: Execute) -> None:
        with pytest.raises(StorageError), savepoint(execute, "away", EXTRA):
            execute("SELECT 1 FROM nowhere", {})

    await store.run(repeated)
    await store.run(misplaced)


async def test_concurrent_units_of_work_are_committed_in_call_order(store: Database) -> None:
    def note(number: int) -> Callable[[Execute], int]:
        def work(execute: Execute) -> int:
            execute(INSERT, {"thread": f"{number:04}"})
            return len(execute("SELECT 1 FROM addresses", {}))

        return work

    seen = await asyncio.gather(*(store.run(note(number)) for number in range(500)))
    assert seen == list(range(1, 501))


async def test_what_goes_first_does_not_wait_for_what_was_asked_before_it(store: Database) -> None:
    """It has a transaction of its own: a fault that undoes the other one leaves it committed."""
    await store.run(lambda execute: execute("CREATE TABLE steps(name TEXT)", {}))

    def fail(execute: Execute) -> None:
        execute("INSERT INTO steps VALUES ('end')", {})
        raise StorageError("disk I/O error")

    def insert(execute: Execute) -> list[str]:
        execute("INSERT INTO steps VALUES ('post')", {})
        return [row["name"] for row in execute("SELECT name FROM steps", {})]

    ended, posted = await asyncio.gather(store.run(fail), store.run(insert, first=True), return_exceptions=True)
    assert isinstance(ended, StorageError)
    assert posted == ["post"]


async def test_a_cancelled_caller_neither_rolls_back_nor_blocks(store: Database) -> None:
    task = asyncio.create_task(store.run(lambda execute: execute(INSERT, {"thread": "a"})))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await store.run(threads) == ["a"]


async def test_committed_rows_survive_without_a_close(tmp_path: Path) -> None:
    make_empty_database(tmp_path / "fawn.db")
    async with Database(tmp_path / "fawn.db") as store:
        await store.run(lambda execute: execute(INSERT, {"thread": "a"}))
        other = sqlite3.connect(tmp_path / "fawn.db")
        assert other.execute("SELECT thread FROM addresses").fetchall() == [("a",)]
        other.close()


async def test_a_locked_database_raises_and_then_works_again(tmp_path: Path) -> None:
    make_empty_database(tmp_path / "fawn.db")
    async with Database(tmp_path / "fawn.db", busy_timeout_seconds=0.05) as store:
        holder = sqlite3.connect(tmp_path / "fawn.db", isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="locked"):
            await store.run(lambda execute: execute(INSERT, {"thread": "a"}))
        holder.execute("ROLLBACK")
        holder.close()
        await store.run(lambda execute: execute(INSERT, {"thread": "a"}))
        assert await store.run(threads) == ["a"]


# ------------------------------------------------------------ who is woken


MESSAGE = Message(Thread("test", "1", "c"), "k", "1", Author("7", "Jane"), "hi", 1.0, origin=Origin.PERSON)
TASK = {"kind": "command", "state": "queued", "channel": "test", "person": "7", "thread": "test/1/c/", "created": 1.0}
SCHEDULE = {"state": "active", "next_at": 5.0, "thread": "test/1/c/", "created": 1.0, "owner": "7", "channel": "test"}


def pend(execute: Execute) -> None:
    conversation = conversations.current_conversation(execute, MESSAGE.thread, 1.0)
    inbox.store_message(execute, MESSAGE, conversation, ready=1.0, received=1.0)
    conversations.refresh_pending(execute, conversation)


def command(execute: Execute) -> None:
    inbox.store_message(execute, replace(MESSAGE, kind=Kind.COMMAND), "c", ready=1.0, received=1.0)


@cache
def needed(table: str) -> dict[str, str | int]:
    """Return the columns of a table that must be given, empty or 0."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(SCHEMA_FILE.read_text())
        columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
    rows = [(name, kind) for _, name, kind, not_null, default, _ in columns if not_null and default is None]
    return {name: "" if kind == "TEXT" else 0 for name, kind in rows}


def insert(table: str, row: dict[str, Any]) -> Callable[[Execute], object]:
    """Insert a row; what is not given and has no default is empty."""

    def work(execute: Execute) -> None:
        values = needed(table) | row
        values.pop("id", None)
        insert_row(execute, table, "id", values)

    return work


def notice(execute: Execute) -> None:
    outbox.enqueue_notice(execute, MESSAGE.thread, "Hello", key="n", now=1.0)


def give_up(execute: Execute) -> None:
    insert_row(execute, "leases", "name", {"name": "listen:test", "owner": "me", "taken_at": 1.0})
    release_lease(execute, "me", "listen:test")


WEB_THREAD = Thread("web", "", "telegram:7", "t")
WRITERS: dict[Written, Callable[[Execute], object]] = {
    Written.COMMAND: command,
    Written.MESSAGE: pend,
    Written.OUTBOX: notice,
    Written.JOB: lambda execute: jobs.enqueue_job(execute, key="j", kind="k", payload={}, due=9e9),
    Written.SCHEDULE: insert("schedules", SCHEDULE),
    Written.TASK: insert("tasks", TASK),
    Written.LEASE: give_up,
    Written.WEB: lambda execute: transcripts.post_notice(execute, WEB_THREAD, "o1", "Hello", "", 1.0),
}


def listen(store: Database) -> dict[Written, asyncio.Event]:
    return {written: store.listen(written) for written in Written}


def woken(events: dict[Written, asyncio.Event]) -> set[Written]:
    return {written for written, event in events.items() if event.is_set()}


@pytest.mark.parametrize("written", Written)
async def test_what_was_written_wakes_its_reader_and_no_other_one(store: Database, written: Written) -> None:
    events = listen(store)
    await store.run(WRITERS[written])
    assert woken(events) == {written}


@pytest.mark.parametrize("written", Written)
async def test_readers_are_woken_after_the_commit_and_never_before(store: Database, written: Written) -> None:
    """The unit waits on the database's thread while the loop runs."""
    events, wrote, go_on = listen(store), threading.Event(), threading.Event()

    def work(execute: Execute) -> None:
        WRITERS[written](execute)
        wrote.set()
        assert go_on.wait(60)

    running = asyncio.create_task(store.run(work))
    assert await asyncio.to_thread(wrote.wait, 10)
    assert not woken(events)
    go_on.set()
    await running
    assert woken(events) == {written}


@pytest.mark.parametrize("shared", [False, True])
async def test_a_rollback_wakes_nobody(store: Database, shared: bool) -> None:
    """Also where the failing unit shares its commit with another one."""
    events = listen(store)

    def fail(execute: Execute) -> None:
        for write in WRITERS.values():
            write(execute)
        raise LookupError

    good = store.run(lambda execute: jobs.enqueue_job(execute, key="a", kind="k", payload={}))
    units = [store.run(fail), *([good] if shared else [])]
    if not shared:
        good.close()
    outcomes = await asyncio.gather(*units, return_exceptions=True)
    assert isinstance(outcomes[0], LookupError)
    assert woken(events) == ({Written.JOB} if shared else set())


async def test_a_commit_that_fails_wakes_nobody(tmp_path: Path) -> None:
    make_empty_database(tmp_path / "fawn.db")
    async with Database(tmp_path / "fawn.db", busy_timeout_seconds=0.05) as store:
        events = listen(store)
        other = sqlite3.connect(tmp_path / "fawn.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError):
            await store.run(notice)
        assert not woken(events)
        other.execute("ROLLBACK")
        other.close()
        await store.run(notice)
        assert woken(events) == {Written.OUTBOX}


async def test_what_changes_nothing_for_a_reader_does_not_wake_it(store: Database) -> None:
    for write in WRITERS.values():
        await store.run(write)
    events = listen(store)

    def work(execute: Execute) -> None:
        conversation = conversations.current_conversation(execute, MESSAGE.thread, 1.0)
        conversations.refresh_pending(execute, conversation)
        for row in outbox.claim_rows(execute, Holder("me"), 10):
            outbox.record_attempt(execute, row.id, 1, "later")
            outbox.end_row(execute, row.id, OutboxState.SENT, "")
        execute("UPDATE schedules SET name='J'", {})
        execute("UPDATE tasks SET state='running'", {})
        execute("UPDATE inbox SET state=1", {})

    await store.run(work)
    assert not woken(events)
