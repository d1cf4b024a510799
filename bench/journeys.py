"""Measure journeys of messages through the store a second: SQLite, and PostgreSQL with 1, 2 and 4 processes, in turns.

`python -m bench journeys`; `python -m bench.journeys --list` prints the statements of one. A journey, without model and
platform: `Inbox.receive` stores a message and claims its conversation; `finish_run` ends its run, with the reply's row
of the outbox; that row is delivered. Each is in the audit. A conversation that another process works on is claimed by
a later look. The server runs on the same machine, with fsync. It prints the CPU of a journey: of the processes, and of
the server's process behind the connection of each. Where procrastinate is installed, its jobs are measured beside them
(`procrastinate_jobs.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from agent.blocks import Final
from agent.messages import Author, Message, Origin, Thread
from bench import procrastinate_jobs
from bench.harness import Row, World, show
from bot.config.schema import AccessConfig, ServiceLimits
from bot.database import audit, replicas
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Database, Execute
from bot.database.migrate import migrate_database
from bot.database.replicas import ReplicaRow
from bot.database.states import OutboxKind, OutboxState, RunState
from bot.journey import claims
from bot.journey.claimed_store import ClaimLost
from bot.journey.inbox import longest_wait
from bot.rights.claimed_run import ClaimedRun, RunEnding
from bot.storage import outbox
from bot.storage.outbox import Holder, OutboxItem
from tests.support.current_config import OPEN_ACCESS, current_of
from tests.support.postgres import PostgresServer, postgres_server, sql_on_server
from tests.support.reception import open_inbox

WARM_SECONDS, SECONDS, ROUNDS, FULL_ROUNDS = 1.5, 5.0, 1, 3
PROCESSES = (1, 2, 4)
GOALS = {1: 0.3, 2: 0.5, 4: 0.8}  # times SQLite
CHATS, CALLERS = 2_000, 32
LONGEST = longest_wait(ServiceLimits())
PLAIN = RunEnding(RunState.DONE, title="t", has_ledger=False, has_steps=False)  # of a turn without tools
DURABLE = "listen_addresses= shared_buffers=128MB max_connections=100 jit=off"
TWICE = "SELECT count(*) FROM (SELECT run FROM outbox GROUP BY run HAVING count(*)>1) AS twice"


@dataclass(slots=True)
class Found:
    """What the callers of one process did, or of several."""

    runs: int = 0
    lost: int = 0  # claims that another process had meanwhile
    commits: int = 0
    cpu: float = 0.0
    server_cpu: float = 0.0

    @property
    def costs(self) -> str:
        """What a journey costs."""
        own, server = (each / max(self.runs, 1) * 1e3 for each in (self.cpu, self.server_cpu))
        return f"CPU {own:.2f} + {server:.2f} ms, {self.commits / max(self.runs, 1):.2f} commits"


class Places:
    """Turns of which a place is always free; what was claimed is handed to who sent the message."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self.claimed: dict[str, ClaimedRun] = {}  # key of the message → its run

    @contextmanager
    def reserve_places(self, wanted: int) -> Iterator[int]:
        """See `bot.journey.inbox.Turns`."""
        yield wanted

    def claim_at_once(self, execute: Execute, conversation: str, now: float) -> ClaimedRun | None:
        """See `bot.journey.inbox.Turns`."""
        return claims.claim_at_once(execute, OPEN_ACCESS, conversation, self._owner, now, LONGEST)

    def arrived(self, accepted: Sequence[tuple[str, Message]], claimed: Sequence[ClaimedRun]) -> None:
        """See `bot.journey.inbox.Turns`."""
        sent = {message.key for _conversation, message in accepted}
        for job in claimed:
            self.claimed[next(message.key for message in job.messages if message.key in sent)] = job

    def stop_run(self, run: int, by: str) -> None:
        """See `bot.journey.inbox.Turns`."""


def finish(execute: Execute, job: ClaimedRun, holder: Holder, ending: RunEnding) -> list[OutboxItem]:
    """End a turn with its reply."""
    now, payload = time.time(), Final("done").dump()
    claims.finish_run(execute, job, ending, now)
    return outbox.enqueue_claimed(execute, holder, job.run, OutboxKind.REPLY, f"run:{job.run}", payload, now)


def deliver(execute: Execute, item: OutboxItem) -> None:
    """Record that a reply was delivered."""
    outbox.end_row(execute, item.id, OutboxState.SENT, "")
    what: Mapping[str, int | str] = {"id": item.id, "kind": item.kind}
    audit.record(execute, AuditEvent(AuditKind.DELIVERY, item.thread, run=item.run, what=what, result="sent"))


