"""Every copy for the outbox is in a folder that the sweep knows, whatever wrote it."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

import bot
from agent.messages import Thread
from bot.base import stored_files
from bot.base.stored_files import command_folder, row_folder, run_folder, sweep_spool
from bot.database.database import Database
from bot.database.migrate import prepare_databases
from bot.storage import outbox
from tests.support.rehearsed_database import rehearsed_database

HOME = Thread("slack", "T1", "C1")
LONG_AGO = 1_000_000_000.0


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    prepare_databases(tmp_path)
    async with rehearsed_database(tmp_path / "fawn.db") as database:
        yield database


def left_copy(folder: Path) -> Path:
    """Leave a copy as a crash does."""
    folder.mkdir(parents=True)
    (folder / "copy").write_bytes(b"private")
    os.utime(folder, (LONG_AGO, LONG_AGO))
    return folder


@pytest.mark.parametrize("kind", ["usage", "export", "memory"])
async def test_what_a_crash_left_of_any_writer_is_swept(store: Database, tmp_path: Path, kind: str) -> None:
    left = [
        left_copy(run_folder(tmp_path, 7)),
        left_copy(row_folder(tmp_path, 7)),
        left_copy(command_folder(tmp_path, kind, "slack:C1:1.0")),
    ]
    waiting = left_copy(command_folder(tmp_path, kind, "slack:C1:2.0"))
    payload = orjson.dumps([{"path": str(waiting / "copy"), "name": "copy", "size": 7, "caption": ""}])
    await store.run(lambda execute: outbox.enqueue_files(execute, HOME, payload, key="waits", now=1.0))
    assert await sweep_spool(store, tmp_path) == len(left)
    assert [*(tmp_path / "spool").iterdir()] == [waiting]


def test_no_other_module_names_a_folder_of_the_spool() -> None:
    sources = {path: path.read_text("utf-8") for path in Path(bot.__file__).parent.rglob("*.py")}
    own = Path(stored_files.__file__)
    naming = {path.name for path, text in sources.items() if re.search(r"""["']spool|\bSPOOL\b""", text)}
    assert naming == {own.name, "backup.py", "restore.py"}
