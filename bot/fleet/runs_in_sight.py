"""See the runs in progress, here and at other processes that share the database, with what they show.

Mirror the feeds of runs that are in progress at other processes, for as long as readers here want them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial

from agent.messages import Thread
from agent.stored_json import Damaged
from bot.base.background import run_forever
from bot.base.leases import Json, dump_letter, load_letter
from bot.database.database import Database
from bot.fleet.feed_teller import WANTED, WANTED_SECONDS, WANTING, FeedTeller, load_contents, load_job, load_view
from bot.journey.feed import MOVED, SUSPENDED, Ended, FedRun, KeptJob, RunFeed
from bot.journey.running_turn import RunningTurn
from bot.journey.scheduler import Scheduler
from bot.rights.current import Current
from bot.storage import runs

log = logging.getLogger(__name__)

AGAIN_SECONDS = WANTED_SECONDS / 3  # between two letters that say what is wanted
LINGER_SECONDS = 10.0  # that a place is wanted after its last reader: pages open streams anew
MAX_MIRRORS = 1000


@dataclass(eq=False, slots=True)
class Mirror:
    """A run at the process `teller`."""

    teller: str
    job: KeptJob
    feed: RunFeed
    told_at: float  # monotonic: when its process said last that it is in progress


@dataclass(slots=True)
class FeedMirrors:
    """The runs of other processes at the places that are wanted here."""

    store: Database
    _mirrors: dict[int, Mirror] = field(default_factory=dict)
    _readers: dict[str, int] = field(default_factory=dict)  # of places
    _until: dict[str, float] = field(default_factory=dict)  # of places without readers
    _followers: list[Callable[[FedRun], None]] = field(default_factory=list)
    _more: asyncio.Event = field(default_factory=asyncio.Event)  # set once at the next run that begins here
    _wanting: asyncio.Event = field(default_factory=asyncio.Event)

    def follow(self, follower: Callable[[FedRun], None]) -> None:
        """Call `follower` with each run that begins to be mirrored."""
        self._followers.append(follower)

    @property
    def runs(self) -> Sequence[Mirror]:
        """The runs in progress elsewhere, as far as they are mirrored."""
        return [*self._mirrors.values()]

    def find(self, run: int) -> Mirror | None:
        """Return the mirror of a run."""
        return self._mirrors.get(run)

    @contextmanager
    def wanted(self, place: Thread) -> Iterator[None]:
        """Mirror the runs at a thread, or in all threads of a chat."""
        if not self.store.is_shared:
            yield
            return
        name = f"{place}"
        if not self._readers.get(name):
            self._readers[name] = 0
            if self._until.pop(name, None) is None:
                self._send("want", places=[name])
        self._readers[name] += 1
        self._wanting.set()
        try:
            yield
        finally:
            self._readers[name] -= 1
            if not self._readers[name]:
                del self._readers[name]
                self._until[name] = time.monotonic() + LINGER_SECONDS

    async def wait_for(self, runs: Collection[int], seconds: float) -> None:
        """Wait until these runs are mirrored, but not for longer."""
        try:
            async with asyncio.timeout(seconds):
                while not self._mirrors.keys() >= {*runs}:
                    await self._more.wait()
        except TimeoutError:
            log.info("feed.not_mirrored runs=%s", ",".join(map(str, runs)))

    async def serve(self) -> None:
        """Mirror until cancelled. A process that works alone need not."""
        self.store.read_letters(WANTING, self._read)
        await run_forever("mirrors", self._want_again)

    async def _want_again(self) -> None:
        """Say again what is wanted, which processes know only for a while; drop what nobody tells any more."""
        await self._wanting.wait()
        await asyncio.sleep(AGAIN_SECONDS)
        now = time.monotonic()
        self._until = {place: until for place, until in self._until.items() if until >= now}
        places = [*self._readers, *self._until]
        for run, mirror in [*self._mirrors.items()]:
            where = {f"{mirror.job.thread}", f"{mirror.job.thread.without_topic}"}
            if where.isdisjoint(places) or now - mirror.told_at > WANTED_SECONDS:
                self._drop(run)
        if places:
            self._send("want", places=places)
        else:
            self._wanting.clear()

    def _drop(self, run: int) -> None:
        self._mirrors.pop(run).feed.end(MOVED)

    # ------------------------------------------------------------ what is told

    def _read(self, sender: str, text: str) -> None:
        try:
            letter = load_letter(text)
            match letter:
                case {"kind": "begin", "began": int(began), "number": int(number)}:
                    self._begin(sender, load_job(letter.get("job")), began, number, letter)
                case {"kind": "blocks", "run": int(run), "began": int(began), "after": int(after)}:
                    self._add(sender, run, began, after, letter)
                case {"kind": "runs", "runs": list(runs)}:
                    for each in runs:
                        match each:
                            case [int(run), int(began), int(last)]:
                                self._confirm(sender, run, began, last)
        except Damaged as error:
            log.warning("feed.damaged sender=%s reason=%s", sender, error)

    def _begin(self, sender: str, job: KeptJob, began: int, number: int, letter: Json) -> None:
        view, now = load_view(letter.get("view")), time.monotonic()
        known = self._mirrors.get(job.run)
        if known and known.teller == sender and known.feed.began == began:
            known.feed.catch_up(view, number)
            known.told_at = now
            return
        if known:
            self._drop(job.run)
        if len(self._mirrors) >= MAX_MIRRORS:
            self._drop(next(iter(self._mirrors)))
        mirror = self._mirrors[job.run] = Mirror(sender, job, RunFeed(began=began), now)
        mirror.feed.catch_up(view, number)
        for follower in self._followers:
            follower(mirror)
        more, self._more = self._more, asyncio.Event()
        more.set()

    def _add(self, sender: str, run: int, began: int, after: int, letter: Json) -> None:
        mirror = self._known(sender, run, began)
        if mirror is None or after > mirror.feed.last:  # a letter was lost
            self._send("again", sender, run=run)
            return
        mirror.told_at = time.monotonic()
        for content in load_contents(letter.get("blocks"))[mirror.feed.last - after :]:
            if isinstance(content, Ended):
                del self._mirrors[run]
                mirror.feed.end(MOVED if content.state == SUSPENDED else content.state)
                return
            mirror.feed.record(content)

    def _confirm(self, sender: str, run: int, began: int, last: int) -> None:
        mirror = self._known(sender, run, began)
        if mirror is None or mirror.feed.last < last:
            self._send("again", sender, run=run)
        if mirror:
            mirror.told_at = time.monotonic()

    def _known(self, sender: str, run: int, began: int) -> Mirror | None:
        mirror = self._mirrors.get(run)
        return mirror if mirror and mirror.teller == sender and mirror.feed.began == began else None

    def _send(self, kind: str, to: str = "", **content: object) -> None:
        self.store.send(WANTED, dump_letter(kind, **content), to)


SIGHT_SECONDS = 1.0  # to wait for what a run shows that is in progress elsewhere


class RunsInSight:
    """The turns of this process, and the runs that others tell of places which are wanted here."""

    def __init__(self, store: Database, scheduler: Scheduler, current: Current) -> None:
        self._store = store
        self._scheduler = scheduler
        self._mirrors = FeedMirrors(store)
        self._teller = FeedTeller(store, scheduler, current)

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Tell other processes what they want, and hear what they tell, where they share the database."""
        if not self._store.is_shared:
            yield
            return
        loops = (self._mirrors.serve(), self._teller.serve())
        tasks = [asyncio.create_task(loop, name="feeds of others") for loop in loops]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    @property
    def running_turns(self) -> Sequence[RunningTurn]:
        """The turns in progress in this process."""
        return self._scheduler.running_turns

    def find(self, run: int) -> FedRun | None:
        """Return a run in progress; None for one that is not in sight."""
        return self._scheduler.find(run) or self._mirrors.find(run)

    def at(self, place: Thread) -> Sequence[FedRun]:
        """Return the runs in progress at a thread (also of its older conversations), or in all threads of a chat."""
        mine: list[FedRun] = [live for live in self._scheduler.running_turns if _is_at(live, place)]
        known = {live.job.run for live in mine}
        return [*mine, *(each for each in self._mirrors.runs if _is_at(each, place) and each.job.run not in known)]

    def follow(self, follower: Callable[[FedRun], None]) -> None:
        """Call `follower` with each run that begins, or comes into sight."""
        self._scheduler.follow(follower)
        self._mirrors.follow(follower)

    def wanted(self, place: Thread) -> AbstractContextManager[None]:
        """Keep the runs at a thread, or in all threads of a chat, in sight."""
        return self._mirrors.wanted(place)

    async def look(self, thread: Thread) -> None:
        """Have the runs at a thread in sight that are in progress elsewhere, if their processes tell them soon."""
        if not self._store.is_shared:
            return
        read = partial(runs.runs_elsewhere, thread=thread, owner=self._store.me)
        if elsewhere := await self._store.run(read, durable=False):
            with self.wanted(thread):
                await self._mirrors.wait_for(elsewhere, SIGHT_SECONDS)


def _is_at(live: FedRun, place: Thread) -> bool:
    return live.job.thread == place or (not place.topic and live.job.thread.without_topic == place)
