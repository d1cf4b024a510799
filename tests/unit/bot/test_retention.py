"""Data older than `keep_days` is deleted with checkpoints and folders; open work is kept."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import orjson
import pytest

from agent.messages import Author, Message, Origin, Thread
from bot.base.data_dir import conversation_folder
from bot.config.schema import AccessConfig, Config
from bot.database.database import Database, Execute
from bot.database.states import RunState
from bot.journey import claims
from bot.main.features import gather_personal
from bot.privacy.retention import Retention
from bot.rights.claimed_run import RunEnding
from bot.rights.current import Current
from bot.service.channel_state import StoredChannelState
from bot.storage import conversations
from sandbox.disk.folders import ConversationFolders
from tests.support.current_config import OPEN_ACCESS, current_of
from tests.support.idle_turns import IDLE_TURNS
from tests.support.reception import open_inbox
from tests.support.rehearsed_database import make_empty_database, rehearsed_database


def retention_of(store: Database, folder: Path, forget: Callable[[str], Awaitable[None]]) -> Retention:
    folders = ConversationFolders(folder / "threads", 16)
    return Retention(store, Current(Config(folder)), folders, forget, gather_personal())


async def test_finished_conversations_are_deleted_and_open_ones_kept(tmp_path: Path) -> None:
    make_empty_database(tmp_path / "fawn.db")
    forgotten: list[str] = []

    async def forget(conversation: str) -> None:
        forgotten.append(conversation)

    async with rehearsed_database(tmp_path / "fawn.db") as store:
        inbox = open_inbox(store, current_of(telegram=AccessConfig(open=True)), IDLE_TURNS)
        done, open_ = Thread("telegram", "1", "done"), Thread("telegram", "1", "open")
        await inbox.receive([Message(done, "k1", "1", Author("1", "J"), "x", 0.0, private=True, origin=Origin.PERSON)])
        (job,) = await store.run(
            lambda execute: claims.claim_conversations(execute, OPEN_ACCESS, "me", time.time(), 10.0, 5)
        )
        await store.run(lambda execute: claims.finish_run(execute, job, RunEnding(RunState.DONE), time.time()))
        await inbox.receive([Message(open_, "k2", "2", Author("1", "J"), "y", 0.0, private=True, origin=Origin.PERSON)])
        place = conversation_folder(tmp_path, job.conversation)
        (place / "workspace").mkdir(parents=True)
        orphan, needed = tmp_path / "spool" / f"run-{job.run}", tmp_path / "spool" / "export-77"
        for copies in (orphan, needed):
            copies.mkdir(parents=True)
            os.utime(copies, (0, 0))
        young = tmp_path / "spool" / "export-78"
        young.mkdir()
        row = (
            "INSERT INTO outbox(key, kind, thread, payload, state, created)"
            " VALUES ('f', 'file', 't', :payload, 3, :now)"
        )
        payload = orjson.dumps([{"path": "/elsewhere/spool/export-77/my-data.jsonl"}])
        await store.run(lambda execute: execute(row, {"payload": payload, "now": time.time()}))

        retention = retention_of(store, tmp_path, forget)
        await retention.round(time.time() - 1000)
        assert not forgotten
        assert needed.exists()
        assert not orphan.exists()
        assert young.exists(), "its row may still be written"
        await retention.round(time.time() + 1000)
        assert forgotten == [job.conversation]
        assert not place.exists()
        rows = await store.run(lambda execute: execute("SELECT key FROM inbox", {}))
        assert [row["key"] for row in rows] == ["k2"]
        # The address begins anew, under a name that was never used.
        await inbox.receive(
            [Message(done, "k3", "3", Author("1", "J"), "again", 0.0, private=True, origin=Origin.PERSON)]
        )
        jobs = await store.run(
            lambda execute: claims.claim_conversations(execute, OPEN_ACCESS, "me", time.time(), 10.0, 5)
        )
        assert job.conversation not in [other.conversation for other in jobs]
        assert len(jobs) == 2


async def test_what_a_channel_keeps_for_hours_goes_with_the_hours_whatever_became_of_the_channel(
    tmp_path: Path,
) -> None:
    async def forget(conversation: str) -> None:
        raise AssertionError(conversation)

    folder = tmp_path / "channels" / "wecom"
    folder.mkdir(parents=True)
    for name in ("old", "new", "new2.part", "unknown"):
        (folder / name).write_bytes(b"a,b")
    make_empty_database(tmp_path / "fawn.db")
    async with rehearsed_database(tmp_path / "fawn.db") as store:
        kept = StoredChannelState(store, Current(Config(data_dir=tmp_path)), "wecom")
        await kept.save({"early old": ""}, of="jane", until=time.time() - 1.0)
        await kept.save({"early new": "", "early new2": ""}, of="jane", until=time.time() + 60.0)
        await kept.save({"position": ""})
        await retention_of(store, tmp_path, forget).round(0.0)
        assert {*await kept.load()} == {"early new", "early new2", "position"}
    assert sorted(path.name for path in folder.iterdir()) == ["new", "new2.part"]


async def test_a_conversation_that_cannot_be_deleted_does_not_block_others(tmp_path: Path) -> None:
    make_empty_database(tmp_path / "fawn.db")

    async def forget(conversation: str) -> None:
        if "stuck" in conversation:
            raise ValueError("a fault of ours")

    async with rehearsed_database(tmp_path / "fawn.db") as store:
        chats = [f"stuck{number}" for number in range(25)] + ["free"]
        for number, chat in enumerate(chats):
            thread = Thread("telegram", "1", chat)
            await store.run(lambda execute: conversations.begin_conversation(execute, thread, number))  # noqa: B023 — awaited here
        await retention_of(store, tmp_path, forget).round(time.time())
        rows = await store.run(lambda execute: execute("SELECT thread FROM conversations", {}))
        assert {Thread.parse(row["thread"]).chat for row in rows} == set(chats) - {"free"}


def _put(key: str, execute: Execute) -> None:
    execute("INSERT INTO conversations(key, thread, created, used) VALUES (:key, 't', 0, 0)", {"key": key})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files that cannot be deleted: run the tests as root")
async def test_a_folder_that_cannot_be_deleted_stays_recorded_and_does_not_block_others(tmp_path: Path) -> None:
    make_empty_database(tmp_path / "fawn.db")
    keys = [f"conversation {number:02}" for number in range(50)]

    async def forget(conversation: str) -> None:
        if conversation == keys[1]:
            raise RuntimeError("a fault of this conversation's memory")

    async with rehearsed_database(tmp_path / "fawn.db") as store:
        for key in keys:
            await store.run(partial(_put, key))
            conversation_folder(tmp_path, key).mkdir(parents=True)
        stuck = [conversation_folder(tmp_path, key) / "file" for key in keys[2:30]]
        for file in stuck:
            file.touch()
        subprocess.run(["chattr", "+i", *stuck], check=True)
        retention = retention_of(store, tmp_path, forget)
        try:
            await retention.round(time.time())
        finally:
            subprocess.run(["chattr", "-i", *stuck], check=True)
        rows = await store.run(lambda execute: execute("SELECT key FROM conversations ORDER BY key", {}))
        assert [kept["key"] for kept in rows] == keys[1:30]
        await retention.round(time.time())
        rows = await store.run(lambda execute: execute("SELECT key FROM conversations", {}))
        assert [kept["key"] for kept in rows] == keys[1:2]
        assert [path.name for path in (tmp_path / "threads").iterdir()] == [conversation_folder(tmp_path, keys[1]).name]
