"""What channels keep over restarts: stored at once, sealed under the key, and under another one after a change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.setting import Secret
from bot.base.stored_secrets import seal_anew
from bot.config.operations import EncryptionConfig
from bot.config.schema import Config
from bot.database.database import Database
from bot.rights.current import Current
from bot.service.channel_state import StoredChannelState
from bot.storage import channels
from channels.base import NotStored
from tests.support.rehearsed_database import make_empty_database, rehearsed_database

OLD, NEW = Secret("o" * 40), Secret("n" * 40)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as made:
        yield made


def config(folder: Path, *keys: Secret) -> Config:
    encryption = EncryptionConfig(keys[0], keys[1:]) if keys else EncryptionConfig()
    return Config(data_dir=folder, encryption=encryption)


def state(store: Database, folder: Path, *keys: Secret, channel: str = "matrix") -> StoredChannelState:
    return StoredChannelState(store, Current(config(folder, *keys)), channel)


async def stored(store: Database) -> list[str]:
    rows = await store.run(channels.list_state)
    return [value for _channel, _name, value in rows]


async def test_each_channel_has_its_own_values_which_change_together(store: Database, tmp_path: Path) -> None:
    mine, other = state(store, tmp_path), state(store, tmp_path, channel="other")
    assert await mine.load() == {}
    await mine.save({"since": "s1", "key": "k1"})
    await other.save({"since": "t1"})
    await mine.save({"since": "s2", "key": None, "new": ""})
    assert await mine.load() == {"since": "s2", "new": ""}
    assert await other.load() == {"since": "t1"}


async def test_values_are_sealed_under_the_key_and_under_a_new_one_at_a_start(store: Database, tmp_path: Path) -> None:
    await state(store, tmp_path).save({"open": "plain words"})
    await state(store, tmp_path, OLD).save({"sealed": "secret words"})
    assert ["plain words" in each for each in await stored(store)] == [True, False]
    assert not any("secret words" in each for each in await stored(store))
    both = config(tmp_path, NEW, OLD)
    await store.run(lambda execute: seal_anew(execute, both))
    assert not any("words" in each for each in await stored(store))
    assert await state(store, tmp_path, NEW).load() == {"open": "plain words", "sealed": "secret words"}


async def test_another_key_is_said_and_changes_nothing(store: Database, tmp_path: Path) -> None:
    await state(store, tmp_path, OLD).save({"since": "s1"})
    before = await stored(store)
    with pytest.raises(NotStored, match="another key"):
        await state(store, tmp_path, NEW).load()
    await store.run(lambda execute: seal_anew(execute, config(tmp_path, NEW)))
    assert await stored(store) == before


async def test_what_was_dropped_is_not_renewed_and_a_new_key_leaves_its_end(store: Database, tmp_path: Path) -> None:
    mine = state(store, tmp_path, OLD)
    await mine.save({"early a": "1", "early b": "1"}, of="jane", until=5.0)
    assert await mine.renew("early a", "2", until=9.0)
    await mine.save({"early b": None})
    assert not await mine.renew("early b", "2", until=9.0)
    both = config(tmp_path, NEW, OLD)
    await store.run(lambda execute: seal_anew(execute, both))
    rows = await store.run(lambda execute: execute("SELECT item, author, until FROM channel_state", {}))
    assert [{**row} for row in rows] == [{"item": "early a", "author": "matrix:jane", "until": 9.0}]
    assert await state(store, tmp_path, NEW).load() == {"early a": "2"}
