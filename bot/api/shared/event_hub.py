"""Wake the streams of events whose threads changed, and end those whose key is not good any more."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from agent.messages import Thread
from bot.api.shared.caller import Caller
from bot.commands.feature import Door
from bot.database.database import Execute, Mark, StorageError
from bot.database.wake_ups import Written
from bot.http.event_stream import HEARTBEAT, EventStream, stream_events
from bot.http.route import HttpProblem
from bot.journey.feed import FedRun
from channels.shared.background import BackgroundTasks

if TYPE_CHECKING:
    from aiohttp import web

log = logging.getLogger(__name__)

CHECK_SECONDS = 0.5  # between two looks at the keys of the open streams
MAX_STREAMS = 100  # of one person
TOO_MANY = HttpProblem(
    *(429, "too_many_streams", f"This person has {MAX_STREAMS} open streams."),
    "Close some: one stream of `/v1/events` has everything.",
    headers={"Retry-After": "5"},
)


@dataclass(eq=False, slots=True)
class Subscription:
    """What a stream is told: `threads` that changed since it looked, and whether it is `over`."""

    place: str  # the address of a thread, or of a chat
    caller: Caller
    woken: asyncio.Event
    threads: set[str] = field(default_factory=set)
    over: bool = False


class EventHub:
    """The open streams. Those of other threads are not woken."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._open: dict[str, set[Subscription]] = {}
        self._counts: Counter[str] = Counter()
        self._by_credential: dict[str, set[Subscription]] = {}
        self._tasks = BackgroundTasks()
        door.store.follow(self._written)
        door.runs.follow(self._begun)

    async def stream(
        self,
        request: web.Request,
        caller: Caller,
        place: Thread,
        tell: Callable[[EventStream, Subscription], Awaitable[None]],
        *,
        headers: Mapping[str, str] = {},
        heartbeat: bytes = HEARTBEAT,
    ) -> web.StreamResponse:
        """Begin an answer with events, as `stream_events` does. `tell` sends them, and is woken by what changes.

        Raises HttpProblem where the caller has as many streams as a person may have.
        """
        woken = asyncio.Event()

        async def follow(stream: EventStream) -> None:
            with self.subscribe(place, caller, woken) as subscription:
                await tell(stream, subscription)

        self._refuse_more(caller)
        return await stream_events(request, woken, follow, headers=headers, heartbeat=heartbeat)

    def _refuse_more(self, caller: Caller) -> None:
        if self._counts[caller.author.id] >= MAX_STREAMS:
            raise TOO_MANY

    @contextmanager
    def subscribe(self, place: Thread, caller: Caller, woken: asyncio.Event) -> Iterator[Subscription]:
        """Tell a stream what changes at a thread, or in all threads of a chat. Raises HttpProblem."""
        self._refuse_more(caller)
        mine = Subscription(str(place), caller, woken)
        if not self._open:
            self._tasks.start(self._check_callers(), name="keys of streams")
        self._open.setdefault(mine.place, set()).add(mine)
        same = self._by_credential.setdefault(caller.credential, set())
        same.add(mine)
        self._counts[caller.author.id] += 1
        try:
            with self._door.runs.wanted(place):
                yield mine
        finally:
            self._counts[caller.author.id] -= 1
            self._open[mine.place].discard(mine)
            same.discard(mine)
            if not same:
                self._by_credential.pop(caller.credential, None)
            if not self._open[mine.place]:
                del self._open[mine.place]

    def _written(self, marks: Collection[Mark]) -> None:
        for written, thread in marks:
            if written is Written.WEB:
                self._tell(thread)

    def _begun(self, live: FedRun) -> None:
        self._tell(str(live.job.thread))

    def _tell(self, thread: str) -> None:
        if not self._open or not thread.startswith("web/"):
            return
        for place in (thread, str(Thread.parse(thread).without_topic)):
            for mine in self._open.get(place, ()):
                mine.threads.add(thread)
                mine.woken.set()

    async def _check_callers(self) -> None:
        """End the streams of keys that were revoked, have expired, or whose person lost every right."""
        while self._open:
            callers = [next(iter(same)).caller for same in self._by_credential.values()]
            try:
                bad = await self._door.store.run(partial(_bad_callers, callers=callers), durable=False)
            except StorageError as error:
                log.warning("events.keys_not_read reason=%s", error)
                bad = set()
            for credential in bad & self._by_credential.keys():
                for mine in self._by_credential[credential]:
                    mine.over = True
                    mine.woken.set()
            await asyncio.sleep(CHECK_SECONDS)


def _bad_callers(execute: Execute, callers: Collection[Caller]) -> set[str]:
    now = time.time()
    return {each.credential for each in callers if not each.is_good(execute, now)}
