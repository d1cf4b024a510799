"""Slack's rate limits: one budget per method and workspace, shared fairly by all replies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from channels.shared.http_client import RateLimited
from channels.shared.posts import IDEMPOTENT_POSTS
from channels.shared.rate_limit import SAFETY_FACTOR, Priority, TokenBucket

LIMITED_PER_CHANNEL = "chat.postMessage"
CALLS_PER_MINUTE = {
    "chat.startStream": 20,
    "chat.stopStream": 20,
    "reactions.remove": 20,
    "users.conversations": 20,
    "chat.appendStream": 100,
    "users.info": 100,
    "chat.postMessage": 60,
}
DEFAULT_CALLS_PER_MINUTE = 50  # of any other method in a workspace (docs.slack.dev/apis/web-api/rate-limits)
BURST = 1 / 6  # of a minute's calls may come at once…
STREAM_RESERVE, FIRST_RESERVE = 1 / 2, 1 / 4  # …of which live calls leave these shares for other calls
MAX_FINAL_WAIT_SECONDS = 2.0  # for a method that Slack has closed, before TryLater


class MethodLimits:
    """The limits of one workspace, with `rate_factor` times Slack's rates."""

    def __init__(self, rate_factor: float) -> None:
        self._rate_factor = rate_factor
        self._buckets: dict[tuple[str, str], TokenBucket] = {}

    async def acquire(self, method: str, channel: str, priority: Priority) -> None:
        """Wait until a call is allowed: by priority, then in order. Raises RateLimited for a final one while closed."""
        bucket = self._bucket(method, channel)
        if priority is Priority.FINAL and (left := bucket.paused_seconds()) > MAX_FINAL_WAIT_SECONDS:
            raise RateLimited("Slack", left)
        await bucket.acquire(priority)

    def seconds_until_free(self, method: str, channel: str) -> float:
        """Return the seconds until a final call is allowed, if no other comes first."""
        return self._bucket(method, channel).seconds_until_free(Priority.FINAL)

    def pause(self, method: str, channel: str, seconds: float) -> None:
        """Close a method for the seconds that Slack asked for; after that its calls come without a burst."""
        bucket = self._bucket(method, channel)
        bucket.pause(seconds)
        bucket.drain()

    def _bucket(self, method: str, channel: str) -> TokenBucket:
        key = method, channel if method == LIMITED_PER_CHANNEL else ""
        if known := self._buckets.get(key):
            return known
        if len(self._buckets) > 1000:
            self._buckets = {other: bucket for other, bucket in self._buckets.items() if not bucket.is_idle}
        calls = CALLS_PER_MINUTE.get(method, DEFAULT_CALLS_PER_MINUTE) * SAFETY_FACTOR * self._rate_factor
        size = max(2.0, calls * BURST)
        self._buckets[key] = TokenBucket(calls / 60, size, size * STREAM_RESERVE, size * FIRST_RESERVE)
        return self._buckets[key]


class ReplyLimit:
    """The rate limit of one reply, as its writer sees it.

    A live call waits here, and so shows the latest state; any other call waits in `SlackApi`.
    """

    idempotent_posts = IDEMPOTENT_POSTS  # a post of unknown outcome is searched for

    def __init__(self, reserve: Callable[[Priority], Awaitable[None]]) -> None:
        self._reserve = reserve
        self._paused_until = 0.0  # in the loop's time

    async def acquire(self, priority: Priority) -> None:
        if priority is not Priority.FINAL:
            await asyncio.sleep(max(0.0, self._paused_until - asyncio.get_running_loop().time()))
            await self._reserve(priority)

    def try_acquire(self, priority: Priority) -> bool:
        """Refuse: only placeholders ask, and Slack shows none."""
        return False

    def release_unused(self) -> None:
        """Keep the reservation for the next call."""

    def pause(self, seconds: float) -> None:
        self._paused_until = asyncio.get_running_loop().time() + seconds
