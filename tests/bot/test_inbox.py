"""The inbox alone: what is kept, what is ignored, what is said."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.conversation import Author, Final, Kind, Message, Thread, Unreadable
from bot.access import Doors
from bot.inbox import Inbox
from bot.migrate import migrate
from bot.sections import Access, Limits
from bot.store import Store
from channels.base import Receipt
from tests.bot.idle import Idle

THREAD = Thread("telegram", "1", "42")
HELLO = Message(THREAD, "k1", "1", Author("42", "Jane"), "hello", 0.0, private=True)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    migrate(tmp_path / "fawn.db")
    async with Store(tmp_path / "fawn.db") as made:
        yield made


def inbox(store: Store, access: Access | None = None) -> Inbox:
    return Inbox(store, Doors({"telegram": access or Access(open=True)}), Limits(), Idle())


async def said(store: Store) -> list[str]:
    rows = await store.run(lambda execute: execute("SELECT payload FROM outbox ORDER BY id", {}))
    return [Final.load(row["payload"]).text for row in rows]


async def test_an_event_that_cannot_be_kept_blocks_nobody(store: Store) -> None:
    broken = replace(HELLO, key="k2", text="half a pair \ud83d")
    receipts = await inbox(store).receive([HELLO, broken, replace(HELLO, key="k3")])
    assert receipts == [Receipt.ACCEPTED, Receipt.IGNORED, Receipt.ACCEPTED]
    rows = await store.run(lambda execute: execute("SELECT key, state FROM inbox ORDER BY id", {}))
    assert [tuple(row) for row in rows] == [("k1", 0), ("k2", 3), ("k3", 0)]
    assert await inbox(store).receive([broken]) == [Receipt.DUPLICATE]


async def test_an_unreadable_event_is_a_dead_letter_once(store: Store) -> None:
    event = Unreadable("telegram", "u1", b"{}", "no date")
    assert await inbox(store).receive([event, event]) == [Receipt.IGNORED, Receipt.DUPLICATE]


async def test_strangers_get_one_code_and_groups_none(store: Store) -> None:
    closed = inbox(store, Access(operators=("1",)))
    assert await closed.receive([HELLO, replace(HELLO, key="k2")]) == [Receipt.IGNORED] * 2
    assert await closed.receive([replace(HELLO, key="k3", private=False)]) == [Receipt.IGNORED]
    words = await said(store)
    assert len(words) == 1
    assert "fawn pair accept" in words[0]


async def test_access_names_people_or_whole_chats_and_never_bots(store: Store) -> None:
    group = replace(HELLO, thread=Thread("telegram", "1", "-100"), private=False)
    bot = replace(HELLO, key="k9", author=Author("42", "Robot", bot=True))
    some = inbox(store, Access(allow=("42", "-7"), pairing=False))
    assert await some.receive([HELLO, bot]) == [Receipt.ACCEPTED, Receipt.IGNORED]
    other = replace(group, key="k5", author=Author("5", "Bob"))
    assert await some.receive([other]) == [Receipt.IGNORED]
    allowed = replace(other, thread=Thread("telegram", "1", "-7"))
    assert await some.receive([allowed]) == [Receipt.ACCEPTED]


async def test_case_88_over_the_limit_waits_and_is_told_once(store: Store) -> None:
    flooded = Inbox(store, Doors({"telegram": Access(open=True)}), Limits(flood_messages=3), Idle())
    before = time.time()
    for number in range(6):
        assert await flooded.receive([replace(HELLO, key=f"k{number}")]) == [Receipt.ACCEPTED]
    rows = await store.run(lambda execute: execute("SELECT ready FROM inbox ORDER BY id", {}))
    waits = [row["ready"] - before > 5 for row in rows]
    assert waits == [False] * 3 + [True] * 3
    assert len(await said(store)) == 1


async def test_what_was_not_meant_for_the_bot_is_not_kept(store: Store) -> None:
    overheard = replace(HELLO, addressed=False, private=False)
    assert await inbox(store).receive([overheard]) == [Receipt.IGNORED]
    rows = await store.run(lambda execute: execute("SELECT 1 FROM inbox", {}))
    assert rows == []


async def test_case_86_an_unsupported_kind_is_answered_without_a_turn(store: Store) -> None:
    sticker = replace(HELLO, kind=Kind.UNSUPPORTED, text="stickers")
    assert await inbox(store).receive([sticker]) == [Receipt.ACCEPTED]
    assert "stickers" in (await said(store))[0]
    rows = await store.run(lambda execute: execute("SELECT pending FROM conversations", {}))
    assert [row["pending"] for row in rows] == [0]
