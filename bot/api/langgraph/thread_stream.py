"""Tell what happens in a thread as frames, over all of its runs: the newer protocol of LangGraph's clients.

A client asks `since` the number of a frame, or for what runs now. It may also have begun a run that ended before it
asked: such a run is told until a client that read its end has left. Clients skip frames that they know, but one that
opens a new stream to begin another run would take the end of this one for the end of that.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from agent.messages import Thread
from bot.api.langgraph import shapes
from bot.api.langgraph.frames import SLOTS, RunFrames, ThreadFrame
from bot.api.langgraph.shapes import is_streamed
from bot.api.shared.caller import Caller
from bot.api.shared.event_hub import Subscription
from bot.api.shared.event_json import Json, RunPosition
from bot.api.shared.event_streams import find_end, stored_view
from bot.api.shared.run_reader import RecentRuns, RunReader
from bot.commands.feature import Door
from bot.database.database import Execute
from bot.database.states import RunState
from bot.http.event_stream import EventStream
from bot.journey.feed import FedRun
from bot.storage import conversations, inbox, runs
from bot.storage.runs import RunRow

RUNS_AT_ONCE = 20
FRESH_SECONDS = 60.0  # after its end, a run is told to a client that asks for no frame
MAX_TOLD = 1000  # threads whose latest run is remembered
IN_PROGRESS = (RunState.QUEUED, RunState.RUNNING)


@dataclass(frozen=True, slots=True)
class Filter:
    """Which frames a client wants. All of them have the namespace of the whole thread, []."""

    channels: frozenset[str]
    root: bool
    since: int | None

    def wants(self, frame: ThreadFrame) -> bool:
        """Return whether to send a frame."""
        name = f"custom:{frame.data['name']}" if frame.channel == "custom" else ""
        return (
            self.root
            and not self.channels.isdisjoint((frame.channel, name))
            and (self.since is None or frame.number > self.since)
        )


@dataclass(frozen=True, slots=True)
class ToldEnds:
    """To which sets of channels the end of the latest run of a thread was told, by streams that are closed since."""

    _told: OrderedDict[str, tuple[int, set[frozenset[str]]]] = field(default_factory=OrderedDict)

    def add(self, thread: Thread, run: int, channels: frozenset[str]) -> None:
        """Note that it was told."""
        known, told = self._told.pop(f"{thread}", (run, set()))
        self._told[f"{thread}"] = (run, (told if known == run else set()) | {channels})
        if len(self._told) > MAX_TOLD:
            self._told.popitem(last=False)

    def has(self, thread: Thread, run: int, channels: frozenset[str]) -> bool:
        """Return whether it was told."""
        known, told = self._told.get(f"{thread}", (0, set()))
        return known == run and channels in told


@dataclass(slots=True)
class ThreadStream:
    """The frames of a thread for one client."""

    door: Door
    caller: Caller
    thread: Thread
    stream: EventStream
    subscription: Subscription
    filter: Filter
    recent: RecentRuns
    told: ToldEnds
    _after: int = 0  # the latest run that was told to its end
    _told: int = 0  # the same, where its end was sent
    _reader: RunReader | None = None
    _frames: RunFrames | None = None

    async def run(self) -> None:
        """Send frames until the client leaves, or may not read any more."""
        try:
            self._after = await self._read(partial(self._find_begin, now=time.time()))
            while not self.subscription.over:
                self.subscription.threads.clear()
                for row in await self._read(self._next_runs):
                    if not await self._tell(row):
                        break
                await self.stream.wait()
        finally:
            self._leave()
            if self._told:  # only now: a page that was loaded anew asks for the same while its old stream is open
                self.told.add(self.thread, self._told, self.filter.channels)

    def _find_begin(self, execute: Execute, now: float) -> int:
        """Return the last run that the client knows, or does not ask for."""
        latest = runs.latest_runs(execute, conversations.find_current(execute, self.thread), RUNS_AT_ONCE)
        since = self.filter.since
        if since is not None:
            known = (each.id for each in latest if each.finished and _last_number(each.finished) <= since)
            return next(known, latest[-1].id - 1 if latest else 0)
        if not latest:
            return 0
        return latest[0].id - 1 if self._is_wanted(execute, latest[0], now) else latest[0].id

    def _is_wanted(self, execute: Execute, run: RunRow, now: float) -> bool:
        if run.state in IN_PROGRESS:
            return True
        if any(is_streamed(row.key) for row in inbox.pending_rows(execute, run.conversation, RUNS_AT_ONCE)):
            return False  # the client has just begun the next one, and would take the end of this one for its end
        begun = inbox.find_row(execute, run.id)
        fresh = run.finished is not None and now - run.finished < FRESH_SECONDS
        told = self.told.has(self.thread, run.id, self.filter.channels)
        return fresh and not told and begun is not None and is_streamed(begun.key)

    def _next_runs(self, execute: Execute) -> list[RunRow]:
        latest = runs.latest_runs(execute, conversations.find_current(execute, self.thread), RUNS_AT_ONCE)
        return [each for each in reversed(latest) if each.id > self._after]

    async def _tell(self, row: RunRow) -> bool:
        """Send what is new of a run. Returns whether it has ended, and the next one follows."""
        live = self.recent.find(row.id)
        if live and (self._reader is None or self._reader.feed is not live.feed):
            await self._follow(live)
        if self._reader and self._frames and self._reader.run == row.id:
            for event in self._reader.read():
                await self._send(self._frames.read(event))
            if not self._reader.ended:  # also of one that has: its last blocks may still be on their way
                return False
        if row.state in IN_PROGRESS:
            return False
        await self._end(row)
        self._after = row.id
        return True

    async def _follow(self, live: FedRun) -> None:
        self._leave()
        reader = self._reader = RunReader(live, self.door.current, self.subscription.woken)
        frames = self._frames = RunFrames(reader.run, reader.feed.began)
        await self._send(frames.begin(await self._values()))
        whole = reader.feed.holds(0) and not live.job.resumed
        begun = await reader.begin(RunPosition(reader.feed.began, 0) if whole else None)
        for event in begun:
            await self._send(frames.read(event))

    async def _end(self, row: RunRow) -> None:
        frames = self._frames
        finished = row.finished or row.started
        if frames and frames.run == row.id and self._reader and self._reader.moved:
            await self._send(frames.show(await self._read(partial(stored_view, run=row.id))))
        if frames is None or frames.run != row.id:
            frames = RunFrames(row.id, int(row.started * 1000))
            await self._send(frames.begin(await self._values()))
            await self._send(frames.show(await self._read(partial(stored_view, run=row.id))))
        end = await self._read(partial(find_end, caller=self.caller, run=row.id))
        if end is not None:
            state = await self._read(partial(shapes.values, thread=self.thread))
            asked = state.pop("__interrupt__", [])
            self._told = row.id  # first: clients leave at the last frame
            await self._send(frames.end(finished, state, asked, end))
        self._leave()

    async def _values(self) -> Json:
        found: Json = await self._read(partial(shapes.values, thread=self.thread))
        return {"messages": found["messages"]}

    async def _send(self, frames: Iterable[ThreadFrame]) -> None:
        for frame in frames:
            if self.filter.wants(frame):
                await self.stream.send(frame.method, frame.to_json(), f"{frame.number}")

    def _leave(self) -> None:
        if self._reader:
            self._reader.close()
        self._reader = self._frames = None

    async def _read(self, work: Any) -> Any:
        return await self.door.store.run(work, durable=False)


def _last_number(finished: float) -> int:
    return int(finished * 1000) * SLOTS + SLOTS - 1
