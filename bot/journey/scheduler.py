"""Claim conversations that have work and run their turns, up to the limit."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from agent.blocks import Notice
from agent.messages import Message, Thread
from agent.spans import SpanKind, end_run, inside_run, open_span
from bot.base.background import run_forever
from bot.database import replicas
from bot.database.database import Database, Execute
from bot.database.states import ReplicaState
from bot.database.wake_ups import Written
from bot.journey import claims
from bot.journey.feed import SUSPENDED
from bot.journey.inbox import longest_wait
from bot.journey.running_turn import RunningTurn
from bot.journey.turn_runner import TurnRunner
from bot.rights.access import AccessPolicy
from bot.rights.claimed_run import ClaimedRun
from bot.rights.current import Current
from bot.storage import conversations, inbox, runs
from bot.storage.runs import SUSPICIOUS_INTERRUPTIONS
from catalogue import ngettext, use_language
from channels.base import Reply
from channels.shared.background import BackgroundTasks

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0  # between looks without a wake-up
ALONE_SECONDS, MAX_ALONE_SECONDS = 20.0, 600.0  # how long a suspect works alone: at its first such attempt, and at most
ALL_ALONE_SECONDS = 60.0  # …and all of them at their first, while new messages wait
SUSPECT_WAITS_SECONDS = 5.0  # for a process without turns, while others live
QUEUE_NOTICE_SECONDS = 1.5  # how long a message waits for a free place before its reply says so


class FoundWork(NamedTuple):
    """What a look at the conversations that wait has claimed and found."""

    jobs: Sequence[ClaimedRun]
    ready: float | None  # when the next unclaimed conversation is ready
    elsewhere: int  # turns at other processes
    has_suspect: bool  # another process may have died of a run that waits


class Scheduler:
    """Claims conversations that have work and runs their turns."""

    def __init__(self, store: Database, current: Current) -> None:
        self._store = store
        self._turns: TurnRunner
        self._current = current
        self._owner = store.me
        self._live: dict[str, RunningTurn] = {}  # conversation → its latest turn
        self._queued: dict[str, Reply] = {}  # queued conversation → the reply that says so
        self._wake = store.listen(Written.MESSAGE)
        self._open = False  # it serves, and claims
        self._has_suspects = True  # of the previous process; nothing else is claimed
        self._suspect_seen: float | None = None  # by time.monotonic(): one that another process may have died of
        self._is_known = not store.is_shared  # to others as one that claims its conversations
        self._reserved = 0  # places for conversations that are being claimed
        self._elsewhere = 0  # turns at other processes on the database, at the last look
        self._tasks = BackgroundTasks()
        self._ready: float | None = None  # when the next unclaimed conversation is ready
        self._followers: list[Callable[[RunningTurn], None]] = []

    # ------------------------------------------------------------ what others see

    @property
    def running_turns(self) -> Sequence[RunningTurn]:
        """The turns in progress."""
        return tuple(self._live.values())

    @property
    def is_busy(self) -> bool:
        """Whether there are turns in progress, or replies that say that they wait."""
        return bool(self._live or self._queued)

    async def leave_queue(self, conversations: Collection[str]) -> None:
        """Close the replies that say that these conversations wait: another process works in them now."""
        for key in [each for each in self._queued if each in conversations]:
            await self._queued.pop(key).close()

    def follow(self, follower: Callable[[RunningTurn], None]) -> None:
        """Call `follower` with each turn that begins."""
        self._followers.append(follower)

    def find(self, run: int) -> RunningTurn | None:
        """Return the turn of a run in progress."""
        return next((live for live in self._live.values() if live.job.run == run), None)

    def at(self, thread: Thread) -> list[RunningTurn]:
        """Return the turns at an address (also of its older conversations)."""
        return [live for live in self._live.values() if live.job.thread == thread]

    @property
    def _live_limit(self) -> int:
        return self._current.limits.live_turns

    @property
    def _free(self) -> int:
        """How many conversations may be claimed now."""
        return max(0, self._left - self._reserved) if self._open and not self._has_suspects else 0

    @property
    def _left(self) -> int:
        """How many turns may begin, of those that all processes on the database may have at once."""
        return self._left_beside(self._elsewhere)

    def _left_beside(self, elsewhere: int) -> int:
        return self._live_limit - len(self._live) - elsewhere

    def _count_elsewhere(self, execute: Execute) -> int:
        return conversations.count_others(execute, self._owner) if self._store.is_shared else 0

    @property
    def _longest_wait(self) -> float:
        return longest_wait(self._current.limits)

    # ------------------------------------------------------------ messages that are being stored

    @contextlib.contextmanager
    def reserve_places(self, wanted: int) -> Iterator[int]:
        """Keep up to `wanted` free places; none if a conversation waits for one. See `bot.journey.inbox.Turns`."""
        now = time.time()
        waits = self._ready is not None and not now < self._ready <= now + self._longest_wait
        with self._reserve(0 if waits else min(wanted, self._free)) as places:
            yield places
        if places and self._ready is not None:  # a look meanwhile left it for want of a place
            self._wake.set()

    @contextlib.contextmanager
    def _reserve(self, places: int) -> Iterator[int]:
        self._reserved += places
        try:
            yield places
        finally:
            self._reserved -= places

    def claim_at_once(self, execute: Execute, conversation: str, now: float) -> ClaimedRun | None:
        """Claim a conversation in the transaction that stores its message. None: it waits for the next look."""
        if self._store.is_shared and self._left_beside(self._count_elsewhere(execute)) <= 0:
            conversations.refresh_pending(execute, conversation)
            return None
        return claims.claim_at_once(execute, self._current.access, conversation, self._owner, now, self._longest_wait)

    def arrived(self, accepted: Sequence[tuple[str, Message]], claimed: Sequence[ClaimedRun]) -> None:
        """Begin the runs that were claimed with their messages; show the others to the turns of their conversations."""
        begun = {job.conversation for job in claimed}
        for conversation, message in accepted:
            if conversation not in begun and (live := self._live.get(conversation)):
                live.message_arrived(message)
        for job in claimed:
            self._start_turn(job)

    # ------------------------------------------------------------ what others do

    def stop_run(self, run: int, by: str) -> None:
        """Cancel the work of a run. The caller has recorded the stop."""
        for live in self._live.values():
            if live.job.run == run:
                live.stop(by)

    async def wait_until_idle(self) -> None:
        """Wait until no turn runs and no message is pending."""
        while True:
            if works := self._turn_tasks():
                await asyncio.wait(works)
            elif await self._store.run(_has_open_work):
                await asyncio.sleep(0.02)  # it is claimed as soon as it is ready
            else:
                return

    def _turn_tasks(self) -> list[asyncio.Task[None]]:
        return [live.work for live in self._live.values() if live.work]

    # ------------------------------------------------------------ the loop

    async def serve(self, turns: TurnRunner) -> None:
        """Claim and run until cancelled; the running turns are then suspended."""
        self._turns = turns
        self._open = True
        try:
            await run_forever("threads", self._claim_and_start)
        finally:
            self._open = False
            await self._tasks.cancel()

    async def _try_suspects(self) -> None:
        """Run what the previous process may have died of, one run at a time: if it is the cause, it dies alone.

        After a time that doubles with each attempt, the next one begins beside it, and at last the others.
        """
        suspects = 0
        if self._has_suspects:
            suspects = await self._store.run(claims.count_suspects)
        while self._has_suspects:
            now = time.time()
            job, self._has_suspects = await self._store.run(
                lambda execute, now=now: claims.claim_suspect(  # type: ignore[misc]  # bound now
                    execute, self._current.access, self._owner, now, self._longest_wait
                )
            )
            if job:
                await self._run_alone(job, suspects)

    async def _run_alone(self, job: ClaimedRun, suspects: int) -> None:
        """Run one of so many suspects for some time, or to its end."""
        log.warning("turn.alone run=%d attempt=%d deaths=%d", job.run, job.attempt, job.deaths_alone)
        doubled = job.attempt - SUSPICIOUS_INTERRUPTIONS - 1
        await asyncio.wait([self._start_turn(job)], timeout=alone_seconds(doubled, suspects))

    async def _try_suspect_beside(self) -> None:
        """Run what another process may have died of alone in this one, while others serve.

        A process without turns begins at once. Where none is, one lets its turns end first, for a while.
        """
        self._has_suspects = True  # nothing else is claimed
        try:
            access, now, longest = self._current.access, time.time(), self._longest_wait
            job = await self._store.run(lambda execute: _claim_beside(execute, access, self._owner, now, longest))
            if job:
                self._is_known = False
                if works := self._turn_tasks():
                    await asyncio.wait(works, timeout=ALL_ALONE_SECONDS)
                await self._run_alone(job, suspects=1)
        finally:
            self._has_suspects = False

    @property
    def _is_suspect_due(self) -> bool:
        """Whether a look has found a suspect that this process should try."""
        if self._suspect_seen is None:
            return False
        return not self._live or time.monotonic() >= self._suspect_seen + SUSPECT_WAITS_SECONDS

    async def _claim_and_start(self) -> None:
        await self._try_suspects()
        if tried := self._is_suspect_due:
            await self._try_suspect_beside()
        if not self._is_known:
            await self._store.run(partial(replicas.enter, id=self._owner, state=ReplicaState.SERVING))
            self._is_known = True
        self._wake.clear()
        now = time.time()
        with self._reserve(self._free) as free:
            # A claim that a power failure undoes is made again. Whatever the turn records later also makes it durable.
            look = partial(self._look, now=now, free=free, yields=not (tried or self._live))
            found = await self._store.run(look, durable=False)
            self._ready, self._elsewhere = found.ready, found.elsewhere
            for job in found.jobs:
                self._start_turn(job)
        self._suspect_seen = (self._suspect_seen or time.monotonic()) if found.has_suspect else None
        if self._is_suspect_due and not tried:
            return  # the next look is at once, and tries it
        if self._left <= 0:
            await self._tell_waiting(now)
        await self._wait()

    def _look(self, execute: Execute, now: float, free: int, *, yields: bool) -> FoundWork:
        """Claim up to `free` conversations; none, if it `yields` to a suspect and there is one."""
        elsewhere = self._count_elsewhere(execute)
        has_suspect = self._store.is_shared and runs.next_suspect(execute, self._owner) is not None
        free = 0 if has_suspect and yields else max(0, min(free, self._left_beside(elsewhere)))
        jobs = claims.claim_conversations(execute, self._current.access, self._owner, now, self._longest_wait, free)
        return FoundWork(jobs, conversations.earliest_claimable(execute, self._owner), elsewhere, has_suspect)

    async def _wait(self) -> None:
        """Wait for a wake-up, until the next message is ready, or for a while."""
        seconds = LOOK_SECONDS if self._live else 5 * LOOK_SECONDS
        if self._ready is not None and self._free:
            seconds = min(seconds, max(0.0, self._ready - time.time()) + 0.002)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    def _start_turn(self, job: ClaimedRun) -> asyncio.Task[None]:
        queued = self._queued.pop(job.conversation) if job.conversation in self._queued else None
        reply = queued or self._turns.make_reply(job)
        live = RunningTurn(job, reply, self._turns.feed.begin_run(job.run, reply.show), has_unread=job.resumed)
        self._live[job.conversation] = live
        live.work = self._tasks.start(self._run_turn(live), name=f"turn {job.run}")
        live.work.add_done_callback(lambda task: self._turn_ended(live))
        for follower in self._followers:
            follower(live)
        return live.work

    async def _run_turn(self, live: RunningTurn) -> None:
        """Run a turn and report it."""
        job, channel = live.job, live.job.thread.channel
        waited = max(0.0, time.time() - job.asked)
        with (
            inside_run(job.run, job.asked),
            open_span(SpanKind.TURN, job.agent or "fawn", channel=channel, attempt=job.attempt, waited=waited) as span,
        ):
            span.note(conversation=job.conversation, person=job.requester)
            await self._turns.run_turn(live)
            span.note(outcome=live.feed.state)
        if live.feed.state != SUSPENDED:
            end_run(job.run, channel, job.asked, outcome=live.feed.state)

    def _turn_ended(self, live: RunningTurn) -> None:
        full = self._left <= 0
        if self._live.get(live.job.conversation) is live:  # else the next turn of its conversation has begun
            del self._live[live.job.conversation]
        if full:
            self._wake.set()

    async def _tell_waiting(self, now: float) -> None:
        """Show the requesters who wait for a free place their position in the queue."""
        jobs = await self._store.run(
            lambda execute: claims.queue_conversations(
                execute, self._current.access, now, self._longest_wait, QUEUE_NOTICE_SECONDS
            )
        )
        for job in jobs:
            reply = self._queued[job.conversation] = self._turns.make_reply(job)
            with use_language(job.language):
                sentence = ngettext(
                    "I'm busy with {n} other conversation. You're number {place}; I'll start by myself.",
                    "I'm busy with {n} other conversations. You're number {place}; I'll start by myself.",
                    self._live_limit,
                    place=len(self._queued),
                )
                reply.show(Notice("queue", sentence))

    # ------------------------------------------------------------ the end

    def abandon(self) -> None:
        """Claim nothing new, and cancel the turns without a trace: the lease of this process is over."""
        self._open = False
        for live in self._live.values():
            live.lose()

    async def close(self, grace: float) -> None:
        """Claim nothing new; let turns end for `grace` seconds, then suspend the rest (a restart resumes them)."""
        self._open = False
        while self._reserved:  # noqa: ASYNC110 — what is claimed meanwhile begins, and is then suspended
            await asyncio.sleep(0.01)
        if works := self._turn_tasks():
            await asyncio.wait(works, timeout=grace)
        suspended = len(self._live)
        for live in self._live.values():
            live.suspend()
        if works := self._turn_tasks():
            await asyncio.wait(works, timeout=5.0)
        for reply in self._queued.values():
            await reply.close()
        log.info("threads.closed suspended=%d", suspended)


def _has_open_work(execute: Execute) -> bool:
    return conversations.has_pending(execute) or bool(inbox.pending_commands(execute, 1))


def _claim_beside(execute: Execute, access: AccessPolicy, owner: str, now: float, longest: float) -> ClaimedRun | None:
    """Claim a suspect while other processes live, and have them take what waits for this one meanwhile.

    None: there is none, or nobody else would serve.
    """
    if not replicas.others_serve(execute, owner):
        return None
    job, _found = claims.claim_suspect(execute, access, owner, now, longest)
    if job:
        replicas.enter(execute, owner, ReplicaState.STARTING)
    return job


def alone_seconds(doubled: int, suspects: int) -> float:
    """Return how long one of so many suspects works alone. Many share a minute: most of them are innocent."""
    first = min(ALONE_SECONDS, ALL_ALONE_SECONDS / max(1, suspects))
    return min(first * 2.0 ** min(doubled, 30), MAX_ALONE_SECONDS)
