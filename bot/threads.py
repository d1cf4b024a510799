"""Serve each conversation in order, conversations side by side, as many at once as the limit says; stop one turn."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import time
from collections.abc import Sequence

from agent.conversation import Kind, Message, Notice, Thread
from bot import lease
from bot.lease import TTL, Job
from bot.mail import Live
from bot.sections import Limits
from bot.store import Execute, Store, StoreError
from bot.turns import Turns
from channels.base import Reply

log = logging.getLogger(__name__)

LOOK = 1.0  # seconds between looks without a wake-up
QUEUE_NOTICE = 1.5  # seconds somebody waits for a free place before they are told


class Threads:
    """The dispatcher: claims conversations that have work and runs their turns."""

    def __init__(self, store: Store, turns: Turns, limits: Limits) -> None:
        self._store = store
        self._turns = turns
        self._limits = limits
        self._owner = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._live: dict[str, Live] = {}
        self._queued: dict[str, Reply] = {}  # conversations that wait for a place and were told so
        self._wake = asyncio.Event()
        self._closing = False
        self._group: asyncio.TaskGroup | None = None
        self._promised: set[int] = set()  # runs that are claimed and not begun yet
        self._ready: float | None = None  # when something that waits for its time may be taken
        self._renewed = time.monotonic()

    # ------------------------------------------------------------ what others see

    @property
    def live(self) -> Sequence[Live]:
        """The turns that are going on."""
        return tuple(self._live.values())

    def at(self, thread: Thread) -> list[Live]:
        """The turns going on at an address (also in its older conversations)."""
        return [live for live in self._live.values() if live.job.thread == thread]

    def wake(self) -> None:
        """There may be something to take."""
        self._wake.set()

    def arrived(self, accepted: Sequence[tuple[str, Message]], jobs: Sequence[Job]) -> None:
        """Messages were stored, and `jobs` claimed with them. A turn that works on their conversation hears of it."""
        for conversation, message in accepted:
            if message.kind is Kind.CHAT and (live := self._live.get(conversation)):
                live.heard(message)
        self.begin(jobs)
        if any(conversation not in self._live for conversation, _ in accepted):
            self._wake.set()

    def claim(self, execute: Execute, jobs: list[Job]) -> None:
        """Claim what is ready into `jobs`, on the database's thread, also in the transaction that stores it. After the
        commit `begin` them; when it failed, `let_go`."""
        free = self._limits.live_turns - len(self._live) - len(self._promised)
        if free > 0 and self._group and not self._closing:
            jobs += lease.claim(execute, self._owner, time.time(), free)
            self._promised |= {job.run for job in jobs}

    def begin(self, jobs: Sequence[Job]) -> None:
        """Start these runs."""
        for job in jobs:
            assert self._group  # noqa: S101 — `claim` gives nothing without it
            self._begin(job, self._group)
        self.let_go(jobs)

    def let_go(self, jobs: Sequence[Job]) -> None:
        """These claims are begun, or were not committed."""
        self._promised -= {job.run for job in jobs}

    def stop(self, run: int, by: str) -> None:
        """Cancel a run's work now (that it is to stop is in the store already)."""
        for live in self._live.values():
            if live.job.run == run:
                live.stop(by)

    async def idle(self) -> None:
        """Wait until nothing is going on and nothing waits that could."""
        while True:
            if works := self._works():
                await asyncio.wait(works)
            elif await self._store.run(_open):
                await asyncio.sleep(0.02)  # claimed in a moment, or when it is ready
            else:
                return

    def _works(self) -> list[asyncio.Task[None]]:
        return [live.work for live in self._live.values() if live.work]

    # ------------------------------------------------------------ the loop

    async def serve(self) -> None:
        """Claim and run until cancelled; cancelled means: park what is going on."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                while True:
                    self._wake.clear()
                    await self._round()
                    await self._wait()
        finally:
            self._closing = True
            self._group = None

    async def _round(self) -> None:
        now = time.time()
        jobs: list[Job] = []
        try:
            self._ready = await self._store.run(lambda execute: self._look(execute, jobs))
            if len(self._live) >= self._limits.live_turns:
                await self._tell_waiting(now)
            if time.monotonic() - self._renewed > TTL / 3:
                if self._live:
                    await self._store.run(lambda execute: lease.renew(execute, self._owner, time.time()))
                self._renewed = time.monotonic()
        except StoreError as error:
            log.error("threads.store reason=%s", error)  # noqa: TRY400 — the reason is enough
            self.let_go(jobs)
            self._give_up_lost_leases()
            return
        self.begin(jobs)

    def _look(self, execute: Execute, jobs: list[Job]) -> float | None:
        """Claim what there is a place for; gives when the next conversation that nobody has is ready."""
        self.claim(execute, jobs)
        rows = execute("SELECT min(ready) AS ready FROM conversations WHERE pending>0 AND owner IS NULL", {})
        ready: float | None = rows[0]["ready"]
        return ready

    def _give_up_lost_leases(self) -> None:
        if time.monotonic() - self._renewed > TTL * 2 / 3:
            for live in self._live.values():
                live.park()

    async def _wait(self) -> None:
        """Until woken, until a message that waits for its time is ready, or for a while."""
        seconds = LOOK if self._live else 5 * LOOK
        if self._ready is not None and len(self._live) < self._limits.live_turns:
            seconds = min(seconds, max(0.0, self._ready - time.time()) + 0.002)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    def _begin(self, job: Job, group: asyncio.TaskGroup) -> None:
        queued = self._queued.pop(job.conversation) if job.conversation in self._queued else None
        live = Live(job, queued or self._turns.reply(job), mail=job.resumed)
        self._live[job.conversation] = live
        live.work = group.create_task(self._turns.run(live), name=f"turn {job.run}")
        live.work.add_done_callback(lambda task: self._ended(live))

    def _ended(self, live: Live) -> None:
        full = len(self._live) >= self._limits.live_turns
        self._live.pop(live.job.conversation, None)
        if full or live.more:
            self._wake.set()

    async def _tell_waiting(self, now: float) -> None:
        """All places are taken: who waits for one sees it."""
        jobs = await self._store.run(lambda execute: _waiting(execute, now))
        for place, job in enumerate(jobs, 1):
            if job.conversation in self._queued:
                continue
            reply = self._queued[job.conversation] = self._turns.reply(job)
            reply.show(
                Notice("queue", f"All {self._limits.live_turns} places are taken; you are number {place} in line.")
            )

    # ------------------------------------------------------------ the end

    async def close(self, grace: float) -> None:
        """Take nothing new; let turns end for `grace` seconds, then park the rest (a restart goes on with them)."""
        self._closing = True
        if works := self._works():
            await asyncio.wait(works, timeout=grace)
        parked = len(self._live)
        for live in self._live.values():
            live.park()
        if works := self._works():
            await asyncio.wait(works, timeout=5.0)
        for reply in self._queued.values():
            await reply.close()
        log.info("threads.closed parked=%d", parked)


def _open(execute: Execute) -> bool:
    rows = execute("SELECT 1 FROM conversations WHERE pending>0 LIMIT 1", {})
    return bool(rows) or bool(execute("SELECT 1 FROM inbox WHERE state=0 AND kind='command' LIMIT 1", {}))


def _waiting(execute: Execute, now: float) -> list[Job]:
    """Runs, made in state `queued`, of the conversations that have waited long enough to be told."""
    rows = execute(
        "SELECT * FROM conversations WHERE pending>0 AND owner IS NULL AND ready<=:ready ORDER BY ready LIMIT 100",
        {"ready": now - QUEUE_NOTICE},
    )
    jobs = []
    for row in rows:
        taken = execute(
            "SELECT * FROM inbox WHERE conversation=:key AND run IS NULL AND state=0 AND kind='chat'"
            " ORDER BY id LIMIT 1",
            {"key": row["key"]},
        )
        if taken and row["state"] != "waiting":
            jobs.append(lease.start(execute, row, taken, "queued", now))
    return jobs
