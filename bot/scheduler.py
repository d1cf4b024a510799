"""Claim conversations that have work and run their turns, up to the limit; stop one turn."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import time
from collections.abc import Sequence

from agent.blocks import Notice
from agent.messages import Kind, Message, Thread
from bot import inbox
from bot.background import run_forever
from bot.config.schema import ServiceLimits
from bot.running_turn import RunningTurn
from bot.storage import runs
from bot.storage.database import Database, Execute
from bot.storage.runs import ClaimedRun
from bot.turn_runner import TurnRunner
from channels.base import Reply
from channels.shared.background import BackgroundTasks

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0  # seconds between looks without a wake-up
QUEUE_NOTICE_SECONDS = 1.5  # seconds somebody waits for a free place before they are told


class Scheduler:
    """The dispatcher: claims conversations that have work and runs their turns."""

    def __init__(self, store: Database, limits: ServiceLimits) -> None:
        self._store = store
        self._turns: TurnRunner
        self._limits = limits
        self._longest_wait = inbox.longest_wait(limits)
        self._owner = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._live: dict[str, RunningTurn] = {}  # conversation → its latest turn
        self._queued: dict[str, Reply] = {}  # conversations that wait for a place and were told so
        self._wake = asyncio.Event()
        self._closing = False
        self._tasks = BackgroundTasks()
        self._ready: float | None = None  # when something that waits for its time may be taken

    # ------------------------------------------------------------ what others see

    @property
    def running_turns(self) -> Sequence[RunningTurn]:
        """The turns that are going on."""
        return tuple(self._live.values())

    def at(self, thread: Thread) -> list[RunningTurn]:
        """The turns going on at an address (also in its older conversations)."""
        return [live for live in self._live.values() if live.job.thread == thread]

    def wake(self) -> None:
        """There may be something to take."""
        self._wake.set()

    def arrived(self, accepted: Sequence[tuple[str, Message]]) -> None:
        """Messages were stored. A turn that works on their conversation hears of it."""
        self._wake.set()
        for conversation, message in accepted:
            if message.kind is Kind.CHAT and (live := self._live.get(conversation)):
                live.message_arrived(message)

    def stop_run(self, run: int, by: str) -> None:
        """Cancel a run's work now (that it is to stop is in the store already)."""
        for live in self._live.values():
            if live.job.run == run:
                live.stop(by)

    async def wait_until_idle(self) -> None:
        """Wait until nothing is going on and nothing waits that could."""
        while True:
            if works := self._turn_tasks():
                await asyncio.wait(works)
            elif await self._store.run(_has_open_work):
                await asyncio.sleep(0.02)  # claimed in a moment, or when it is ready
            else:
                return

    def _turn_tasks(self) -> list[asyncio.Task[None]]:
        return [live.work for live in self._live.values() if live.work]

    # ------------------------------------------------------------ the loop

    async def serve(self, turns: TurnRunner) -> None:
        """Claim and run until cancelled; cancelled means: park what is going on."""
        self._turns = turns
        try:
            await run_forever("threads", self._claim_and_start)
        finally:
            self._closing = True
            await self._tasks.cancel()

    async def _claim_and_start(self) -> None:
        self._wake.clear()
        now = time.time()
        free = 0 if self._closing else max(0, self._limits.live_turns - len(self._live))
        jobs, self._ready = await self._store.run(lambda execute: self._look(execute, now, free))
        for job in jobs:
            self._start_turn(job)
        if len(self._live) >= self._limits.live_turns:
            await self._tell_waiting(now)
        await self._wait()

    def _look(self, execute: Execute, now: float, free: int) -> tuple[list[ClaimedRun], float | None]:
        """Claim what there is a place for; also gives when the next conversation that nobody has is ready."""
        jobs = runs.claim_conversations(execute, self._owner, now, self._longest_wait, free)
        rows = execute("SELECT min(ready) AS ready FROM conversations WHERE pending>0 AND owner IS NULL", {})
        return jobs, rows[0]["ready"]

    async def _wait(self) -> None:
        """Until woken, until a message that waits for its time is ready, or for a while."""
        seconds = LOOK_SECONDS if self._live else 5 * LOOK_SECONDS
        if self._ready is not None and len(self._live) < self._limits.live_turns:
            seconds = min(seconds, max(0.0, self._ready - time.time()) + 0.002)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    def _start_turn(self, job: ClaimedRun) -> None:
        queued = self._queued.pop(job.conversation) if job.conversation in self._queued else None
        live = RunningTurn(job, queued or self._turns.make_reply(job), has_unread=job.resumed)
        self._live[job.conversation] = live
        live.work = self._tasks.start(self._turns.run_turn(live), name=f"turn {job.run}")
        live.work.add_done_callback(lambda task: self._turn_ended(live))

    def _turn_ended(self, live: RunningTurn) -> None:
        full = len(self._live) >= self._limits.live_turns
        if self._live.get(live.job.conversation) is live:  # else the next turn of its conversation has begun already
            del self._live[live.job.conversation]
        if full or live.more:
            self._wake.set()

    async def _tell_waiting(self, now: float) -> None:
        """All places are taken: who waits for one sees it."""
        jobs = await self._store.run(
            lambda execute: runs.wait_in_line(execute, now, self._longest_wait, QUEUE_NOTICE_SECONDS)
        )
        for job in jobs:
            reply = self._queued[job.conversation] = self._turns.make_reply(job)
            place = len(self._queued)
            reply.show(
                Notice(
                    "queue",
                    f"I'm at capacity ({self._limits.live_turns} running tasks). You're number {place} in the queue.",
                )
            )

    # ------------------------------------------------------------ the end

    async def close(self, grace: float) -> None:
        """Take nothing new; let turns end for `grace` seconds, then park the rest (a restart goes on with them)."""
        self._closing = True
        if works := self._turn_tasks():
            await asyncio.wait(works, timeout=grace)
        parked = len(self._live)
        for live in self._live.values():
            live.suspend()
        if works := self._turn_tasks():
            await asyncio.wait(works, timeout=5.0)
        for reply in self._queued.values():
            await reply.close()
        log.info("threads.closed parked=%d", parked)


def _has_open_work(execute: Execute) -> bool:
    rows = execute("SELECT 1 FROM conversations WHERE pending>0 LIMIT 1", {})
    return bool(rows) or bool(execute("SELECT 1 FROM inbox WHERE state=0 AND kind='command' LIMIT 1", {}))
