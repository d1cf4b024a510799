"""The databases remain writable on a disk without a free block."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.database.database import Database
from bot.database.disk_reserve import RESERVE, set_aside
from tests.support.engines import small_disk

MB = 1 << 20


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 160 MB."""
    with small_disk(tmp_path, 160) as place:
        yield place


def fill(place: Path) -> None:
    """Fill it to the last block."""
    for size in (64 * MB, MB, 4096):
        with (place / f"full-{size}").open("wb") as file:
            while subprocess.run(["fallocate", "-o", str(os.fstat(file.fileno()).st_size), "-l", str(size), file.name],
                                 capture_output=True).returncode == 0:  # fmt: skip
                pass
    disk = os.statvfs(place)
    assert disk.f_bavail == 0


async def test_every_write_succeeds_on_a_full_disk(small: Path) -> None:
    async with Database(small / "a.db") as store:
        await store.run(lambda execute: execute("CREATE TABLE t(x)", {}))
        await set_aside({small / "a.db": store})
        fill(small)
        for _ in range(40):  # five times what SQLite lets grow before it writes it into the database
            await store.run(lambda execute: execute("INSERT INTO t VALUES (randomblob(500000))", {}))
        for file in small.glob("full-*"):
            file.unlink()
        for _ in range(40):
            await store.run(lambda execute: execute("INSERT INTO t VALUES (randomblob(500000))", {}))
        assert (await store.run(lambda execute: execute("SELECT count(*) AS n FROM t", {})))[0]["n"] == 80
        assert (small / "a.db-wal").stat().st_blocks * 512 >= RESERVE["-wal"]  # as much as before
    async with Database(small / "a.db") as store:
        assert (await store.run(lambda execute: execute("PRAGMA integrity_check", {})))[0]["integrity_check"] == "ok"
