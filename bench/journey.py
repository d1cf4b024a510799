"""Journeys of messages through the store a second, without model and platform: stored and claimed, ended, delivered.

`python -m bench.journey` measures SQLite, `--postgresql URL` a database of its own on that server. Each journey is 3
units of work with three rows of the audit: `Inbox.receive`, which claims in the same transaction; `finish_run` with the
reply's row of the outbox; the end of that row. `--alone` sends one message at a time; otherwise 32 do. It prints
statements and CPU of a journey: of this process, and of the server's process behind its connection.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from agent.blocks import Final
from agent.messages import Author, Message, Origin, Thread
from bench.stores import empty_store
from bot.config.schema import AccessConfig, ServiceLimits
from bot.journey import claims
from bot.journey.claimed_run import ClaimedRun, RunEnding
from bot.journey.inbox import longest_wait
from bot.storage import audit, outbox
from bot.storage.audit import AuditEvent, AuditKind
from bot.storage.database import Database, Execute
from bot.storage.outbox import Holder, OutboxItem
from bot.storage.states import OutboxKind, OutboxState, RunState
from tests.support.current_config import OPEN_ACCESS, current_of
from tests.support.reception import open_inbox

CHATS, CALLERS = 2_000, 32
OWNER = "bench"
LONGEST = longest_wait(ServiceLimits())
PLAIN = RunEnding(RunState.DONE, title="t", has_ledger=False, has_steps=False)  # of a turn without tools


class Places:
    """Turns of which a place is always free; what was claimed is handed to who sent the message."""

    def __init__(self) -> None:
        self.claimed: dict[str, ClaimedRun] = {}  # key of the message → its run

    @contextmanager
    def reserve_places(self, wanted: int) -> Iterator[int]:
        """See `bot.journey.inbox.Turns`."""
        yield wanted

    def claim_at_once(self, execute: Execute, conversation: str, now: float) -> ClaimedRun | None:
        """See `bot.journey.inbox.Turns`."""
        return claims.claim_at_once(execute, OPEN_ACCESS, conversation, OWNER, now, LONGEST)

    def arrived(self, accepted: Sequence[tuple[str, Message]], claimed: Sequence[ClaimedRun]) -> None:
        """See `bot.journey.inbox.Turns`."""
        self.claimed |= {message.key: job for job in claimed for message in job.messages}

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


class Journeys:
    """Callers that send messages from many chats, each the next one after the last was answered."""

    def __init__(self, store: Database, name: str, callers: int) -> None:
        self._store, self._name, self._callers = store, name, callers
        self._places = Places()
        self._inbox = open_inbox(store, current_of(slack=AccessConfig(open=True)), self._places, features=())
        self.count = 0

    async def run(self, seconds: float) -> None:
        """Send for so long."""
        until = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            for number in range(self._callers):
                group.create_task(self._call(number, until))

    async def _call(self, number: int, until: float) -> None:
        chance = random.Random(f"{self._name}{number}")
        own = range(number, CHATS, self._callers)
        sent = 0
        while time.monotonic() < until:
            sent += 1
            await self.go(chance.choice(own), f"{self._name}-{number}-{sent}")

    async def go(self, chat: int, name: str) -> None:
        """Send one message, and see it through."""
        thread = Thread("slack", "T1", f"C{chat}")
        text = "do this with the report of last week and say what is open " * 2
        author, key = Author(f"U{chat}", "Ann"), f"{thread}:{name}"
        message = Message(thread, key, name, author, text, time.time(), private=True, origin=Origin.PERSON)
        await self._inbox.receive([message])
        job = self._places.claimed.pop(message.key)
        for item in await self._store.run(partial(finish, job=job, holder=Holder(OWNER), ending=PLAIN)):
            await self._store.run(partial(deliver, item=item))
        self.count += 1


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


async def count_statements(store: Database) -> Counter[str]:
    """Return the statements of one journey in a chat that has had one."""
    asked: Counter[str] = Counter()

    def counted(work: Callable[[Execute], Any]) -> Callable[[Execute], Any]:
        def run(execute: Execute) -> Any:
            def noted(sql: str, values: Mapping[str, Any] = {}) -> Sequence[Any]:
                asked[sql] += 1
                return execute(sql, values)

            return work(noted)

        return run

    class Counted:
        is_shared = store.is_shared

        async def run(self, work: Callable[[Execute], Any], **options: Any) -> Any:
            return await store.run(counted(work), **options)

    counting: Any = Counted()
    journeys = Journeys(counting, "counted", 1)
    await journeys.go(0, "first")
    asked.clear()
    await journeys.go(0, "second")
    return asked


async def measure(server: str, seconds: float, callers: int, listed: bool) -> None:
    """Print the figures."""
    async with empty_store(server) as store:
        asked = await count_statements(store)
        if listed:
            print("\n".join(f"{count:3} {' '.join(sql.split())}" for sql, count in asked.most_common()))
        await Journeys(store, "warm", callers).run(min(2.0, seconds))
        spent = server_cpu(store)
        journeys = Journeys(store, "run", callers)
        began, used, elsewhere, commits = time.monotonic(), time.process_time(), spent(), store.commits
        await journeys.run(seconds)
        took, count = time.monotonic() - began, journeys.count
        print(
            f"{'PostgreSQL' if server else 'SQLite':10} {callers:2} callers  {count / took:7.0f} journeys/s"
            f"  CPU {(time.process_time() - used) / count * 1e3:.2f} ms"
            f"  server {(spent() - elsewhere) / count * 1e3:.2f} ms"
            f"  {sum(asked.values())} statements  {(store.commits - commits) / count:.2f} commits"
            f"  load {os.getloadavg()[0]:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.journey", description=__doc__)
    parser.add_argument("--postgresql", default="", help="URL of a database on a server where others can be made")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--alone", action="store_true", help="one message at a time")
    parser.add_argument("--list", action="store_true", help="print the statements of a journey")
    given = parser.parse_args()
    logging.disable(logging.INFO)
    asyncio.run(measure(given.postgresql, given.seconds, 1 if given.alone else CALLERS, given.list))
