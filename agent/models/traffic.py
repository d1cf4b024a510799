"""Calls to the servers of models: places at once, the pause that a server asks for, and servers that are down."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Hashable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from agent.backoff import jitter
from agent.blocks import Notice
from agent.fair_slots import PROCESSES, FairSlots, SlotGroups
from agent.models.errors import ErrorVerdict, classify_error
from agent.settings.models import CallLimits, ModelSettings, TellPause, tell_nobody
from agent.spending import Meter
from catalogue import _

MAX_PAUSE_SECONDS = 60.0
NOTICE_SECONDS = 2.0  # a call that waits for longer tells people
ALL_CALLS = "all calls"


@dataclass(eq=False, slots=True)
class Endpoint:
    """One server, and what the calls of all its models learned about it. Times are time.monotonic().

    After `max_failures` in a row (0: never) it is down. A call then goes to it only if no other model can answer, and
    one call every `skip_seconds` finds out whether it has recovered. The cause may be what one conversation sends, so
    that one alone can fill only half of the count for others; for itself, all its failures count.
    """

    max_failures: int
    skip_seconds: float
    tell_pause: Callable[[float], None]  # to other processes, which call the same server
    failures: int = 0
    _by_conversation: dict[str, int] = field(default_factory=dict)
    _skipped_until: float = 0.0
    _paused_until: float = 0.0

    @property
    def is_down(self) -> bool:
        """Whether the last calls of several conversations failed."""
        share = max(1, self.max_failures // 2)
        counted = sum(min(count, share) for count in self._by_conversation.values())
        return len(self._by_conversation) > 1 and counted >= self.max_failures

    def is_down_for(self, conversation: str) -> bool:
        """Whether it is down, or failed as often for this conversation alone."""
        return self.is_down or 0 < self.max_failures <= self._by_conversation.get(conversation, 0)

    @property
    def seconds_to_next_try(self) -> float:
        """How long calls skip it, while it is down for them."""
        return max(0.0, self._skipped_until - time.monotonic()) if self._skipped_until else 0.0

    @property
    def pause_seconds(self) -> float:
        """How long calls must wait because the server asked for it."""
        return max(0.0, self._paused_until - time.monotonic()) if self._paused_until else 0.0

    def pause(self, seconds: float) -> None:
        """Have calls wait for so long, or longer if they do already; MAX_PAUSE_SECONDS at most."""
        self._paused_until = max(self._paused_until, time.monotonic() + min(seconds, MAX_PAUSE_SECONDS))

    def admits_call(self, conversation: str) -> bool:
        """Return whether a call should go to it now. A call that finds out about a recovery counts as begun."""
        if not self.is_down_for(conversation):
            return True
        if self.seconds_to_next_try:
            return False
        self._skipped_until = time.monotonic() + self.skip_seconds  # a cancelled try needs no clean-up
        return True

    def record_answer(self) -> None:
        """Note that it works."""
        self.failures, self._skipped_until = 0, 0.0
        self._by_conversation.clear()

    def record_failure(self, verdict: ErrorVerdict, conversation: str | None) -> None:
        """Note an error of a call for a conversation; None: nobody waits for it, so that it proves no outage.

        An error that concerns only the request proves that the server works.
        """
        if verdict.retry_after_seconds:
            self.pause(verdict.retry_after_seconds)
            self.tell_pause(self.pause_seconds)
        if not verdict.is_outage:
            self.record_answer()
            return
        if conversation is None or not self.max_failures:
            return
        self.failures += 1
        if not self.is_down:  # it need not be known how many more there are
            self._by_conversation[conversation] = self._by_conversation.get(conversation, 0) + 1
        if self.is_down_for(conversation):
            self._skipped_until = time.monotonic() + self.skip_seconds


@dataclass(frozen=True, slots=True)
class EndpointState:
    """What operators see of a server: the labels of its models, and whole seconds."""

    models: tuple[str, ...]
    down: bool
    failures: int
    retry_in: int
    paused: int


@dataclass(frozen=True, slots=True)
class ModelTraffic:
    """The endpoints and places that the models of one configuration share."""

    limits: CallLimits = field(default_factory=CallLimits)
    slots: FairSlots = field(default_factory=FairSlots)
    tell_pause: TellPause = tell_nobody
    _endpoints: dict[str, Endpoint] = field(default_factory=dict)

    def endpoint_of(self, settings: ModelSettings) -> Endpoint:
        """Return the server of a model."""
        key = settings.server
        if key not in self._endpoints:
            limits, tell = self.limits, partial(self.tell_pause, key)
            self._endpoints[key] = Endpoint(limits.endpoint_failures, limits.endpoint_seconds, tell)
        return self._endpoints[key]

    def states(self, models: Iterable[ModelSettings]) -> list[EndpointState]:
        """Return the state of each server of these models."""
        labels: dict[Endpoint, list[str]] = {}
        for settings in models:
            labels.setdefault(self.endpoint_of(settings), []).append(settings.label)
        return [
            EndpointState(
                models=tuple(names),
                down=0 < endpoint.max_failures <= endpoint.failures,
                failures=endpoint.failures,
                retry_in=math.ceil(endpoint.seconds_to_next_try),
                paused=math.ceil(endpoint.pause_seconds),
            )
            for endpoint, names in labels.items()
        ]

    def groups_of(self, settings: ModelSettings) -> SlotGroups:
        """Return the limits that a call of a model counts against."""
        limits = {ALL_CALLS: self.limits.model_calls, ("model", settings.name): settings.calls}
        return {group: PROCESSES.part(limit) for group, limit in limits.items() if limit}


class CalledModel(Protocol):
    """A model, as far as the places for its calls go."""

    @property
    def traffic(self) -> ModelTraffic:
        """What its calls share with those of other models."""

    @property
    def endpoint(self) -> Endpoint:
        """The server of the model."""

    @property
    def groups(self) -> SlotGroups:
        """The limits that its calls count against."""


@asynccontextmanager
async def model_call(
    entry: CalledModel,
    meter: Meter,
    *,
    background: bool = False,
    emit: Callable[[Any], object] | None = None,
) -> AsyncIterator[None]:
    """Hold a place for a call, and note how the call ended. The calls of one turn share the places fairly with others.

    Waits for the end of a pause first, without a place, so that one slow provider delays only its own calls.
    """
    endpoint, slots, groups = entry.endpoint, entry.traffic.slots, entry.groups
    owner = meter.root
    while True:
        if wait := endpoint.pause_seconds:
            if emit and wait >= NOTICE_SECONDS:
                text = _("My model's server asked for a pause. I continue in {seconds} s.", seconds=round(wait))
                emit(Notice("pause", text))
            await asyncio.sleep(wait + jitter(wait / 10))
        if not groups:
            break
        await _wait_for_place(slots, owner, groups, background, emit)
        if not endpoint.pause_seconds:
            break
        slots.release(owner, groups)
    try:
        yield
    except Exception as error:
        if verdict := classify_error(error):
            endpoint.record_failure(verdict, None if background else owner.conversation)
        raise
    else:
        endpoint.record_answer()
    finally:
        if groups:
            slots.release(owner, groups)


async def _wait_for_place(
    slots: FairSlots, owner: Hashable, groups: SlotGroups, background: bool, emit: Callable[[Any], object] | None
) -> None:
    if emit is None or slots.has_room(groups):
        await slots.acquire(owner, groups, background=background)
        return
    notice = Notice("place", _("All places for model calls are in use. I continue when one is free."))
    timer = asyncio.get_running_loop().call_later(NOTICE_SECONDS, emit, notice)
    try:
        await slots.acquire(owner, groups, background=background)
    finally:
        timer.cancel()
