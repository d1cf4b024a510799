"""The audit: rows of a hash chain, which show each change, and pseudonyms that can be forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from agent.messages import Thread
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind, AuditRow
from bot.database.database import Database, Execute
from tests.support.rehearsed_database import make_empty_database, rehearsed_database, stored_rows

CHAT = Thread("telegram", "bot", "77", "5")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as database:
        yield database


async def note(store: Database, *results: str) -> None:
    for event in [AuditEvent(AuditKind.COMMAND, result=result) for result in results]:
        await store.run(partial(audit.record, event=event))


async def rows_of(store: Database) -> list[AuditRow]:
    return [*await store.run(lambda execute: audit.read_page(execute, 0, 1000))]


async def test_rows_continue_the_hash_of_the_row_before(store: Database) -> None:
    await note(store, "a", "b")
    one, two = await rows_of(store)
    assert one.hash == audit.chain_hash(audit.EMPTY, 1, one.body)
    assert two.hash == audit.chain_hash(one.hash, 2, two.body)
    assert two.event["result"] == "b"
    assert await store.run(audit.read_head) == (2, two.hash)


async def test_a_row_exists_exactly_if_its_deed_does(store: Database) -> None:
    def fail(execute: Execute) -> None:
        audit.record(execute, AuditEvent(AuditKind.COMMAND, result="undone"))
        raise LookupError("the deed failed")

    def succeed(execute: Execute) -> None:
        audit.record(execute, AuditEvent(AuditKind.COMMAND, result="done"))

    outcomes = await asyncio.gather(
        *(store.run(fail if number % 3 == 0 else succeed) for number in range(30)), return_exceptions=True
    )
    assert sum(isinstance(outcome, LookupError) for outcome in outcomes) == 10
    rows = await rows_of(store)
    assert [row.seq for row in rows] == [*range(1, 21)]
    assert {row.event["result"] for row in rows} == {"done"}


async def test_people_and_threads_are_pseudonyms_until_they_are_forgotten(store: Database, tmp_path: Path) -> None:
    event = AuditEvent(AuditKind.MESSAGE, CHAT, who="77", subject="telegram:78", run=4, what={"bytes": 3}, cost=12)
    for _ in range(2):
        await store.run(lambda execute: audit.record(execute, event))
    first, second = (row.event for row in await rows_of(store))
    assert first == second | {"at": first["at"]}
    assert (first["run"], first["what"], first["cost"]) == (4, {"bytes": 3}, 12)
    names = await store.run(audit.read_names)
    shown = [names[first[field]] for field in ("who", "subject", "where")]
    assert [name for name, _ in shown] == ["telegram:77", "telegram:78", "telegram/bot/77/5"]
    assert all(audit.make_alias(*names[alias]) == alias for alias in names)
    await store.run(lambda execute: audit.forget_person(execute, "telegram", "77", [Thread("telegram", "bot", "77")]))
    assert [name for name, _ in (await store.run(audit.read_names)).values()] == ["telegram:78"]
    await store.run(lambda execute: audit.record(execute, event))
    assert (await rows_of(store))[-1].event["who"] != first["who"], "nobody can link the two"


async def test_retention_keeps_the_chain(store: Database, tmp_path: Path) -> None:
    await note(store, *"abcd")
    [(last,)] = stored_rows(tmp_path / "fawn.db", "SELECT hash FROM audit WHERE seq=4")
    await store.run(lambda execute: audit.record(execute, AuditEvent(AuditKind.MESSAGE, CHAT, who="77")))
    assert await store.run(lambda execute: audit.prune_rows(execute, 1, 100)) == 0
    assert await store.run(lambda execute: audit.prune_rows(execute, -1, 4)) == 4
    assert await store.run(audit.read_anchor) == (4, last)
    assert [row.event["kind"] for row in await rows_of(store)] == ["message", "audit.pruned"]
    assert len(await store.run(audit.read_names)) == 2
    assert await store.run(lambda execute: audit.prune_rows(execute, -1, 100)) == 1, "an old row stays, to show its age"
    assert [row.seq for row in await rows_of(store)] == [6, 7]
    assert await store.run(audit.read_names) == {}, "names that no row uses any more go with the rows"
