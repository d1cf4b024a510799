"""Tell other processes what the runs of this one show, where readers of theirs want it: batched, and nothing else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from agent.blocks import View
from agent.messages import Thread
from agent.stored_json import Damaged
from bot.base.background import run_forever
from bot.base.letters import dump_letter, load_letter
from bot.database.database import Database
from bot.fleet.feed_letters import (
    WANTED,
    WANTING,
    dump_content,
    dump_job,
    dump_view,
)
from bot.journey.fed_run import FedRun, recall
from bot.journey.feed import NumberedBlock
from bot.rights.current import Current

BATCH_SECONDS = 0.1  # in which blocks are gathered
WANTED_SECONDS = 6.0  # from the last letter that said so
MAX_PLACES = 10_000  # of one process


class FedTurns(Protocol):
    """The turns of this process, as `bot.journey.scheduler.Scheduler` has them."""

    @property
    def running_turns(self) -> Sequence[FedRun]: ...

    def follow(self, follower: Callable[[FedRun], None]) -> None: ...


@dataclass(eq=False, slots=True)
class _Told:
    """A run that another process is told, and up to which block."""

    live: FedRun
    after: int | None = None  # it has not begun


@dataclass(slots=True)
class FeedTeller:
    """Tells the runs of this process to others."""

    store: Database
    turns: FedTurns
    current: Current
    _places: dict[str, dict[str, float]] = field(default_factory=dict)  # process → place → until when it is wanted
    _told: dict[tuple[str, int], _Told] = field(default_factory=dict)  # process and run
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self) -> None:
        """Tell until cancelled."""
        self.store.read_letters(WANTED, self._read)
        self.turns.follow(self._begun)
        await run_forever("feeds", self._tell)

    def _read(self, sender: str, text: str) -> None:
        with suppress(Damaged):
            match load_letter(text):
                case {"kind": "want", "places": list(places)}:
                    self._want(sender, [place for place in places[:MAX_PLACES] if isinstance(place, str)])
                case {"kind": "again", "run": int(run)} if told := self._told.get((sender, run)):
                    told.after = None
                    self._woken.set()

    def _want(self, sender: str, places: Collection[str]) -> None:
        until = time.monotonic() + WANTED_SECONDS
        self._places.setdefault(sender, {}).update(dict.fromkeys(places, until))
        for live in self.turns.running_turns:
            self._begun(live)
        self._confirm(sender)

    def _begun(self, live: FedRun) -> None:
        """Begin to tell a run to whom it may interest."""
        now = time.monotonic()
        for sender, places in self._places.items():
            told = self._told.get((sender, live.job.run))
            if _is_wanted(live.job.thread, places, now) and (told is None or told.live.feed is not live.feed):
                self._told[sender, live.job.run] = _Told(live)
                live.feed.follow(self._woken)
                self._woken.set()

    def _confirm(self, sender: str) -> None:
        """Say how far the runs are that it is told. The letters with these blocks were sent before."""
        runs = [
            [run, told.live.feed.began, told.after]
            for (reader, run), told in self._told.items()
            if reader == sender and told.after is not None
        ]
        if runs:
            self._send(sender, "runs", runs=runs)

    async def _tell(self) -> None:
        await self._woken.wait()
        await asyncio.sleep(BATCH_SECONDS)
        self._woken.clear()
        now = time.monotonic()
        for (sender, run), told in [*self._told.items()]:
            places = self._places.get(sender, {})
            has_ended = told.after is None and bool(told.live.feed.state)  # its transcript is there
            if has_ended or not _is_wanted(told.live.job.thread, places, now):
                self._end(sender, run)
                continue
            if told.after is None:
                await self._begin(sender, told)
            self._go_on(sender, told)
            if told.live.feed.state and told.after == told.live.feed.last:
                self._end(sender, run)
        self._forget(now)

    async def _begin(self, sender: str, told: _Told) -> None:
        """Tell what the run shows: block by block where its feed still has all of them."""
        feed, earlier = told.live.feed, await recall(told.live, self.current)
        whole = feed.holds(0) and not earlier.blocks()
        told.after = 0 if whole else feed.last - bool(feed.state)  # the end is a block
        if not whole:
            earlier.add_all(feed.view.blocks())
        view = dump_view(View() if whole else earlier)
        self._send(sender, "begin", job=dump_job(told.live.job), began=feed.began, number=told.after, view=view)

    def _go_on(self, sender: str, told: _Told) -> None:
        feed, after = told.live.feed, told.after or 0
        read = feed.read(after)
        if not read:
            return
        if any(isinstance(each.content, View) for each in read):  # behind the ring
            told.after = None
            self._woken.set()
            return
        self._send(sender, "blocks", run=told.live.job.run, began=feed.began, after=after, blocks=[*_dumped(read)])
        told.after = read[-1].number

    def _send(self, sender: str, kind: str, **content: object) -> None:
        self.store.send(WANTING, dump_letter(kind, **content), sender)

    def _end(self, sender: str, run: int) -> None:
        told = self._told.pop((sender, run))
        if not any(other.live.feed is told.live.feed for other in self._told.values()):
            told.live.feed.unfollow(self._woken)

    def _forget(self, now: float) -> None:
        """Forget what is wanted no more."""
        self._places = {
            sender: left
            for sender, places in self._places.items()
            if (left := {place: until for place, until in places.items() if until >= now})
        }


def _is_wanted(thread: Thread, places: Mapping[str, float], now: float) -> bool:
    return any(places.get(place, 0.0) >= now for place in (f"{thread}", f"{thread.without_topic}"))


def _dumped(read: Collection[NumberedBlock]) -> Iterator[list[object]]:
    for each in read:
        if not isinstance(each.content, View):
            yield dump_content(each.content)
