"""Places for tasks: a few for each turn, and a number for all turns that is shared fairly."""

from __future__ import annotations

import asyncio
from collections import Counter


class TaskSlots:
    """Grant at most `per_turn` places to each turn and `live` to all. The turn with the fewest places goes first."""

    def __init__(self, per_turn: int, live: int) -> None:
        self._per_turn, self._live = per_turn, live
        self._used: Counter[object] = Counter()
        self._waiting: list[tuple[object, asyncio.Future[None]]] = []

    def has_room(self, turn: object) -> bool:
        """Return whether this turn may get a place without waiting for one of its own tasks."""
        return self._used[turn] < self._per_turn

    async def acquire(self, turn: object) -> None:
        """Wait for a place."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, place))
        self._grant()
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # granted and cancelled in the same step
                self.release(turn)
            self._waiting = [each for each in self._waiting if each[1] is not place]
            raise

    def release(self, turn: object) -> None:
        """Return a place."""
        self._used[turn] -= 1
        if not self._used[turn]:
            del self._used[turn]
        self._grant()

    def _grant(self) -> None:
        while self._used.total() < self._live:
            allowed = [each for each in self._waiting if self.has_room(each[0]) and not each[1].done()]
            if not allowed:
                return
            chosen = min(allowed, key=lambda each: self._used[each[0]])  # the first one of equal turns
            self._waiting.remove(chosen)
            self._used[chosen[0]] += 1
            chosen[1].set_result(None)
