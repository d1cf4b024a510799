"""The blocks of the running turns, numbered, for any number of readers. Attach a reader with `Feed.watch`.

The channel's reply and the transcript are called with each block at once. A watcher reads at its own pace from a ring
of the latest blocks. No reader delays the turn or another reader.

Say what readers of a run need of it: in progress here or at another process, or just ended.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from agent.blocks import Block, Done, Step, View
from agent.messages import Thread
from bot.journey.transcript import with_thoughts
from bot.rights.current import Current

log = logging.getLogger(__name__)

RING_BLOCKS = 512
SUSPENDED = "suspended"  # how a run ends that a later process resumes
MOVED = "moved"  # …that goes on elsewhere, or whose process tells no more


@dataclass(frozen=True, slots=True)
class Ended:
    """The run ended in this process. `state` is a RunState, or `suspended`: a later process resumes the run."""

    state: str


@dataclass(frozen=True, slots=True)
class NumberedBlock:
    """A block of a run. A View replaces the blocks up to this number, where the ring does not hold them any more."""

    number: int
    content: Block | View | Ended


class RunFeed:
    """The blocks of one run. `readers` are called with each published block and must return at once."""

    def __init__(self, *readers: Callable[[Block], None], began: int = 0) -> None:
        self.view = View()
        self.thoughts: tuple[Step, ...] = ()  # the reasoning of an earlier attempt, which no checkpoint has
        self.state = ""  # how the run ended in this process
        # `began` names this execution of the run: numbers of another one mean nothing
        self.began = began or time.time_ns() // 1_000_000
        self._readers = [*readers]
        self._ring: deque[Block | Ended] = deque(maxlen=RING_BLOCKS)
        self._last = 0  # the number of the latest block
        self._ended = False
        self._watchers: set[asyncio.Event] = set()

    def add_reader(self, reader: Callable[[Block], None]) -> None:
        """Call `reader` with each block from now on."""
        self._readers.append(reader)

    def publish(self, block: Block) -> None:
        """Number a block and show it to every reader. A reader that fails gets no further blocks."""
        self.record(block)
        for reader in () if isinstance(block, Done) else tuple(self._readers):
            try:
                reader(block)
            except Exception:  # the boundary of one reader
                log.exception("feed.reader_failed")
                self._readers.remove(reader)

    def record(self, block: Block) -> None:
        """Number a block for the watchers only: the outbox delivers the end of a turn to the chat."""
        self.view.add(block)
        self._append(block)

    def end(self, state: str) -> None:
        """Tell the watchers that the run ended."""
        self._ended, self.state = True, state
        self._append(Ended(state))

    def _append(self, content: Block | Ended) -> None:
        self._ring.append(content)
        self._last += 1
        for woken in self._watchers:
            woken.set()

    def catch_up(self, view: View, number: int) -> None:
        """Go on behind block `number`, with what the run shows up to there."""
        self.view = view
        self._ring.clear()
        self._last = number
        for woken in self._watchers:
            woken.set()

    def follow(self, woken: asyncio.Event) -> None:
        """Set an event with each block from now on, until `unfollow`."""
        self._watchers.add(woken)

    def unfollow(self, woken: asyncio.Event) -> None:
        """Set it no more."""
        self._watchers.discard(woken)

    @property
    def last(self) -> int:
        """The number of the latest block."""
        return self._last

    def holds(self, after: int) -> bool:
        """Whether all that follows number `after` can be read block by block."""
        return self._last - len(self._ring) <= after <= self._last

    def read(self, after: int) -> Sequence[NumberedBlock]:
        """Return what follows number `after`: a View alone where the ring does not hold it."""
        first = self._last - len(self._ring)
        if not self.holds(after):  # behind the ring, or a number of an earlier process
            return [NumberedBlock(self._last - self._ended, copy.deepcopy(self.view))]
        return [
            NumberedBlock(number, each)
            for number, each in enumerate(islice(self._ring, after - first, None), after + 1)
        ]

    async def watch(self, after: int = 0) -> AsyncGenerator[NumberedBlock, None]:
        """Yield what follows number `after`, as it comes. The last item is Ended."""
        woken = asyncio.Event()
        self.follow(woken)
        try:
            while True:
                for numbered in self.read(after):
                    after = numbered.number
                    yield numbered
                if after == self._last:
                    if self._ended:
                        return
                    await woken.wait()
                    woken.clear()
        finally:
            self.unfollow(woken)


class Feed:
    """The feeds of the runs in progress."""

    def __init__(self) -> None:
        self._runs: dict[int, RunFeed] = {}

    def begin_run(self, run: int, *readers: Callable[[Block], None]) -> RunFeed:
        """Return the feed of a run that begins or resumes."""
        feed = self._runs[run] = RunFeed(*readers)
        return feed

    def end_run(self, run: int, state: str) -> None:
        """Tell the watchers of a run how it ended. Only the first call has an effect."""
        if feed := self._runs.pop(run, None):
            feed.end(state)

    def watch(self, run: int, after: int = 0) -> AsyncGenerator[NumberedBlock, None]:
        """Yield the blocks of a run after number `after`. Raises LookupError unless it runs: read its transcript."""
        if run not in self._runs:
            raise LookupError(f"run {run} is not in progress")
        return self._runs[run].watch(after)


class FedJob(Protocol):
    """Which run it is. `bot.rights.claimed_run.ClaimedRun` is one."""

    @property
    def run(self) -> int: ...

    @property
    def conversation(self) -> str: ...

    @property
    def thread(self) -> Thread: ...

    @property
    def attempt(self) -> int: ...

    @property
    def started(self) -> float: ...

    @property
    def asked(self) -> float: ...

    @property
    def resumed(self) -> bool: ...

    @property
    def recalled(self) -> Collection[str]: ...


class FedRun(Protocol):
    """A run whose blocks can be read."""

    @property
    def job(self) -> FedJob: ...

    @property
    def feed(self) -> RunFeed: ...


@dataclass(frozen=True, slots=True)
class KeptJob:
    """Which run it is, without what only its work needs."""

    run: int
    conversation: str
    thread: Thread
    attempt: int
    started: float
    asked: float
    resumed: bool
    recalled: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class KeptRun:
    """A run without what only its progress needs."""

    job: FedJob
    feed: RunFeed


async def recall(live: FedRun, current: Current) -> View:
    """Return what earlier attempts of a run did, which its checkpoint has."""
    view = View()
    if live.job.recalled:
        try:
            async with current.use_agent() as agent:
                found = await agent.recall(live.job.conversation, {*live.job.recalled})
                for block in with_thoughts(found, live.feed.thoughts):
                    view.add(block)
        except Exception:  # the boundary of one reader, who then sees this attempt only
            log.exception("events.not_recalled run=%d", live.job.run)
    return view
