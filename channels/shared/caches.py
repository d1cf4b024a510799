"""Keep a bounded memory of recent entries, queue events fairly, and limit signs that cost a call."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import count
from operator import itemgetter
from typing import Generic, TypeVar

from channels.base import ChannelError

K = TypeVar("K")
V = TypeVar("V")

SWEEP_SIZE = 1000  # entries at which the expired ones are dropped


class ExpiringDict(Generic[K, V]):
    """Values by key, each until its time is over."""

    def __init__(self) -> None:
        self._entries: dict[K, tuple[V, float]] = {}  # with the time.monotonic() at which it expires
        self._sweep_size = SWEEP_SIZE

    def set(self, key: K, value: V, seconds: float) -> None:
        now = time.monotonic()
        if len(self._entries) >= self._sweep_size:
            self._entries = {known: entry for known, entry in self._entries.items() if entry[1] > now}
            self._sweep_size = max(SWEEP_SIZE, 2 * len(self._entries))
        self._entries[key] = value, now + seconds

    def get(self, key: K) -> V | None:
        """Return the value, or None if there is none or it has expired."""
        value, until = self._entries.get(key, (None, 0.0))
        return value if until > time.monotonic() else None

    def pop(self, key: K) -> V | None:
        """Remove the entry, and return its value unless it had expired."""
        value = self.get(key)
        self._entries.pop(key, None)
        return value

    def __contains__(self, key: K) -> bool:
        return self.get(key) is not None


class LatestDict(dict[K, V]):
    """The `max_entries` entries that were set last."""

    def __init__(self, max_entries: int) -> None:
        super().__init__()
        self._max_entries = max_entries

    def __setitem__(self, key: K, value: V) -> None:
        self.pop(key, None)
        super().__setitem__(key, value)
        if len(self) > self._max_entries:
            del self[next(iter(self))]


class TypingActions(Generic[K]):
    """The typing action of each place, sent only when it no longer shows."""

    def __init__(self, visible_seconds: float, send: Callable[[K], Awaitable[object]]) -> None:
        self._visible_seconds = visible_seconds
        self._send = send
        self._visible: ExpiringDict[K, bool] = ExpiringDict()

    def shows(self, place: K) -> bool:
        return place in self._visible

    async def show(self, place: K) -> None:
        """Show the action. Raises ChannelError."""
        if place in self._visible:
            return
        self._visible.set(place, True, self._visible_seconds)
        try:
            await self._send(place)
        except ChannelError:
            self.forget(place)
            raise

    def forget(self, place: K) -> None:
        """Note that a message of the bot ended the action."""
        self._visible.pop(place)


class FairQueue(Generic[V]):
    """A queue that serves people in turn: a flood of one person delays nobody else."""

    def __init__(self) -> None:
        self._of: dict[str, deque[tuple[int, V]]] = {}
        self._numbers = count()

    def put(self, person: str, item: V) -> None:
        self._of.setdefault(person, deque()).append((next(self._numbers), item))

    def take(self, most: int, of_one: int) -> list[V]:
        """Take up to `most`, and up to `of_one` of each person; return them in the order in which they came."""
        taken: list[tuple[int, V]] = []
        for person in list(self._of):
            waiting = self._of.pop(person)
            share = min(len(waiting), of_one, most - len(taken))
            taken += [waiting.popleft() for _ in range(share)]
            if waiting:
                self._of[person] = waiting  # behind those of others
            if len(taken) == most:
                break
        return [item for _number, item in sorted(taken, key=itemgetter(0))]


class Sparing:
    """Limits signs and answers that nothing depends on to a few for each person: each is a call that delays others."""

    MOST = 20  # of one person in `SECONDS`
    SECONDS = 10.0

    def __init__(self) -> None:
        self._counts: ExpiringDict[str, list[int]] = ExpiringDict()

    def admits(self, person: str) -> bool:
        """Count a sign, and return whether it is sent."""
        if (count := self._counts.get(person)) is None:
            self._counts.set(person, count := [0], self.SECONDS)
        count[0] += 1
        return count[0] <= self.MOST


class Presses:
    """Limits presses to more than a person can make: a program that presses on costs no transaction."""

    MOST = 50  # of one person in `SECONDS`
    SECONDS = 10.0

    def __init__(self) -> None:
        self._of: ExpiringDict[str, tuple[list[int], set[str]]] = ExpiringDict()  # how many, and which of them failed

    def admits(self, person: str, key: str) -> bool:
        """Count a press, unless it is offered again after it failed. Return whether it is to be stored."""
        if (known := self._of.get(person)) is None:
            self._of.set(person, known := ([0], set()), self.SECONDS)
        count, failed = known
        if key in failed:
            failed.remove(key)
            return True
        count[0] += 1
        return count[0] <= self.MOST

    def note_failure(self, person: str, key: str) -> None:
        """Note that a press could not be stored, and will be offered again."""
        if known := self._of.get(person):
            known[1].add(key)