def open_journeys(target: str, *, shared: bool = True) -> Database:
    """Open a database: a file, or a PostgreSQL database, which several processes may share."""
    if "://" not in target:
        return Database(Path(target))
    from bot.database.postgres import DatabaseServer, PostgresDatabase

    return PostgresDatabase(DatabaseServer(target, shared=shared))


async def register(store: Database) -> None:
    """Give this process a lease."""
    row = ReplicaRow(store.me, "bench", replicas.ALONE, time.time(), "0", "")
    await store.run(lambda execute: replicas.register(execute, row, alone=not store.is_shared))


class Travel:
    """Messages that travel through the store of one process."""

    def __init__(self, store: Database, found: Found) -> None:
        self._store, self._found = store, found
        self._places = Places(store.me)
        self._inbox = open_inbox(store, current_of(slack=AccessConfig(open=True)), self._places, features=())
        self._holder = Holder(store.me, store.is_shared)

    async def run(self, seconds: float, callers: int = CALLERS) -> None:
        """Send for some seconds, each caller the next message after the last was answered."""
        stop = time.monotonic() + seconds

        async def call(number: int) -> None:
            dice, count = random.Random(f"{self._store.me}{number}"), 0
            while time.monotonic() < stop:
                count += 1
                await self.go(dice.randrange(CHATS), f"{self._store.me}-{number}-{seconds}-{count}")

        async with asyncio.TaskGroup() as group:
            for number in range(callers):
                group.create_task(call(number), name=f"caller {number}")

    async def go(self, chat: int, name: str) -> None:
        """Send one message, and see it through, or another one that waits."""
        thread = Thread("slack", "T1", f"C{chat}")
        text = "do this with the report of last week and say what is open " * 2
        author, key = Author(f"U{chat}", "Ann"), f"{thread}:{name}"
        message = Message(thread, key, name, author, text, time.time(), private=True, origin=Origin.PERSON)
        await self._inbox.receive([message])
        claimed = self._places.claimed.pop(key, None)
        for job in [claimed] if claimed else await self._look():
            try:
                items = await self._store.run(partial(finish, job=job, holder=self._holder, ending=PLAIN))
            except ClaimLost:
                self._found.lost += 1
                continue
            for item in items:
                await self._store.run(partial(deliver, item=item))
            self._found.runs += 1

    async def _look(self) -> list[ClaimedRun]:
        me = self._store.me
        return await self._store.run(
            lambda execute: claims.claim_conversations(execute, OPEN_ACCESS, me, time.time(), LONGEST, 2), durable=False
        )


def server_cpu(store: Database) -> Callable[[], float]:
    """Return what tells the CPU seconds of the server's process, where it runs on this machine."""
    connection = getattr(getattr(store, "_connection", None), "_connection", None)
    session: Any = getattr(connection, "_connection", None)  # of `PostgresConnection`
    place = Path(f"/proc/{session.info.backend_pid}/stat") if hasattr(session, "info") else Path()

    def spent() -> float:
        if not place.is_file():
            return 0.0
        fields = place.read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    return spent


class CountedStore:
    """A store that counts the statements of its units of work."""

    is_shared = False

    def __init__(self, store: Database) -> None:
        self._store, self.me, self.asked = store, store.me, Counter[str]()

    async def run(self, work: Callable[[Execute], Any], **options: Any) -> Any:
        """See `Database.run`."""

        def counted(execute: Execute) -> Any:
            def noted(sql: str, values: Mapping[str, Any] = {}) -> Sequence[Any]:
                self.asked[sql] += 1
                return execute(sql, values)

            return work(noted)

        return await self._store.run(counted, **options)


async def list_statements() -> None:
    """Print the statements of one journey in a chat that has had one."""
    with tempfile.TemporaryDirectory(prefix="fawn-journeys-") as folder:
        path = Path(folder) / "fawn.db"
        migrate_database(path)
        async with Database(path) as store:
            counted: Any = CountedStore(store)
            travel = Travel(counted, Found())
            await travel.go(0, "first")
            counted.asked.clear()
            await travel.go(0, "second")
    print(*(f"{count:3} {' '.join(sql.split())}" for sql, count in counted.asked.most_common()), sep="\n")
    print(f"{counted.asked.total()} statements")


async def _work(target: str, seconds: float, shared: bool) -> None:
    """Be one of the processes: warm up, wait for a line, measure, print what was found."""
    logging.disable(logging.INFO)
    async with open_journeys(target, shared=shared) as store:
        await register(store)
        await Travel(store, Found()).run(WARM_SECONDS)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        found, spent = Found(), server_cpu(store)
        used, elsewhere, commits = time.process_time(), spent(), store.commits
        await Travel(store, found).run(seconds)
        found.cpu, found.server_cpu = time.process_time() - used, spent() - elsewhere
        found.commits = store.commits - commits
        print(json.dumps([getattr(found, name) for name in Found.__slots__]), flush=True)


