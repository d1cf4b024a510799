"""Say what readers of a run need of it: in progress here or at another process, or just ended."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from agent.blocks import View
from agent.messages import Thread
from bot.journey.feed import RunFeed
from bot.journey.transcript import with_thoughts
from bot.rights.current import Current

log = logging.getLogger(__name__)


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
