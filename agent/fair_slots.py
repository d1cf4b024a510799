"""Places for work at once, shared fairly: model calls and the tasks of sub-agents wait for them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

SlotGroups = Mapping[Any, int]
"""The groups in which a place counts, with the limit of each."""


@dataclass(eq=False, slots=True)
class _Waiter:
    owner: Hashable
    groups: SlotGroups
    yields_until: float  # loop time until which other work goes first
    place: asyncio.Future[None]


class FairSlots:
    """Grant places as long as no group exceeds its limit.

    The owner with the fewest places goes first, and equal owners take turns, however many places each waits for.
    Background work lets all other work go first until it has waited for `background_seconds`.
    """

    def __init__(self, background_seconds: float = 30.0) -> None:
        self._background_seconds = background_seconds
        self._used: Counter[Hashable] = Counter()  # places by group
        self._held: Counter[Hashable] = Counter()  # places by owner
        self._waiting: list[_Waiter] = []
        self._rank: dict[Hashable, int] = {}  # of the owners that wait: when each last got a place or began to wait
        self._last_rank = 0

    @property
    def used(self) -> int:
        """How many places are held."""
        return self._held.total()

    @property
    def waiting(self) -> int:
        """How many places are waited for."""
        return len(self._waiting)

    def has_room(self, groups: SlotGroups) -> bool:
        """Return whether no group is full."""
        return all(self._used[group] < limit for group, limit in groups.items())

    async def acquire(self, owner: Hashable, groups: SlotGroups, *, background: bool = False) -> None:
        """Wait for a place."""
        if not self._waiting and self.has_room(groups):
            self._take(owner, groups)
            return
        loop = asyncio.get_running_loop()
        yields_until = loop.time() + self._background_seconds if background else 0.0
        waiter = _Waiter(owner, groups, yields_until, loop.create_future())
        self._waiting.append(waiter)
        if owner not in self._rank:
            self._move_back(owner)
        self._grant()
        try:
            await waiter.place
        except asyncio.CancelledError:
            if waiter in self._waiting:
                self._leave(waiter)
            else:  # granted and cancelled in the same step
                self.release(owner, groups)
            raise

    def release(self, owner: Hashable, groups: SlotGroups) -> None:
        """Return a place."""
        for counter, keys in ((self._used, groups), (self._held, (owner,))):
            for key in keys:
                counter[key] -= 1
                if not counter[key]:
                    del counter[key]
        self._grant()

    def _grant(self) -> None:
        now = asyncio.get_running_loop().time() if self._waiting else 0.0
        while allowed := [each for each in self._waiting if not each.place.done() and self.has_room(each.groups)]:
            chosen = min(
                allowed, key=lambda each: (now < each.yields_until, self._held[each.owner], self._rank[each.owner])
            )
            self._take(chosen.owner, chosen.groups)
            self._move_back(chosen.owner)
            self._leave(chosen)
            chosen.place.set_result(None)

    def _take(self, owner: Hashable, groups: SlotGroups) -> None:
        self._used.update(groups.keys())
        self._held[owner] += 1

    def _move_back(self, owner: Hashable) -> None:
        self._last_rank += 1
        self._rank[owner] = self._last_rank

    def _leave(self, waiter: _Waiter) -> None:
        self._waiting.remove(waiter)
        if not any(each.owner == waiter.owner for each in self._waiting):
            del self._rank[waiter.owner]


@dataclass(slots=True)
class CallingProcesses:
    """How many processes call the same models: each has its part of the places, and at least one."""

    count: int = 1

    def part(self, limit: int) -> int:
        """Return the part of a limit that is this process's."""
        return max(1, limit // self.count)


PROCESSES = CallingProcesses()


def share_model_calls(processes: int) -> None:
    """Count so many processes that call the models of the configuration."""
    PROCESSES.count = max(1, processes)
