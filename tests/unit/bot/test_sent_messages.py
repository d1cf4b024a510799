"""The stored messages of replies: handles of unconfirmed posts, and messages that a reply adopts."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest

from agent.blocks import Final, Text
from agent.messages import Thread
from bot.base.background import PatientStore
from bot.database.database import Database, StorageError
from bot.storage.sent_messages import StoredSentMessages, known_messages, run_of_message
from channels.base import SentMessage
from channels.shared.reply_writer import ReplyWriter
from tests.fakes.server import until
from tests.support.rehearsed_database import make_empty_database, rehearsed_database
from tests.unit.channels.test_reply_writer import NoLimit, Page

THREAD = Thread("slack", "T1", "C1", "1.0")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    make_empty_database(tmp_path / "fawn.db")
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


async def test_a_message_that_was_found_deleted_still_names_its_run_and_is_no_part_of_the_reply(
    store: Database,
) -> None:
    posts = StoredSentMessages(store, "r1", THREAD)
    for number in range(3):  # a person deletes each
        await posts.sending(0)
        await posts.sent(0, f"1.{number}")
        await posts.sent(1, f"2.{number}")
        await posts.found_deleted(0)
        await posts.found_deleted(1)
    await posts.sent(0, "1.3")

    ids = ("1.0", "1.1", "1.2", "1.3", "2.0", "2.2")
    found = await store.run(lambda execute: {each: run_of_message(execute, THREAD, each, begins=True) for each in ids})
    assert [found[each] for each in ids] == [1, 1, 1, 1, None, None]
    assert await stored(store, "r1") == [SentMessage(0, "1.3"), SentMessage(1, "2.2")]
    assert await StoredSentMessages(store, "r2", THREAD).adopt(0, ["1.0"]) is None


class Busy(Page):
    """A platform that does something between the arrival of a message and its answer."""

    def __init__(self, arrived: Callable[[], object]) -> None:
        super().__init__()
        self._arrived = arrived

    async def post(self, part: str, index: int, replaced: str) -> str:
        message_id = f"{index}.{len(self.shown)}"
        self.shown[message_id] = part
        self._arrived()
        return message_id


async def test_a_message_whose_place_cannot_be_stored_at_once_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "fawn.db"
    make_empty_database(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        async with Database(path, busy_timeout_seconds=0.01) as store:
            page = Busy(lambda: other.execute("BEGIN IMMEDIATE"))  # the database can take nothing from now on
            posts = StoredSentMessages(PatientStore(store, "posts"), "r1", THREAD)
            writer = ReplyWriter(page, posts, NoLimit())
            writer.show(Text("the beginning"))
            await until(lambda: bool(page.shown), what="the first message")
            finished = asyncio.create_task(writer.finish(Final("the beginning and the end")))
            with pytest.raises(StorageError):
                await store.run(lambda execute: execute("DELETE FROM posts", {}))
            other.execute("ROLLBACK")
            await finished
            assert page.shown == {"0.0": "the beginning and the end"}
            assert await stored(store, "r1") == [SentMessage(0, "0.0")]
