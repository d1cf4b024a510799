"""Tell what happens in threads, or in one run, as events. A client that asks again goes on where it was.

Stored entries have ids, blocks of a run in progress have numbers in its feed; a position names both. What a client
missed of a run is not repeated by blocks: a `snapshot` replaces what it shows of the run, and so do the stored entries
that come before the `end`. The event `thread` says how a thread is now, so that a second one does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from agent.messages import Thread
from bot.api.shared import read_models
from bot.api.shared.caller import Caller
from bot.api.shared.event_hub import Subscription
from bot.api.shared.event_json import Json, Position, RunPosition
from bot.api.shared.run_reader import RunEvent, RunReader
from bot.commands.feature import Door
from bot.database.database import Execute
from bot.database.states import EntryKind, InboxState, RunState
from bot.http.event_stream import EventSink, EventStream
from bot.http.route import HttpProblem
from bot.journey.feed import FedRun
from bot.storage import inbox, runs, transcripts
from bot.storage.transcripts import StoredEntry

T = TypeVar("T")

ENTRIES_AT_ONCE = 200
MAX_BEHIND = 5000  # entries of all threads: who is further behind reads the threads again
NO_FEED = RunPosition(0, 0)  # of a run that is over, whose end was not told yet
ENDED = "ended"  # the last event of a run: there is nothing to go on with


@dataclass(slots=True)
class ThreadEvents:
    """The events of a thread, or of all threads of the caller, for one client."""

    door: Door
    caller: Caller
    place: Thread
    stream: EventStream
    subscription: Subscription
    position: Position | None
    _readers: dict[int, RunReader] = field(default_factory=dict)
    _entry: int = 0
    _missed: int = 0  # the run that the client followed, and that ended since
    _untold: int = 0  # the run of the latest entry, while its end is to follow
    _is_new: bool = True
    _latest: RunEvent | None = None
    _latest_run: int = 0

    async def run(self) -> None:
        """Send events until the client leaves, or may not read any more."""
        try:
            await self._begin()
            while not self.subscription.over:
                await self._step()
                await self.stream.wait()
        finally:
            for reader in self._readers.values():
                reader.close()

    async def _begin(self) -> None:
        latest = await self._read(transcripts.latest_entry)
        self._entry = self.position.entry if self.position else latest
        if latest - self._entry > MAX_BEHIND:
            self._entry, self.position = latest, None
            await self.stream.send("reset", {"detail": "Too much has happened meanwhile: read the threads again."})
        whole = not self.place.topic
        busy = await self._read(partial(read_models.busy_threads, caller=self.caller)) if whole else [f"{self.place}"]
        self.subscription.threads.update(busy)
        if self.position and self.position.run and not self._find(self.position.run):
            self._missed = self.position.run

    async def _step(self) -> None:
        for live in self.door.runs.at(self.place):
            known = self._readers.get(live.job.run)
            if known is None or known.feed is not live.feed:
                await self._follow(live)
        for reader in self._readers.values():
            await self._send(reader, reader.read())
        ended = [reader for reader in self._readers.values() if reader.ended]
        self.subscription.threads.update(f"{reader.thread}" for reader in ended if not reader.told)
        if self.subscription.threads or self._is_new:
            await self._tell_news()
        for reader in ended:
            if not (reader.told or reader.suspended):
                await self._tell_end(reader.run)
            if not self._find(reader.run):
                self._readers.pop(reader.run).close()

    def _find(self, run: int) -> FedRun | None:
        return next((live for live in self.door.runs.at(self.place) if live.job.run == run), None)

    async def _follow(self, live: FedRun) -> None:
        at = self.position.at if self.position and self.position.run == live.job.run else None
        if before := self._readers.pop(live.job.run, None):
            before.close()
        reader = self._readers[live.job.run] = RunReader(live, self.door.current, self.subscription.woken)
        await self._send(reader, await reader.begin(at))

    async def _send(self, reader: RunReader, events: Sequence[RunEvent]) -> None:
        for event in events:
            self._latest, self._latest_run = event, reader.run
            data = {"thread": reader.thread.topic, **event.data}
            await self.stream.send(event.name, data, self._id())

    def _id(self) -> str:
        if self._untold and self._untold != self._latest_run:
            return f"{Position(self._entry, self._untold, NO_FEED)}"
        if self._latest is None:
            return f"{self._entry}"
        return f"{Position(self._entry, self._latest_run, self._latest.position)}"

    async def _tell_news(self) -> None:
        """Send the entries that were stored, the ends of their runs, and how the threads are now."""
        threads, ended = {*self.subscription.threads}, {self._missed: None} if self._missed else {}
        self.subscription.threads.clear()
        self._missed, self._is_new = 0, False
        while entries := await self._read(self._read_entries):
            last = {entry.run: entry.id for entry, _shown in entries}
            is_all = len(entries) < ENTRIES_AT_ONCE
            for entry, shown in entries:
                for run in [each for each in ended if is_all and last.get(each, 0) < entry.id]:
                    await self._tell_end(run)
                    del ended[run]
                self._entry = entry.id
                if entry.run:
                    ended[entry.run] = None
                    self._untold = entry.run
                await self.stream.send("entry", {"thread": Thread.parse(entry.thread).topic, **shown}, self._id())
                threads.add(entry.thread)
        for run in ended:
            await self._tell_end(run)
        self._untold = 0
        for state in await self._read(partial(_states, caller=self.caller, threads=sorted(threads))):
            await self.stream.send("thread", state)

    def _read_entries(self, execute: Execute) -> list[tuple[StoredEntry, Json]]:
        if self.place.topic:
            entries = transcripts.read_thread(execute, f"{self.place}", self._entry, ENTRIES_AT_ONCE)
        else:
            entries = transcripts.read_chat(execute, self.place, self._entry, ENTRIES_AT_ONCE)
        return [(each, read_models.entry_json(execute, self.caller, each)) for each in entries]

    async def _tell_end(self, run: int) -> None:
        """Send the end of a run, unless it goes on: one that was answered again has entries of its own."""
        reader = self._readers.get(run)
        if reader and (reader.told or not reader.ended):
            return
        if (end := await self._read(partial(find_end, caller=self.caller, run=run))) is not None:
            if self._latest_run == run:
                self._latest, self._latest_run = None, 0
            if self._untold == run:
                self._untold = 0
            await self.stream.send("end", end, self._id())
        if reader:
            reader.told = True

    async def _read(self, work: Callable[[Execute], T]) -> T:
        return await self.door.store.run(work, durable=False)


@dataclass(slots=True)
class RunEvents:
    """The events of one run, by its number or that of a message which it takes, for one client. They end with it."""

    door: Door
    caller: Caller
    stream: EventSink
    subscription: Subscription
    run: int | None
    message: int | None
    position: RunPosition | None

    async def send(self) -> None:
        """Send events until the run ends."""
        reader: RunReader | None = None
        try:
            while not self.subscription.over:
                if self.run is None and await self._is_withdrawn():
                    return
                live = self.door.runs.find(self.run) if self.run is not None else None
                if live and (reader is None or reader.feed is not live.feed):
                    if reader:
                        reader.close()
                    reader = RunReader(live, self.door.current, self.subscription.woken)
                    await self._send(await reader.begin(self.position))
                if reader:
                    await self._send(reader.read())
                if reader is None or reader.ended:
                    if reader and reader.suspended:
                        return
                    if self.run is not None and await self._tell_end(complete=reader is not None and not reader.moved):
                        return
                await self.stream.wait()
        finally:
            if reader:
                reader.close()

    async def _send(self, events: Sequence[RunEvent]) -> None:
        for event in events:
            await self.stream.send(event.name, event.data, f"{event.position}")

    async def _is_withdrawn(self) -> bool:
        """Find the run that took the message. True: none will, and the end was sent."""
        row = await self._read(partial(inbox.find_row, row=self.message or 0))
        if row and (row.run is not None or row.state == InboxState.NEW):
            self.run = row.run
            return False
        await self.stream.send("end", {"id": None, "state": "withdrawn"}, ENDED)
        return True

    async def _tell_end(self, *, complete: bool) -> bool:
        """Send the end of the run, if it has ended; a client that missed a part of it gets the whole before."""
        run = self.run or 0
        if (end := await self._read(partial(find_end, caller=self.caller, run=run))) is None:
            return False
        if not complete:
            await self.stream.send("snapshot", await self._read(partial(stored_view, run=run)))
        await self.stream.send("end", end, ENDED)
        return True

    async def _read(self, work: Callable[[Execute], T]) -> T:
        return await self.door.store.run(work, durable=False)


def _states(execute: Execute, caller: Caller, threads: Sequence[str]) -> list[Json]:
    states = (read_models.thread_state(execute, caller, Thread.parse(thread)) for thread in threads)
    return [state for state in states if state]


def find_end(execute: Execute, caller: Caller, run: int) -> Json | None:
    """Return a run that has ended; None for one that goes on, or that the caller has not."""
    try:
        found, row, _thread = read_models.read_run(execute, caller, run)
    except HttpProblem:
        return None
    return None if row.state in (RunState.QUEUED, RunState.RUNNING) else found


def _stored_step(entry: StoredEntry) -> Json:
    title, detail = (entry.step_title, entry.text) if entry.step_title else (entry.text, "")
    about = {"id": entry.item.removeprefix("step:"), "title": title, "state": entry.state, "parent": entry.parent}
    return {**about, "detail": detail, "progress": "", "thinking": False, "output": entry.output}


def stored_view(execute: Execute, run: int) -> Json:
    """Return what a run showed, as its transcript has it."""
    row = runs.find_run(execute, run)
    entries = transcripts.read_run(execute, row.conversation, run) if row else []
    texts = [
        {"part": each.item.removeprefix("text:"), "text": each.text} for each in entries if each.kind == EntryKind.TEXT
    ]
    steps = [_stored_step(each) for each in entries if each.kind == EntryKind.STEP]
    files = [{"path": each.text, "caption": ""} for each in entries if each.kind == EntryKind.FILE and not each.author]
    more: Json = {"plan": [], "questions": [], "files": files, "notice": "", "kept": []}
    return {"run": run, "texts": texts, "steps": steps, **more}
