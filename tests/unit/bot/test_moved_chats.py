"""A group that gets another address keeps what belongs to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.memory.extraction import Fact, Statement
from agent.memory.visibility import MemoryKind, MemoryScope, Place
from agent.messages import Author, Thread
from bot.database.database import Database, Execute
from bot.memory.facts import NewFact, store_fact
from bot.storage import agents, conversations, languages
from bot.storage.memory_search import search_memories
from bot.storage.moved_chats import KEPT, MOVED, MOVED_OTHERWISE, move_chat
from bot.storage.people import chat_subject, find_roles, store_role
from tests.support.rehearsed_database import make_empty_database, rehearsed_database

OLD, NEW = Thread("telegram", "1", "-5"), Thread("telegram", "1", "-1000000005")
OTHER = Thread("telegram", "1", "-50")
ID = ("id", "INTEGER")  # SQLite chooses it
JANE, BOB = Author("42", "Jane"), Author("43", "Bob")
HOLDS_ADDRESSES = (
    "thread",
    "place",
    "chat",
    "reader",
    "audience",
    "asked_in",
    "subject",
    "workspace",
    "topic",
    "scope",
)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as made:
        yield made


async def columns(store: Database) -> list[str]:
    """Return all columns that can hold text, as TABLE.COLUMN."""
    sql = (
        "SELECT m.name || '.' || c.name AS name FROM sqlite_master m, pragma_table_info(m.name) c"
        " WHERE m.type='table' AND m.name NOT LIKE 'sqlite%' AND m.name NOT LIKE 'memory_index_%'"
        " AND m.name<>'alembic_version' AND c.type NOT IN ('INTEGER', 'FLOAT')"
    )
    return [str(row["name"]) for row in await store.run(lambda execute: execute(sql, {}))]


@pytest.mark.sqlite
async def test_every_column_that_holds_an_address_is_moved_or_kept_for_a_reason(store: Database) -> None:
    known = {*MOVED, *MOVED_OTHERWISE, *KEPT}
    found = await columns(store)
    unknown = [each for each in found if each.split(".")[1] in HOLDS_ADDRESSES and each not in known]
    assert unknown == [], "say in bot/storage/moved_chats.py whether it is moved"
    assert [each for each in known if "*" not in each and each not in found] == []


@pytest.mark.sqlite
async def test_no_column_but_the_kept_ones_has_the_old_address_after_the_move(store: Database) -> None:
    """Each column gets the old address; those of messages are of a row that is delivered still."""
    columns_ = [each for each in MOVED if each != "memory.thread"]

    def fill(execute: Execute) -> None:
        conversations.begin_conversation(execute, OLD, 1.0)
        for column in columns_:
            _insert(execute, *column.split("."))
        _learn(execute)

    await store.run(fill)
    await store.run(lambda execute: move_chat(execute, OLD, NEW))
    left = []
    for column in [*MOVED, "addresses.thread", "memory.audience"]:
        table, _dot, name = column.partition(".")
        sql = f"SELECT {name} AS value FROM {table}"  # noqa: S608 — names of our own
        values = [str(row["value"]) for row in await store.run(lambda execute, sql=sql: execute(sql, {}))]  # type: ignore[misc]  # mypy cannot infer a lambda with defaults
        assert any("-1000000005" in value for value in values), column
        if column != "addresses.thread" and any("/-5/" in f"{value}/" for value in values):
            left.append(column)
    assert left == []


def _insert(execute: Execute, table: str, column: str) -> None:
    """Insert a row with the old address into a column, and something into the columns that need a value."""
    info = execute(f"SELECT name, type, \"notnull\" AS needed, dflt_value, pk FROM pragma_table_info('{table}')", {})  # noqa: S608 — our own names
    needed = [
        row
        for row in info
        if row["needed"] and row["dflt_value"] is None and row["name"] != column and (row["name"], row["type"]) != ID
    ]
    values = {str(row["name"]): 1 if row["type"] in ("INTEGER", "FLOAT") else f"{table}" for row in needed}
    values[column] = str(OLD)
    names = ", ".join(f'"{name}"' for name in values)
    marks = ", ".join(f":{name}" for name in values)
    execute(f"INSERT INTO {table}({names}) VALUES ({marks})", values)  # noqa: S608 — our own names


def _learn(execute: Execute) -> None:
    place = Place(OLD, private=False)
    for who, scope, text in (
        (JANE, MemoryScope.CHAT, "the budget is 5000 euros"),
        (JANE, MemoryScope.PERSON, "my desk is in Rome"),
    ):
        fact = Fact(text, "", MemoryKind.CONTEXT, 0, 0.9, scope, ())
        store_fact(execute, place, who, NewFact(fact, Statement(text, f"k{text}", 1.0), 0.9))
    elsewhere = Fact("the budget is zero", "", MemoryKind.CONTEXT, 0, 0.9, MemoryScope.CHAT, ())
    new = NewFact(elsewhere, Statement("the budget is zero", "k9", 1.0), 0.9)
    store_fact(execute, Place(OTHER, private=False), JANE, new)


async def test_the_memories_the_language_and_the_agent_of_a_group_go_with_it(store: Database) -> None:
    def work(execute: Execute) -> None:
        _learn(execute)
        for place, language, agent in ((NEW, "en", "other"), (OLD, "zh", "support")):  # the old address counts
            chat = chat_subject(place.chat)
            store_role(execute, place, chat, f"role of {agent}", name="", by=BOB, now=1.0)
            languages.choose_language(execute, place, languages.CHAT, language)
            agents.choose_default_agent(execute, place, languages.CHAT, agent)
        move_chat(execute, OLD, NEW)

    await store.run(work)

    def look(execute: Execute) -> None:
        there = Place(NEW, private=False)
        assert [m.text for m in search_memories(execute, there, BOB, "budget")] == ["the budget is 5000 euros"]
        assert [m.text for m in search_memories(execute, there, JANE, "desk")] == ["my desk is in Rome"]
        assert search_memories(execute, Place(OLD, private=False), BOB, "budget") == []
        [kept] = search_memories(execute, Place(OTHER, private=False), BOB, "budget")
        assert kept.text == "the budget is zero"
        assert languages.language_of(execute, NEW, Author("9", "")) == "zh"
        here = conversations.find_conversation(execute, conversations.current_conversation(execute, NEW, 1.0))
        assert here
        assert agents.choices_of(execute, here, NEW, "9").agent == "support"
        subjects = [chat_subject(OLD.chat), chat_subject(NEW.chat)]
        roles = find_roles(execute, NEW.channel, subjects)
        assert {subject: row.role for subject, row in roles.items()} == {subjects[1]: "role of support"}

    await store.run(look)
