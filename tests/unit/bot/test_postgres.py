"""The database on PostgreSQL: what only this engine has. `tests/contracts/test_store.py` has what both promise."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from agent.messages import Author, Message, Origin, Thread
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.data_lock import DatabaseInUse
from bot.database.database import Database, Execute, StatementError, StorageError, savepoint
from bot.database.dialect import MERGE_PAGES
from bot.database.migrate import NewerSchema
from bot.storage import budgets, conversations, forgetting, inbox, jobs, usage
from bot.storage.budgets import CallHold, CounterKey
from tests.support.postgres import sql_on_server
from tests.support.postgres_sessions import beside, session

THREAD = Thread("telegram", "1", "42")
LOOKING = "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%age(backend_xmin)%' AND pid<>pg_backend_pid()"
SIZE = "SELECT pg_relation_size('addresses') AS size"
INSERT = "INSERT INTO addresses(thread, conversation) VALUES (:thread, 'c')"


def opened(url: str, **options: Any) -> Database:
    from bot.database.postgres import DatabaseServer, PostgresDatabase

    return PostgresDatabase(DatabaseServer(url, **options))


def threads(execute: Execute) -> list[str]:
    return [row["thread"] for row in execute("SELECT thread FROM addresses ORDER BY thread", {})]


async def test_a_second_process_is_refused_until_the_first_one_ends(url: str) -> None:
    async with opened(url):
        with pytest.raises(DatabaseInUse):
            async with opened(url, owner_seconds=0.05):
                pass
    async with opened(url, owner_seconds=0.05) as store:
        assert await store.run(threads) == []


async def test_a_schema_of_a_newer_version_is_refused(url: str) -> None:
    async with opened(url) as store:
        await store.run(lambda execute: execute("UPDATE alembic_version SET version_num='9999'", {}))
    with pytest.raises(NewerSchema):
        async with opened(url):
            pass


async def test_a_cut_connection_fails_the_work_in_hand_and_nothing_after_it(url: str) -> None:
    async with opened(url, away_seconds=0.0) as store:
        await store.run(lambda execute: execute(INSERT, {"thread": "before"}))

        def cut(execute: Execute) -> None:
            execute(INSERT, {"thread": "never"})
            execute("SELECT pg_terminate_backend(pg_backend_pid())", {})

        with pytest.raises(StorageError):
            await store.run(cut)
        await store.run(lambda execute: execute(INSERT, {"thread": "after"}))
        assert await store.run(threads) == ["after", "before"]


async def test_work_whose_connection_was_cut_is_done_again_once(url: str) -> None:
    tries: list[int] = []

    def cut_once(execute: Execute) -> None:
        execute(INSERT, {"thread": f"try {len(tries)}"})
        tries.append(execute("SELECT pg_backend_pid() AS pid", {})[0]["pid"])
        if len(tries) == 1:
            execute("SELECT pg_terminate_backend(pg_backend_pid())", {})

    async with opened(url) as store:
        await asyncio.gather(store.run(cut_once), store.run(lambda execute: execute(INSERT, {"thread": "beside"})))
        assert await store.run(threads) == ["beside", "try 1"]
    assert len(set(tries)) == len(tries) == 2


async def test_a_row_that_another_session_holds_is_waited_for_and_not_forever(url: str) -> None:
    async with opened(url, lock_seconds=0.1) as store:
        await store.run(lambda execute: execute(INSERT, {"thread": "a"}))
        with session(url) as other:
            other.execute("SELECT 1 FROM addresses FOR UPDATE", {})
            with pytest.raises(StorageError):
                await store.run(lambda execute: execute("UPDATE addresses SET count=2", {}))
            other.rollback()
        await store.run(lambda execute: execute("UPDATE addresses SET count=3", {}))


async def test_a_unit_that_another_process_deadlocks_with_is_run_again(url: str) -> None:
    def both(execute: Execute) -> None:
        execute("UPDATE addresses SET count=count+1 WHERE thread='a'", {})
        execute("UPDATE addresses SET count=count+1 WHERE thread='b'", {})

    async with opened(url, lock_seconds=20) as store:
        for thread in "ab":
            await store.run(partial(_store_word, thread))
        with session(url) as other, session(url) as observer:
            other.execute("SET deadlock_timeout='30s'")  # so that the unit is the one that is undone
            other.execute("UPDATE addresses SET count=count+10 WHERE thread='b'")
            unit = asyncio.create_task(store.run(both))
            waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type='Lock' AND datname=current_database()"
            while not await asyncio.to_thread(observer.execute, waits):
                observer.rollback()
            await asyncio.to_thread(other.execute, "UPDATE addresses SET count=count+10 WHERE thread='a'")
            other.commit()
            await unit
        rows = await store.run(lambda execute: execute("SELECT count FROM addresses ORDER BY thread", {}))
        assert [row["count"] for row in rows] == [12, 12]


async def test_texts_keep_their_order_and_lose_only_nul(url: str) -> None:
    """Ranges of keys are read by the order of their bytes, as on SQLite."""
    words = ["b", "a~", "a/", "Z", "é", "100%", "it's :here", r"back\slash", "nul\0"]
    async with opened(url) as store:
        for word in words:
            await store.run(partial(_store_word, word))
        assert await store.run(threads) == sorted(word.replace("\0", "\ufffd") for word in words)


def _store_word(word: str, execute: Execute) -> None:
    execute(INSERT, {"thread": word})


async def test_sums_are_whole_numbers_of_more_than_32_bits(url: str) -> None:
    async with opened(url) as store:
        sql = "INSERT INTO budgets(scope, period, money, tokens, until) VALUES (:scope, 'day', :money, 1, 9e9)"
        await store.run(lambda execute: [execute(sql, {"scope": scope, "money": 1 << 33}) for scope in "ab"])
        [row] = await store.run(lambda execute: execute("SELECT sum(money) AS money FROM budgets", {}))
        assert row["money"] == 1 << 34
        assert type(row["money"]) is int


async def test_after_a_statement_that_was_refused_nothing_of_the_unit_is_kept(url: str) -> None:
    """Also where it swallows the error: PostgreSQL undoes everything, and says so."""
    async with opened(url) as store:

        def swallow(execute: Execute) -> None:
            execute(INSERT, {"thread": "a"})
            with pytest.raises(StatementError):
                execute(INSERT, {"thread": None})

        with pytest.raises(StorageError):
            await store.run(swallow)
        assert await store.run(threads) == []


async def test_a_statement_that_fails_undoes_its_own_unit(url: str) -> None:
    async with opened(url) as store:

        def bad(execute: Execute) -> None:
            execute(INSERT, {"thread": "beside the fault"})
            execute(INSERT, {"thread": None})

        good = partial(_store_word, "good"), partial(_store_word, "better")
        units = [store.run(good[0]), store.run(bad), store.run(good[1])]
        outcomes = await asyncio.gather(*units, return_exceptions=True)
        assert [type(each) for each in outcomes] == [type(None), StatementError, type(None)]
        with pytest.raises(StatementError):
            await store.run(bad)  # alone
        assert await store.run(threads) == ["better", "good"]


async def test_a_statement_that_fails_in_a_part_of_the_unit_undoes_that_part(url: str) -> None:
    async with opened(url) as store:

        def part(execute: Execute) -> str:
            execute(INSERT, {"thread": "before"})
            try:
                with savepoint(execute, "part"):
                    execute(INSERT, {"thread": "in the part"})
                    execute(INSERT, {"thread": None})
            except StatementError as error:
                return type(error).__name__
            finally:
                execute(INSERT, {"thread": "after"})
            return ""

        assert await store.run(part) == "StatementError"
        assert await store.run(threads) == ["after", "before"]


def note(execute: Execute, result: str) -> None:
    audit.record(execute, AuditEvent(AuditKind.COMMAND, THREAD, "42", result=result))


def audit_locks(execute: Execute) -> int:
    """Return how many sessions keep others from the end of the audit."""
    return len(execute("SELECT 1 FROM pg_locks WHERE locktype='advisory' AND granted AND objid=1178686318", {}))


def results(execute: Execute) -> list[str]:
    """Return what the rows of the audit say, each of which continues the one before it."""
    rows, before = audit.read_page(execute, 0, 100), audit.EMPTY
    for number, row in enumerate(rows, 1):
        assert (row.seq, row.hash) == (number, before := audit.chain_hash(before, number, row.body))
    return [row.event["result"] for row in rows]


async def test_rows_of_the_audit_that_are_appended_at_the_end_are_those_of_units_that_are_kept(url: str) -> None:
    async with opened(url) as store:

        def failing(execute: Execute) -> None:
            note(execute, "failed")
            raise KeyError

        def unfit(execute: Execute) -> None:
            audit.record(execute, AuditEvent(AuditKind.COMMAND, result="\ud800"))

        def in_parts(execute: Execute) -> list[str]:
            note(execute, "before the part")
            with suppress(KeyError), savepoint(execute, "part"):
                note(execute, "undone")
                assert results(execute)[-1] == "undone"  # a look appends what was to be appended later
                raise KeyError
            with savepoint(execute, "part"):
                note(execute, "in the part")
            return results(execute)

        units: list[Callable[[Execute], Any]] = [
            partial(note, result="1"),
            failing,
            partial(note, result="2"),
            unfit,
            in_parts,
        ]
        outcomes: list[Any] = await asyncio.gather(*(store.run(each) for each in units), return_exceptions=True)
        kept = ["1", "2", "before the part", "in the part"]
        assert [type(each) for each in outcomes[:4]] == [type(None), KeyError, type(None), TypeError]
        assert outcomes[4] == kept
        with pytest.raises(KeyError):
            await store.run(failing)  # alone
        await store.run(partial(note, result="last"))
        assert await store.run(results) == [*kept, "last"]
        used = "SELECT min(used) AS used FROM audit_names"
        assert (await store.run(lambda execute: execute(used, {})))[0]["used"] == 5


async def test_a_process_that_has_recorded_a_deed_makes_others_wait_only_at_its_end(url: str) -> None:
    recorded, go_on = threading.Event(), threading.Event()

    def slow(execute: Execute) -> int:
        note(execute, "slow")
        recorded.set()
        assert go_on.wait(60)
        return audit_locks(execute)  # the wait alone shows nothing: the server ends a transaction that stands still

    async with opened(url, shared=True) as one, opened(url, shared=True) as two:
        unit = asyncio.create_task(one.run(slow))
        assert await asyncio.to_thread(recorded.wait, 20)
        await two.run(partial(note, result="quick"))
        go_on.set()
        assert await unit == 0
        assert await two.run(results) == ["quick", "slow"]


async def test_deleted_rows_leave_the_tables(url: str) -> None:
    async with opened(url) as store:
        await store.run(lambda execute: execute(INSERT, {"thread": "x" * 5000}))
        await store.run(lambda execute: execute("DELETE FROM addresses", {}))
        assert await store.overwrite_deleted()
        assert (await store.run(lambda execute: execute(SIZE, {})))[0]["size"] == 0
        assert await store.size() > 1 << 20


async def test_deleted_rows_that_an_older_snapshot_sees_are_overwritten_after_its_end(url: str) -> None:
    async with opened(url) as store:
        await store.run(lambda execute: execute(INSERT, {"thread": "x" * 5000}))
        with session(url) as other, session(url) as observer:
            other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            other.execute("SELECT 1")  # as an automatic ANALYZE reads
            await store.run(lambda execute: execute("DELETE FROM addresses", {}))
            overwriting = asyncio.create_task(store.overwrite_deleted())
            while not observer.execute(LOOKING):
                observer.rollback()  # the server shows a transaction the sessions of its first look
                await asyncio.sleep(0)
            assert not overwriting.done()
            observer.rollback()  # its locks are in the way
            other.commit()
            assert await overwriting
        assert (await store.run(lambda execute: execute(SIZE, {})))[0]["size"] == 0


# ------------------------------------------------------------ two sessions at once


@pytest.fixture
async def prepared(url: str) -> str:
    async with opened(url) as store:
        await store.run(lambda execute: conversations.current_conversation(execute, THREAD, 1.0))
    return url


async def test_a_message_that_arrives_while_its_turn_ends_is_counted(prepared: str) -> None:
    def arrive(execute: Execute) -> str:
        key = conversations.current_conversation(execute, THREAD, 1.0)
        message = Message(THREAD, "k", "1", Author("42", "Jane"), "hello", 1.0, private=True, origin=Origin.PERSON)
        conversations.refresh_pending(execute, key)
        inbox.store_message(execute, message, key, ready=1.0, received=1.0)
        conversations.refresh_pending(execute, key)
        return key

    def end(execute: Execute) -> bool:
        return conversations.refresh_pending(execute, conversations.current_conversation(execute, THREAD, 1.0))

    _, pending = await asyncio.to_thread(beside, prepared, arrive, end)
    assert pending


@pytest.mark.parametrize("is_new", [False, True])
async def test_two_calls_do_not_hold_the_rest_of_a_budget_twice(prepared: str, is_new: bool) -> None:
    """Also where both are the first ones of a period, whose counter is not there yet."""
    counter = CounterKey("person", "slack:U1", "2026-11-23", 0.0, 9e9)

    def reserve(execute: Execute, call: int) -> int:
        money, _tokens, held, _held_tokens = budgets.read_counter(execute, counter)
        left = 100 - money - held
        budgets.hold(execute, counter, call, CallHold(left, 0))
        return left

    if not is_new:
        with session(prepared) as one:
            budgets.read_counter(one.execute, counter)
            one.commit()
    both = partial(reserve, call=1), partial(reserve, call=2)
    assert await asyncio.to_thread(beside, prepared, *both) == (100, 0)


async def test_two_rows_of_the_audit_follow_each_other(prepared: str) -> None:
    def note(execute: Execute) -> int:
        audit.record(execute, AuditEvent(AuditKind.COMMAND, THREAD, "42"))
        return audit.read_head(execute)[0]

    assert await asyncio.to_thread(beside, prepared, note, note) == (1, 2)


async def test_two_workers_do_not_claim_the_same_job(prepared: str) -> None:
    with session(prepared) as one:
        jobs.enqueue_job(one.execute, key="j", kind="k", payload={})
        one.commit()
    claim = partial(jobs.claim_jobs, owner="a", now=9e9, limit=1)
    first, second = await asyncio.to_thread(beside, prepared, claim, claim)
    assert (len(first), len(second)) == (1, 0)


async def test_time_is_cut_into_quarters_and_not_rounded(prepared: str) -> None:
    with session(prepared) as one:
        for at in (900.0, 1799.0, 1800.0):
            one.execute(
                "INSERT INTO usage(run, conversation, agent, model, kind, input, output, cached, reasoning, seconds,"
                " at, person) VALUES (1, 'c', '', 'm', 'model', 1, 1, 0, 0, 1, :at, 'telegram:42')",
                {"at": at},
            )
        found = usage.spent_by_time(one.execute, "person", "telegram:42", 0.0)
        assert sorted(at for at, _ in found) == [900.0, 1800.0]


async def test_what_a_person_said_is_deleted_in_steps_by_where_it_is_stored(prepared: str) -> None:
    entry = (
        "INSERT INTO transcript(conversation, run, item, kind, author, name, text, state, at)"
        " VALUES ('c', 1, :item, 'text', :author, '', 'secret', '', 1.0)"
    )
    values = {"key": "c", "person": "42", "limit": 2}
    with session(prepared) as one:
        for number in range(5):
            one.execute(entry, {"item": f"i{number}", "author": "42" if number < 3 else "7"})
        one.commit()
        assert [forgetting._delete_entries(one.execute, values, private=False) for _ in range(3)] == [2, 1, 0]
        assert len(one.execute("SELECT 1 FROM transcript")) == 2
        one.execute(f"INSERT INTO memory_index{MERGE_PAGES}", {"pages": 1})


# ------------------------------------------------------------ prepared statements


def kept_plans(execute: Execute) -> list[str]:
    return [row["statement"] for row in execute("SELECT statement FROM pg_prepared_statements", {})]


async def test_what_comes_often_is_planned_once_and_no_more_of_it_kept_than_the_server_should(url: str) -> None:
    from bot.database.postgres_statements import MAX_PREPARED, PREPARED_FROM

    def ask(execute: Execute, name: str, times: int) -> None:
        for _ in range(times):
            assert [row[name] for row in execute(f"SELECT :value AS {name}", {"value": 1})] == [1]

    async with opened(url) as store:
        await store.run(partial(ask, name="rare", times=PREPARED_FROM - 1))
        await store.run(partial(ask, name="often", times=PREPARED_FROM))
        kept = await store.run(kept_plans)
        assert [each for each in kept if "rare" in each] == []
        assert [each for each in kept if "often" in each] == ["SELECT $1 AS often"]
        for number in range(MAX_PREPARED):
            await store.run(partial(ask, name=f"column{number}", times=PREPARED_FROM))
        kept = await store.run(kept_plans)
        assert len(kept) == MAX_PREPARED
        assert [each for each in kept if "often" in each] == []
        await store.run(partial(ask, name="often", times=PREPARED_FROM))


async def test_values_come_back_as_they_were_with_and_without_a_plan(url: str) -> None:
    values = {"text": "ü'\"\\{}\n%s $1 :x", "data": b"\0\xff'", "whole": 2**62, "part": 0.1, "none": None}
    make = "CREATE TABLE kept (text TEXT, data BYTEA, whole BIGINT, part DOUBLE PRECISION, none TEXT, texts TEXT[])"
    texts = ["a", 'b "c" \\', "d,e", "", "NULL"]

    def insert_them(execute: Execute) -> list[dict[str, Any]]:
        sql = "INSERT INTO kept VALUES (:text, :data, :whole, :part, :none, :texts) RETURNING *"
        return [dict(execute(sql, {**values, "texts": texts})[0]) for _ in range(5)]

    async with opened(url) as store:
        await store.run(lambda execute: execute(make, {}))
        assert await store.run(insert_them) == [{**values, "texts": texts}] * 5


async def test_tables_that_another_process_changes_are_read_again(url: str) -> None:
    """A plan returns the columns that there were."""

    def look(execute: Execute) -> list[str]:
        return [*execute("SELECT * FROM addresses", {})[0].keys()]

    async with opened(url) as store:
        await store.run(lambda execute: execute(INSERT, {"thread": "a"}))
        for _ in range(5):
            columns = await store.run(look)
        await asyncio.to_thread(sql_on_server, url, "ALTER TABLE addresses ADD COLUMN colour TEXT")
        assert await store.run(look) == [*columns, "colour"]


async def test_the_audit_stays_locked_after_a_part_that_was_undone(url: str) -> None:
    def recorded(execute: Execute) -> int:
        audit.record(execute, AuditEvent(AuditKind.COMMAND))
        audit.read_head(execute)  # it is appended at once
        return audit_locks(execute)

    def work(execute: Execute) -> list[int]:
        found = [audit_locks(execute)]
        with suppress(ZeroDivisionError), savepoint(execute, "part"):
            found.append(recorded(execute))
            raise ZeroDivisionError
        return [*found, audit_locks(execute), recorded(execute)]

    async with opened(url) as store:
        assert await store.run(work) == [0, 1, 0, 1]
        assert await store.run(work) == [0, 1, 0, 1]


async def test_a_value_that_is_missing_or_of_no_type_is_the_callers_fault(url: str) -> None:
    async with opened(url) as store:
        for values in ({}, {"thread": object()}):
            with pytest.raises(StatementError):
                await store.run(lambda execute, values=values: execute(INSERT, values))  # type: ignore[misc]  # bound now
