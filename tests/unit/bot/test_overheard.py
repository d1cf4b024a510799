"""The talk of a group is kept within bounds, for the announced time, and ends with `/forget me`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.messages import Author, Message, Origin, Thread
from bot.database.database import Database, Execute
from bot.main.features import gather_personal
from bot.storage import overheard
from bot.storage.moved_chats import move_chat
from tests.support.rehearsed_database import make_empty_database, rehearsed_database

GROUP = Thread("telegram", "1", "-100")
BOB = Author("77", "Bob")
SAID = Message(GROUP, "k0", "0", BOB, "", 0.0, addressed=False, fleeting=True, origin=Origin.PERSON)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as made:
        yield made


async def keep(store: Database, count: int, author: Author = BOB) -> None:
    def work(execute: Execute) -> None:
        for n in range(1, count + 1):
            text = f"{author.name} {n} {'x' * overheard.MAX_CHARS}"
            said = replace(SAID, key=f"{author.id}-{n}", id=str(n), author=author, text=text, time=float(n))
            overheard.keep_message(execute, said)

    await store.run(work)


async def talk(store: Database, since: float = 0.0, most: int = 1000) -> list[str]:
    kept = await store.run(lambda execute: overheard.kept_talk(execute, str(GROUP), since, most))
    assert all(each.kind == "earlier" and len(each.text) <= overheard.MAX_CHARS for each in kept)
    return [" ".join(each.text.split()[:2]) for each in kept]


async def test_the_latest_messages_are_kept(store: Database) -> None:
    await keep(store, overheard.MAX_MESSAGES + 20)
    found = await talk(store)
    assert (len(found), found[0], found[-1]) == (overheard.MAX_MESSAGES, "Bob 21", "Bob 120")
    assert await talk(store, since=119.0) == ["Bob 119", "Bob 120"]
    assert await talk(store, most=1) == ["Bob 120"]


async def test_what_is_too_old_is_deleted(store: Database) -> None:
    await keep(store, 9)
    assert await store.run(lambda execute: overheard.end_kept(execute, 8.0, 100)) == 7
    assert await talk(store) == ["Bob 8", "Bob 9"]


async def test_a_person_who_is_forgotten_leaves_nothing(store: Database) -> None:
    await keep(store, 2)
    await keep(store, 1, Author("42", "Jane"))
    [table] = [each for each in gather_personal() if each.table == "overheard"]
    values = {"author": "telegram:77", "channel": "telegram", "person": "77"}

    def forget(execute: Execute) -> None:
        for statement in table.forget:
            execute(statement, values)

    await store.run(forget)
    assert await talk(store) == ["Jane 1"]


async def test_a_group_that_moves_keeps_its_talk_and_was_told(store: Database) -> None:
    await keep(store, 1)
    new = replace(GROUP, chat="-100200")
    await store.run(lambda execute: overheard.begin_listening(execute, GROUP, 1.0))
    await store.run(lambda execute: move_chat(execute, GROUP, new))
    assert await talk(store) == []
    assert await store.run(lambda execute: overheard.is_listening(execute, new))
    [kept] = await store.run(lambda execute: overheard.kept_talk(execute, str(new), 0.0, 10))
    assert kept.author_id == "77"
