"""Serve each conversation in order, conversations side by side, as many at once as the limit says; stop one turn."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Sequence

from agent.conversation import Kind, Message, Notice, Thread
from bot import lease
from bot.config import Limits
from bot.lease import TTL, Job
from bot.mail import Live
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

    def wake(self, accepted: Sequence[tuple[str, Message]] = ()) -> None:
        """Something was stored; a turn that already works on that conversation hears of it."""
        for conversation, message in accepted:
            if message.kind is Kind.CHAT and (live := self._live.get(conversation)):
                live.heard(message)
        self._wake.set()

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
                while True:
                    self._wake.clear()
                    await self._round(group)
                    try:
                        async with asyncio.timeout(LOOK if self._live else 5 * LOOK):
                            await self._wait()
                    except TimeoutError:
                        pass
        finally:
            self._closing = True

    async def _round(self, group: asyncio.TaskGroup) -> None:
        now = time.time()
        free = 0 if self._closing else self._limits.live_turns - len(self._live)
        try:
            jobs, self._ready = await self._store.run(lambda execute: _look(execute, self._owner, now, free))
            if free <= 0:
                await self._tell_waiting(now)
            if time.monotonic() - self._renewed > TTL / 3:
                if self._live:
                    await self._store.run(lambda execute: lease.renew(execute, self._owner, time.time()))
                self._renewed = time.monotonic()
        except StoreError as error:
            log.error("threads.store reason=%s", error)  # noqa: TRY400 — the reason is enough
            self._give_up_lost_leases()
            return
        for job in jobs:
            self._begin(job, group)

    def _give_up_lost_leases(self) -> None:
        if time.monotonic() - self._renewed > TTL * 2 / 3:
            for live in self._live.values():
                live.park()

    async def _wait(self) -> None:
        """Until woken, or until a message that waits for its time is ready."""
        if self._ready is None or len(self._live) >= self._limits.live_turns:
            await self._wake.wait()
            return
        try:
            async with asyncio.timeout(max(0.0, self._ready - time.time()) + 0.002):
                await self._wake.wait()
        except TimeoutError:
            return

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


def _look(execute: Execute, owner: str, now: float, free: int) -> tuple[list[Job], float | None]:
    """Claim what there is a place for; and when the next conversation that nobody has is ready."""
    jobs = lease.claim(execute, owner, now, free) if free > 0 else []
    rows = execute("SELECT min(ready) AS ready FROM conversations WHERE pending>0 AND owner IS NULL", {})
    return jobs, rows[0]["ready"]


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
