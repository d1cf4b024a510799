"""Handles of events: sealed, found by the message or its chat, gone at their end and with their person."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.messages import Author, Message, Origin, ReplyHandle, Thread
from agent.setting import Secret
from bot.base.stored_secrets import seal_anew
from bot.config.operations import EncryptionConfig
from bot.config.schema import Config
from bot.database.database import Database, Execute
from bot.main.features import gather_personal
from bot.service.channel_state import find_handle, keep_handle
from bot.storage import channels
from bot.storage.retention import delete_finished
from tests.support.rehearsed_database import RehearsedDatabase, make_empty_database

OLD, NEW = Secret("o" * 40), Secret("n" * 40)
CHAT = Thread("slack", "T1", "C1", "7.0")
TOKEN = "https://hooks.example/secret"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    make_empty_database(tmp_path / "fawn.db")
    async with RehearsedDatabase(tmp_path / "fawn.db") as made:
        yield made


def config(folder: Path, *keys: Secret) -> Config:
    return Config(data_dir=folder, encryption=EncryptionConfig(keys[0], keys[1:]) if keys else EncryptionConfig())


def message(id: str, handle: ReplyHandle | None, person: str = "U1") -> Message:
    author = Author(person, "Jane")
    return Message(CHAT, f"slack:{id}", id, author, "hello", 1.0, reply_handle=handle, origin=Origin.PERSON)


def later(seconds: float = 60.0, token: str = TOKEN, *, of_chat: bool = False) -> ReplyHandle:
    return ReplyHandle(token, time.time() + seconds, of_chat)


async def keep(store: Database, settings: Config, *messages: Message) -> None:
    def work(execute: Execute) -> None:
        for each in messages:
            keep_handle(execute, settings, each)

    await store.run(work)


async def found(store: Database, settings: Config, id: str, thread: Thread = CHAT) -> str:
    handle = await store.run(lambda execute: find_handle(execute, settings, thread, id))
    return handle.current if handle else ""


async def test_a_handle_is_found_by_its_message_in_its_chat_alone(store: Database, tmp_path: Path) -> None:
    settings = config(tmp_path)
    await keep(store, settings, message("1", later()), message("2", None))
    assert await found(store, settings, "1") == TOKEN
    assert await found(store, settings, "1", replace(CHAT, topic="8.0")) == TOKEN
    assert [await found(store, settings, id) for id in ("2", "")] == ["", ""]
    assert await found(store, settings, "1", Thread("slack", "T1", "C2")) == ""


async def test_one_of_the_chat_serves_every_message_until_the_next_one(store: Database, tmp_path: Path) -> None:
    settings = config(tmp_path)
    await keep(store, settings, message("1", later(of_chat=True)), message("2", later(token="own")))
    assert [await found(store, settings, id) for id in ("1", "", "9", "2")] == [TOKEN, TOKEN, TOKEN, "own"]
    await keep(store, settings, message("3", later(token="next", of_chat=True)))
    assert await found(store, settings, "1") == "next"


async def test_one_that_has_ended_is_neither_stored_nor_kept(store: Database, tmp_path: Path) -> None:
    settings = config(tmp_path)
    await keep(store, settings, message("1", later(-1)), message("2", later(0.05)))
    assert await found(store, settings, "1") == ""
    handle = await store.run(lambda execute: find_handle(execute, settings, CHAT, "2"))
    assert handle
    assert replace(handle, until=time.time() - 1).current == ""
    await store.run(lambda execute: execute("UPDATE reply_handles SET until=:at", {"at": time.time() - 1}))
    await keep(store, settings, message("3", later()))
    rows = await store.run(channels.list_tokens)
    assert [row[1] for row in rows] == ["3"]
    await store.run(lambda execute: execute("UPDATE reply_handles SET until=:at", {"at": time.time() - 1}))
    [table] = [each for each in gather_personal() if each.table == "reply_handles"]
    assert await store.run(lambda execute: delete_finished(execute, table, 0.0, 10)) == 1


async def test_tokens_are_sealed_and_under_another_key_at_a_start(store: Database, tmp_path: Path) -> None:
    await keep(store, config(tmp_path, OLD), message("1", later()))
    assert not any(TOKEN in row[2] for row in await store.run(channels.list_tokens))
    assert await found(store, config(tmp_path, NEW), "1") == ""
    await store.run(lambda execute: seal_anew(execute, config(tmp_path, NEW, OLD)))
    assert await found(store, config(tmp_path, NEW), "1") == TOKEN
    await store.run(lambda execute: seal_anew(execute, config(tmp_path, Secret("x" * 40))))
    assert await store.run(channels.list_tokens) == []


async def test_a_message_is_stored_and_described_without_its_handle() -> None:
    asked = message("1", later())
    assert TOKEN not in asked.dump().decode() + repr(asked)
    assert Message.load(asked.dump()) == replace(asked, reply_handle=None)
