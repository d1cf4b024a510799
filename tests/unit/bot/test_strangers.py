"""Who addresses the bot in a group without access is told so: once a day, and not in crowds."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.blocks import Final
from agent.messages import Author, Kind, Message, Origin, Thread
from bot.config.schema import AccessConfig
from bot.database.database import Database, Execute
from bot.journey.ignored import DAY_SECONDS, MAX_PER_CHAT, NO_ACCESS_HERE, NO_ACCESS_PAIRING, answer_stranger
from bot.rights.access import AccessPolicy
from bot.storage import people
from tests.support.rehearsed_database import make_empty_database, rehearsed_database

GROUP = Thread("telegram", "bot", "-100", "7")
ASKED = Message(GROUP, "k1", "m1", Author("99", "Eve"), "do it", 0.0, origin=Origin.PERSON)
NOW = time.time()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as made:
        yield made


async def told(store: Database, *messages: tuple[Message, float], rules: AccessConfig | None = None) -> list[Final]:
    """Return every notice that was enqueued so far, after these messages came at these times."""
    access = AccessPolicy({"telegram": rules or AccessConfig()})

    def work(execute: Execute) -> list[Final]:
        for message, now in messages:
            answer_stranger(execute, access, message, now)
        return [Final.load(row["payload"]) for row in execute("SELECT payload FROM outbox ORDER BY id", {})]

    return await store.run(work)


async def test_a_stranger_in_a_group_is_told_once_a_day_in_each_chat(store: Database) -> None:
    later = replace(ASKED, key="k2")
    [answer] = await told(store, (ASKED, NOW), (later, NOW + 60), (later, NOW + DAY_SECONDS - 1))
    assert (answer.text, answer.reader) == (NO_ACCESS_PAIRING, "99")
    assert len(await told(store, (later, NOW + DAY_SECONDS + 1))) == 2
    elsewhere = replace(ASKED, thread=replace(GROUP, chat="-200"))
    assert len(await told(store, (elsewhere, NOW))) == 3
    other_topic = replace(ASKED, thread=replace(GROUP, topic="8"))
    assert len(await told(store, (other_topic, NOW + DAY_SECONDS + 2))) == 3


async def test_a_crowd_of_strangers_does_not_make_the_bot_a_crowd(store: Database) -> None:
    crowd = [(replace(ASKED, key=f"k{n}", author=Author(f"{n}", "Eve")), NOW + n) for n in range(MAX_PER_CHAT + 20)]
    assert len(await told(store, *crowd)) == MAX_PER_CHAT


async def test_without_pairing_it_names_who_can_help(store: Database) -> None:
    [answer] = await told(store, (ASKED, NOW), rules=AccessConfig(pairing=False))
    assert answer.text == NO_ACCESS_HERE


@pytest.mark.parametrize(
    "message",
    [
        replace(ASKED, private=True),
        replace(ASKED, addressed=False),
        replace(ASKED, author=Author("99", "Robot", bot=True)),
        replace(ASKED, kind=Kind.CLICK),
        replace(ASKED, kind=Kind.FEEDBACK),
    ],
    ids=["in a direct chat", "not addressed", "a bot", "a click", "feedback"],
)
async def test_nothing_else_is_answered(store: Database, message: Message) -> None:
    assert await told(store, (message, NOW)) == []


async def test_it_can_be_switched_off_and_who_was_declined_hears_nothing(store: Database) -> None:
    assert await told(store, (ASKED, NOW), rules=AccessConfig(answer_strangers=False)) == []

    def decline(execute: Execute) -> None:
        people.store_code(execute, ASKED, "CODE", NOW + 60)
        people.decline_code(execute, "CODE", NOW)

    await store.run(decline)
    assert await told(store, (ASKED, NOW)) == []


async def test_the_row_names_neither_the_person_nor_the_chat(store: Database) -> None:
    await told(store, (ASKED, NOW))
    [row] = await store.run(lambda execute: execute("SELECT key FROM outbox", {}))
    assert "99" not in row["key"].split(":")[1:3]
    assert "-100" not in row["key"]
