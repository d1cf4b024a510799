"""The stored messages of replies: handles of unconfirmed posts, and messages that a reply adopts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.messages import Thread
from bot.storage.database import Database
from bot.storage.migrate import migrate_database
from bot.storage.sent_messages import StoredSentMessages, known_messages
from channels.base import SentMessage
from tests.support.rehearsed_database import rehearsed_database

THREAD = Thread("slack", "T1", "C1", "1.0")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    migrate_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as made:
        yield made


async def stored(store: Database, key: str) -> list[SentMessage]:
    return await store.run(lambda execute: known_messages(execute, key))


async def test_the_handle_of_an_unconfirmed_post_survives_a_restart(store: Database) -> None:
    posts = StoredSentMessages(store, "r1", THREAD)
    await posts.sending(0, "card")
    await posts.sending(0, "card")
    assert await stored(store, "r1") == [SentMessage(0, None, 2, "card")]
    await posts.unsent(0)
    assert await stored(store, "r1") == list(posts.known) == [SentMessage(0, None, 1, "card")]
    await posts.sent(0, "m/card")
    assert await stored(store, "r1") == [SentMessage(0, "m/card")]


async def test_a_message_is_adopted_by_one_reply_only(store: Database) -> None:
    await StoredSentMessages(store, "r1", THREAD).sent(0, "1.1")
    unsure = [StoredSentMessages(store, key, THREAD) for key in ("r2", "r3", "r4")]
    for posts in unsure:
        await posts.sending(0)
    found = await asyncio.gather(*(posts.adopt(0, ["1.1", "1.2", "1.3"]) for posts in unsure))
    assert found == ["1.2", "1.3", None]
    assert [await stored(store, posts.key) for posts in unsure] == [list(posts.known) for posts in unsure]
    assert unsure[0].known == [SentMessage(0, "1.2")]
    assert unsure[2].known == [SentMessage(0, None)]
    elsewhere = StoredSentMessages(store, "r5", Thread("slack", "T2", "C1", "1.0"))
    assert await elsewhere.adopt(0, ["1.1"]) == "1.1"
