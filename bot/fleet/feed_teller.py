"""Tell other processes what the runs of this one show, where readers of theirs want it: batched, and nothing else.

Spell the feed of a run for the letters that processes send each other, and read it from them.

A process wants the runs of places; another one, in which such a run is in progress, begins to tell it, sends its blocks
as they come, and says now and then how far it is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from agent.blocks import Approve, Ask, Block, Done, Failed, File, Notice, Plan, PlanItem, Step, Text, Usage, View
from agent.messages import Thread
from agent.stored_json import Damaged, build_dataclass, raise_damaged
from bot.base.background import run_forever
from bot.base.leases import Json, dump_letter, load_letter
from bot.database.database import Database
from bot.journey.feed import Ended, FedJob, FedRun, KeptJob, NumberedBlock, recall
from bot.rights.current import Current

Content = Block | Ended
KINDS: Mapping[str, type[Any]] = {
    each.__name__: each for each in (Text, Step, Plan, Ask, Approve, File, Notice, Failed, Done, Ended)
}

WANTED, WANTING = "runs.wanted", "runs.told"  # the topics: what a reader says, and what it is told


def dump_content(content: Content) -> list[object]:
    """Return a block as JSON: its kind, and its fields. What only its own process needs of it is left out."""
    if isinstance(content, Approve):
        content = replace(content, grant=None, use=None)
    return [type(content).__name__, content]


def load_content(raw: object) -> Content:
    """Return what `dump_content` made. Raises Damaged, also for a kind that another version has."""
    match raw:
        case [str(name), dict(fields)] if kind := KINDS.get(name):
            more: dict[str, Any] = {}
            with raise_damaged():
                if kind is Plan:
                    more = {"items": tuple(build_dataclass(PlanItem, each) for each in fields["items"])}
                elif kind is Done:
                    more = {"usage": build_dataclass(Usage, fields["usage"])}
                found: Content = build_dataclass(kind, fields, **more)
                return found
    raise Damaged("no block")


def load_view(raw: object) -> View:
    """Return the view that these blocks build. Raises Damaged."""
    view = View()
    for content in load_contents(raw):
        if not isinstance(content, Ended):
            view.add(content)
    return view


def load_contents(raw: object) -> list[Content]:
    """Return blocks. Raises Damaged."""
    if not isinstance(raw, list):
        raise Damaged("no list of blocks")
    return [load_content(each) for each in raw]


def dump_view(view: View) -> list[list[object]]:
    """Return the blocks that build a view."""
    kept = [dump_content(Notice("", text, kept=True)) for text in view.kept if not _is_latest(view, text)]
    return [*kept, *map(dump_content, view.blocks())]


def _is_latest(view: View, text: str) -> bool:
    return view.notice is not None and view.notice.kept and view.notice.text == text


def dump_job(job: FedJob) -> Json:
    """Return which run it is."""
    kept = KeptJob(job.run, job.conversation, job.thread, job.attempt, job.started, job.asked, job.resumed)
    return {**asdict(kept), "thread": f"{job.thread}"}


def load_job(raw: object) -> KeptJob:
    """Return what `dump_job` made. Raises Damaged."""
    with raise_damaged():
        if isinstance(raw, dict):
            return build_dataclass(KeptJob, raw, thread=Thread.parse(raw["thread"]), recalled=())
    raise Damaged("no run")


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
