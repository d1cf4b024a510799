"""Places for tasks: a few for each turn, and a number for all turns that is shared fairly."""

from __future__ import annotations

from collections.abc import Hashable

from agent.fair_slots import FairSlots, SlotGroups

ALL_TURNS = "all turns"


class TaskSlots:
    """Grant at most `per_turn` places to each turn and `live` to all."""

    def __init__(self, per_turn: int, live: int) -> None:
        self._per_turn, self._live = per_turn, live
        self._slots = FairSlots()

    def has_room(self, turn: Hashable) -> bool:
        """Return whether this turn may get a place without waiting for one of its own tasks."""
        return self._slots.has_room({turn: self._per_turn})

    async def acquire(self, turn: Hashable) -> None:
        """Wait for a place."""
        await self._slots.acquire(turn, self._groups(turn))

    def release(self, turn: Hashable) -> None:
        """Return a place."""
        self._slots.release(turn, self._groups(turn))

    def _groups(self, turn: Hashable) -> SlotGroups:
        return {turn: self._per_turn, ALL_TURNS: self._live}
