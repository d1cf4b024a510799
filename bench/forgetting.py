"""How long others wait while one person is forgotten, while their bytes are overwritten and pages are given back.

`python -m bench.forgetting --gb 1 --folder DISK`: a transaction of others every 10 ms; the longest wait and p99.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import uvloop

from agent.messages import Author, Message, Origin, Thread
from bot.config.schema import Config
from bot.database.database import Database, Execute
from bot.database.migrate import migrate_database
from bot.main.features import gather_personal
from bot.privacy.forgetting import ConversationCleaner, ForgetJobs
from bot.rights.current import Current
from bot.storage import conversations
from bot.storage.jobs import BackgroundJob, enqueue_job
from sandbox.disk.files_only import FilesOnlyProvider
from sandbox.disk.folders import ConversationFolders

PERSON = "gone"
EVERY_SECONDS = 0.01
IDLE_SECONDS = 5.0
ROW_BYTES = 1400  # of a message's text
ROW_ON_DISK = 2100  # with its indexes
SHARED = 100  # conversations; each hundredth message is the person's
FILL_ROWS = 20_000
INSERT = """INSERT INTO inbox(key, conversation, kind, author, payload, state, ready, received)
    VALUES (?, ?, 'chat', ?, ?, 1, ?, ?)"""


def group(number: int) -> Thread:
    return Thread("telegram", "bot", f"-{1000 + number}")


def messages(count: int, keys: list[str]) -> Iterator[tuple[str, str, str, bytes, float, float]]:
    """Yield rows of the inbox of the last ten days."""
    begin = time.time() - 10 * 86_400
    for number in range(count):
        person = PERSON if number % 100 == 0 else str(number % 97)
        where = number // 7 % SHARED
        at = begin + number * 9 * 86_400 / count
        text = secrets.token_hex(ROW_BYTES // 2)
        said = Message(
            group(where), f"telegram:{number}", str(number), Author(person, "Name"), text, at, origin=Origin.PERSON
        )
        yield said.key, keys[where], f"telegram:{person}", said.dump(), at, at


def fill(path: Path, gigabytes: float, keys: list[str]) -> None:
    """Fill the inbox up to a size."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA synchronous=OFF")
        rows = messages(int(gigabytes * 1e9 / ROW_ON_DISK), keys)
        while batch := [row for row, _ in zip(rows, range(FILL_ROWS), strict=False)]:
            with database:
                database.executemany(INSERT, batch)
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("rb") as file:
        os.fsync(file.fileno())  # else the first one of the service writes a gigabyte


async def measure(name: str, store: Database, work: Awaitable[object]) -> None:
    """Print how long transactions of others took while `work` ran."""
    waits: list[float] = []

    async def transact(number: int) -> None:
        begun = time.perf_counter()
        await store.run(lambda execute: enqueue_job(execute, key=f"other:{number % 50}", kind="other", payload={}))
        waits.append((time.perf_counter() - begun) * 1000)

    begun, task = time.perf_counter(), asyncio.ensure_future(work)
    others: list[asyncio.Task[None]] = []
    while not task.done():
        others.append(asyncio.create_task(transact(len(others))))
        await asyncio.sleep(EVERY_SECONDS)
    await asyncio.gather(task, *others)
    seconds, ordered = time.perf_counter() - begun, sorted(waits)
    p99 = ordered[int(len(ordered) * 0.99)]
    print(f"{name}: {seconds:.1f} s, {len(waits)} transactions, p99 {p99:.1f} ms, longest {ordered[-1]:.1f} ms")


def delete_rows(execute: Execute, until: int, *, limit: int) -> int:
    """Delete some of the oldest rows as retention does; return how many."""
    values = {"until": until, "limit": limit}
    sql = "DELETE FROM inbox WHERE id IN (SELECT id FROM inbox WHERE id<=:until LIMIT :limit) RETURNING 1"
    return len(execute(sql, values))


async def run(folder: Path, gigabytes: float) -> None:
    """Measure in a new folder."""
    path = folder / "fawn.db"
    migrate_database(path)

    def converse(execute: Execute) -> list[str]:
        return [conversations.current_conversation(execute, group(number), time.time()) for number in range(SHARED)]

    async with Database(path) as store:
        keys = await store.run(converse)
    await asyncio.to_thread(fill, path, gigabytes, keys)
    current, folders = Current(Config(folder)), ConversationFolders(folder / "threads", 16)

    async def forget_checkpoint(_: str) -> None:
        """There are none: the figures are of the store."""

    async with Database(path) as store:
        cleaner = ConversationCleaner(folder, FilesOnlyProvider(folder / "skills"), folders, forget_checkpoint)
        jobs = ForgetJobs(store, current, cleaner, lambda _run, _by: None, lambda _command: False, gather_personal())
        given = b'{"channel":"telegram","person":"%s","chats":[],"tell":"","by":""}' % PERSON.encode()
        left = "SELECT count(*) AS n FROM inbox WHERE author=:author"
        who = {"author": f"telegram:{PERSON}"}
        before = (await store.run(lambda execute: execute(left, who)))[0]["n"]
        print(f"{await store.size() / 1e9:.2f} GB, {before} messages of the person in {SHARED} conversations")
        await measure("idle", store, asyncio.sleep(IDLE_SECONDS))
        job = BackgroundJob("forget", "forget", 0.0, given, 1, "", "")
        await measure("forget", store, jobs.forget_person(job))
        after = (await store.run(lambda execute: execute(left, who)))[0]["n"]
        print(f"messages of the person that are left: {after}")
        await measure("overwrite", store, store.overwrite_deleted())
        rows = int(gigabytes * 1e9 / ROW_ON_DISK / 5)
        delete = partial(delete_rows, until=rows)
        await measure("retention of a fifth", store, store.run_steps(delete))
        print(f"{await store.size() / 1e6:.0f} MB")
        await measure("free pages", store, store.free_pages())
        print(f"{await store.size() / 1e6:.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=1.0)
    parser.add_argument("--folder", type=Path, default=None, help="where the database is made")
    arguments = parser.parse_args()
    print(f"load average: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        uvloop.run(run(Path(folder), arguments.gb))


if __name__ == "__main__":
    main()