async def measure(target: str, processes: int, seconds: float) -> Found:
    """Let so many processes work on a database at once; return the sum."""
    shared = ["--shared"] if processes > 1 else []
    return await _run_all(["bench.journeys", "--work", target, "--seconds", str(seconds), *shared], processes)


async def measure_jobs(target: str, processes: int, seconds: float) -> Found:
    """Let so many processes do jobs of procrastinate on a database at once; return the sum."""
    await procrastinate_jobs.prepare(target)
    options = {"seconds": seconds, "warm": WARM_SECONDS, "callers": CALLERS, "processes": processes}
    named = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return await _run_all(["bench.procrastinate_jobs", "--work", target, *named], processes)


async def _run_all(arguments: Sequence[str], processes: int) -> Found:
    program = (sys.executable, "-m", *arguments)
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    workers = [await asyncio.create_subprocess_exec(*program, **pipes) for _ in range(processes)]  # type: ignore[arg-type]  # a mapping of options
    for worker in workers:
        assert worker.stdout
        assert await worker.stdout.readline() == b"ready\n"
    told = await asyncio.gather(*(worker.communicate(b"go\n") for worker in workers))
    return Found(*map(sum, zip(*(json.loads(out) for out, _errors in told), strict=True)))


async def measure_on_server(server: PostgresServer, name: str, processes: int) -> tuple[Found, int]:
    """Measure in a database of its own; return also how many runs have more than one answer."""
    from bot.database.postgres_session import reading

    sql_on_server(server, f"CREATE DATABASE {name}")
    target = server.url.format(name)
    found = await measure(target, processes, SECONDS)
    with reading(target, snapshot=True) as execute:
        return found, int(execute(TWICE, {})[0][0])


async def measure_jobs_on_server(server: PostgresServer, name: str, processes: int) -> Found:
    """Measure procrastinate in a database of its own."""
    sql_on_server(server, f"CREATE DATABASE {name}")
    return await measure_jobs(server.url.format(name), processes, SECONDS)


async def run(_world: World, full: bool = False) -> list[Row]:
    """Measure both in turns, so that what else the machine does meets both."""
    plain: list[Found] = []
    shared: dict[int, list[Found]] = {processes: [] for processes in PROCESSES}
    jobs: dict[int, list[Found]] = {processes: [] for processes in PROCESSES}
    version = procrastinate_jobs.version()
    twice = 0
    with tempfile.TemporaryDirectory(prefix="fawn-journeys-") as folder, postgres_server(DURABLE) as server:
        for number in range(FULL_ROUNDS if full else ROUNDS):
            path = Path(folder) / f"{number}.db"
            migrate_database(path)
            plain.append(await measure(str(path), 1, SECONDS))
            for processes in PROCESSES:
                found, doubled = await measure_on_server(server, f"j{number}_{processes}", processes)
                shared[processes].append(found)
                twice += doubled
                if version:
                    jobs[processes].append(await measure_jobs_on_server(server, f"p{number}_{processes}", processes))
    base = statistics.median(each.runs for each in plain) / SECONDS
    note = f"{CALLERS} callers, load {os.getloadavg()[0]:.0f}; {plain[-1].costs}"
    rows = [Row("journeys a second, SQLite", base, "/s", note=note)]
    for processes, figures in shared.items():
        ratio = statistics.median(each.runs / one.runs for each, one in zip(figures, plain, strict=True))
        name, rate = f"… PostgreSQL, {processes} processes", statistics.median(each.runs for each in figures) / SECONDS
        rows.append(Row(name, rate, "/s", note=figures[-1].costs))
        rows.append(Row(f"{name}, as many as SQLite's", ratio, "×", goal=GOALS[processes], at_least=True))
    for processes, figures in jobs.items() if version else ():
        ratio = statistics.median(
            each.runs / job.runs for each, job in zip(shared[processes], figures, strict=True) if job.runs
        )
        rate = statistics.median(each.runs for each in figures) / SECONDS
        note = f"journeys are {ratio:.2f} × as many; {figures[-1].costs}"
        rows.append(Row(f"jobs of procrastinate {version}, {processes} processes", rate, "/s", note=note))
    lost = sum(each.lost for figures in shared.values() for each in figures)
    rows.append(Row("runs with two answers", twice, "", goal=0, note=f"{lost} claims lost"))
    show("Journeys", rows)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.journeys", description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the statements of a journey")
    parser.add_argument("--work", default="", metavar="TARGET", help="be one of the processes (of `measure`)")
    parser.add_argument("--shared", action="store_true", help="be one of several")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    given = parser.parse_args()
    asyncio.run(_work(given.work, given.seconds, given.shared) if given.work else list_statements())
