"""Measure whole journeys of messages a second: SQLite, and PostgreSQL with 1, 2 and 4 processes, in turns.

`python -m bench journeys`. A journey: a message is stored and deduplicated, its conversation claimed, its run ended
with a row of the outbox, that row delivered; each end is in the audit. The server runs on the same machine, with fsync.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agent.messages import Author, Message, Origin, Thread
from bench.harness import Row, World, show
from bench.journey import CALLERS, CHATS, LONGEST, deliver, finish
from bot.config.schema import AccessConfig
from bot.journey import claims
from bot.journey.claimed_run import RunEnding
from bot.journey.claimed_store import ClaimLost
from bot.storage import replicas
from bot.storage.database import Database
from bot.storage.migrate import migrate_database
from bot.storage.outbox import Holder
from bot.storage.replicas import ReplicaRow
from bot.storage.states import RunState
from tests.support.current_config import OPEN_ACCESS, current_of
from tests.support.idle_turns import IDLE_TURNS
from tests.support.postgres import PostgresServer, postgres_server, sql_on_server
from tests.support.reception import open_inbox

WARM_SECONDS, SECONDS, ROUNDS, FULL_ROUNDS = 1.5, 5.0, 1, 3
PROCESSES = (1, 2, 4)
GOALS = {1: 0.3, 2: 0.5, 4: 0.8}  # times SQLite
DURABLE = "listen_addresses= shared_buffers=128MB max_connections=40 jit=off"
ENDING = RunEnding(RunState.DONE, title="t")
TWICE = "SELECT count(*) FROM (SELECT run FROM outbox GROUP BY run HAVING count(*)>1) AS twice"


@dataclass(slots=True)
class Journeys:
    """What the callers of one process did."""

    runs: int = 0
    lost: int = 0  # claims that another process had meanwhile
    cpu: float = 0.0


def open_journeys(target: str) -> Database:
    """Open a database: a file, or a PostgreSQL database that several processes share."""
    if "://" not in target:
        return Database(Path(target))
    from bot.storage.postgres import DatabaseServer, PostgresDatabase

    return PostgresDatabase(DatabaseServer(target, shared=True))


async def register(store: Database) -> None:
    """Give this process a lease."""
    row = ReplicaRow(store.me, "bench", replicas.ALONE, time.time(), "0", "")
    await store.run(lambda execute: replicas.register(execute, row, alone=not store.is_shared))


async def travel(store: Database, seconds: float, found: Journeys) -> None:
    """Have messages travel for some seconds, with as many callers as a busy service has."""
    inbox = open_inbox(store, current_of(slack=AccessConfig(open=True)), IDLE_TURNS)
    stop, holder = time.monotonic() + seconds, Holder(store.me, store.is_shared)

    async def call(number: int) -> None:
        dice, count = random.Random(f"{store.me}{number}"), 0
        while time.monotonic() < stop:
            count += 1
            chat = dice.randrange(CHATS)
            thread = Thread("slack", "T1", f"C{chat}")
            key = f"{thread}:{store.me}-{number}-{seconds}-{count}"
            words, author = "do this " * 12, Author(f"U{chat}", "Ann")
            message = Message(thread, key, key, author, words, time.time(), private=True, origin=Origin.PERSON)
            await inbox.receive([message])
            jobs = await store.run(
                lambda execute: claims.claim_conversations(execute, OPEN_ACCESS, store.me, time.time(), LONGEST, 2),
                durable=False,
            )
            for job in jobs:
                try:
                    items = await store.run(partial(finish, job=job, holder=holder, ending=ENDING))
                except ClaimLost:
                    found.lost += 1
                    continue
                for item in items:
                    await store.run(partial(deliver, item=item))
                found.runs += 1

    async with asyncio.TaskGroup() as group:
        for number in range(CALLERS):
            group.create_task(call(number), name=f"caller {number}")


async def _work(target: str, seconds: float) -> None:
    """Be one of the processes: warm up, wait for a line, measure, print what was found."""
    async with open_journeys(target) as store:
        await register(store)
        await travel(store, WARM_SECONDS, Journeys())
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        found, used = Journeys(), time.process_time()
        await travel(store, seconds, found)
        print(json.dumps({"runs": found.runs, "lost": found.lost, "cpu": time.process_time() - used}), flush=True)


async def measure(target: str, processes: int, seconds: float) -> Journeys:
    """Let so many processes work on a database at once; return the sum."""
    program = (sys.executable, "-m", "bench.journeys", target, str(seconds))
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    workers = [await asyncio.create_subprocess_exec(*program, **pipes) for _ in range(processes)]  # type: ignore[arg-type]  # a mapping of options
    for worker in workers:
        assert worker.stdout
        assert await worker.stdout.readline() == b"ready\n"
    told = await asyncio.gather(*(worker.communicate(b"go\n") for worker in workers))
    each = [Journeys(**json.loads(out)) for out, _errors in told]
    return Journeys(*(sum(getattr(one, name) for one in each) for name in Journeys.__slots__))


async def measure_on_server(server: PostgresServer, name: str, processes: int) -> tuple[Journeys, int]:
    """Measure in a database of its own; return also how many runs have more than one answer."""
    from bot.storage.postgres_session import reading

    sql_on_server(server, f"CREATE DATABASE {name}")
    target = server.url.format(name)
    found = await measure(target, processes, SECONDS)
    with reading(target, snapshot=True) as execute:
        return found, int(execute(TWICE, {})[0][0])


async def run(_world: World, full: bool = False) -> list[Row]:
    """Measure both in turns, so that what else the machine does meets both."""
    plain: list[float] = []
    shared: dict[int, list[float]] = {processes: [] for processes in PROCESSES}
    twice = lost = 0
    with tempfile.TemporaryDirectory(prefix="fawn-journeys-") as folder, postgres_server(DURABLE) as server:
        for number in range(FULL_ROUNDS if full else ROUNDS):
            path = Path(folder) / f"{number}.db"
            migrate_database(path)
            plain.append((await measure(str(path), 1, SECONDS)).runs / SECONDS)
            for processes in PROCESSES:
                found, doubled = await measure_on_server(server, f"j{number}_{processes}", processes)
                shared[processes].append(found.runs / SECONDS)
                twice, lost = twice + doubled, lost + found.lost
    load = f"load {os.getloadavg()[0]:.0f}"
    base = statistics.median(plain)
    rows = [Row("journeys a second, SQLite", base, "/s", note=f"{CALLERS} callers, {load}")]
    for processes, figures in shared.items():
        ratios = statistics.median(each / one for each, one in zip(figures, plain, strict=True))
        name, note = f"… PostgreSQL, {processes} processes", f"{ratios:.2f} × SQLite, goal {GOALS[processes]}"
        rows.append(Row(name, statistics.median(figures), "/s", note=note))
    rows.append(Row("runs with two answers", twice, "", goal=0, note=f"{lost} claims lost"))
    show("Journeys", rows)
    return rows


if __name__ == "__main__":
    asyncio.run(_work(sys.argv[1], float(sys.argv[2])))
