"""Keep all calls within Discord's limit per second, and streaming edits out of the way of final answers."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from channels.shared.rate_limit import Priority, RateLimitScope

WINDOW_SECONDS = 1.06  # calls may arrive closer together than they were sent
BURST_MARGIN = 5.0  # over the setting `overall` in one window: 50 of 45, which is 47 a second in the long run
STALE_SECONDS = 10.0  # a reply that was not updated for so long need not leave room for finals


class CallWindow:
    """The calls of the last second.

    Every open reply may end at any moment, so streaming edits leave room for one call of each: a final then goes at
    once. Where the replies outnumber the room, each is still updated every ten seconds.
    """

    def __init__(self, overall: float) -> None:
        self._max_calls = overall + BURST_MARGIN  # Discord allows 50 (…/docs/topics/rate-limits#global-rate-limit)
        self._calls: deque[float] = deque()  # loop times
        self._updated: dict[object, float] = {}  # open reply → loop time of its last call

    def open_reply(self, reply: object) -> None:
        """Leave room for the final of a reply."""
        self._updated[reply] = asyncio.get_running_loop().time()

    def close_reply(self, reply: object) -> None:
        """Leave no more room for a reply."""
        self._updated.pop(reply, None)

    async def wait(self) -> None:
        """Wait until a call keeps within the limit, and count it: a global 429 would stop all calls for longer."""
        while True:
            seconds = self._seconds_until(self._max_calls)
            if not seconds:
                break
            await asyncio.sleep(seconds)
        self._calls.append(asyncio.get_running_loop().time())

    async def wait_for_stream(self, reply: object) -> None:
        """Wait until an edit of a stream leaves room for finals. The caller makes its call at once."""
        loop = asyncio.get_running_loop()
        stale_at = self._updated.get(reply, 0.0) + STALE_SECONDS
        while True:
            seconds = min(self._seconds_until(self._max_calls - len(self._updated)), stale_at - loop.time())
            if seconds <= 0:
                break
            await asyncio.sleep(seconds)
        if reply in self._updated:
            self._updated[reply] = loop.time()

    def _seconds_until(self, most: float) -> float:
        """Return the seconds until the window has fewer than `most` calls."""
        now = asyncio.get_running_loop().time()
        while self._calls and self._calls[0] <= now - WINDOW_SECONDS:
            self._calls.popleft()
        if most < 1:
            return WINDOW_SECONDS
        excess = len(self._calls) - int(most)
        return self._calls[excess] + WINDOW_SECONDS - now if excess >= 0 else 0.0


@dataclass(frozen=True, slots=True)
class DiscordScope(RateLimitScope):
    """The rate limit of one reply."""

    window: CallWindow = field(kw_only=True)
    reply: object = field(kw_only=True)

    async def acquire(self, priority: Priority) -> None:
        await RateLimitScope.acquire(self, priority)
        if priority is Priority.STREAM:
            try:
                await self.window.wait_for_stream(self.reply)
            except asyncio.CancelledError:
                self.release_unused()
                raise
