"""Rate limits of a platform: token buckets per chat and account, with priorities."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from channels.base import TryLater


class Priority(IntEnum):
    """The order of calls when the rate limit is reached."""

    FINAL = 0  # a message that stays
    FIRST = 1  # the first words of a reply
    STREAM = 2  # progress, which the next call makes obsolete


SAFETY_FACTOR = 0.95  # of the overall limit: calls may arrive closer together than they were sent


@dataclass(frozen=True, slots=True)
class RateLimits:
    """Calls per second in a chat and overall, calls per minute in a group, and `burst` calls at once."""

    chat: float = 1.0
    burst: int = 2
    group_minute: float = 20.0
    overall: float = 30.0


class TokenBucket:
    """Tokens that refill at `rate` per second up to `size`.

    Streaming calls leave `reserve` tokens for others, first words leave `first`.
    """

    def __init__(self, rate: float, size: float, reserve: float, first: float = 0.0) -> None:
        self._rate = rate
        self._size = size
        self._reserves = {Priority.FINAL: 0.0, Priority.FIRST: first, Priority.STREAM: reserve}
        self._loop = asyncio.get_running_loop()
        self._tokens = size
        self._at = self._loop.time()
        self._closed_until = 0.0
        self._order = itertools.count()
        self._waiting: list[tuple[Priority, int, asyncio.Future[None]]] = []
        self._timer: asyncio.TimerHandle | None = None

    def seconds_until_free(self, priority: Priority) -> float:
        """Return the seconds until such a call is allowed, if no other comes first."""
        now = self._loop.time()
        self._tokens = min(self._size, self._tokens + max(0.0, now - self._at) * self._rate)
        self._at = max(self._at, now)
        need = 1 + self._reserves[priority] - self._tokens
        return max(self._closed_until - now, need / self._rate if need > 1e-9 else 0.0, 0.0)

    def try_acquire(self, priority: Priority) -> bool:
        """Take a token if one is available now."""
        if self._waiting or self.seconds_until_free(priority):
            return False
        self._tokens -= 1
        return True

    async def acquire(self, priority: Priority) -> None:
        """Wait for a token: by priority, then in order."""
        if self.try_acquire(priority):
            return
        turn = self._loop.create_future()
        heapq.heappush(self._waiting, (priority, next(self._order), turn))
        self._serve_waiting()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the token was granted at the same moment
                self.release_unused()
            raise

    def release_unused(self) -> None:
        """Return a token that was not used."""
        self._tokens = min(self._size, self._tokens + 1)
        self._serve_waiting()

    def pause(self, seconds: float) -> None:
        """Allow no call for so many seconds, because the platform asked for it."""
        self._closed_until = max(self._closed_until, self._loop.time() + seconds)

    def drain(self) -> None:
        """Begin without tokens after the pause, because the platform counts more calls than we do."""
        self._tokens = 0.0
        self._at = max(self._loop.time(), self._closed_until)

    def paused_seconds(self) -> float:
        """Return the seconds until the end of the pause."""
        return max(0.0, self._closed_until - self._loop.time())

    @property
    def is_idle(self) -> bool:
        return (
            not self._waiting
            and not self.paused_seconds()
            and not self.seconds_until_free(Priority.FINAL)
            and self._tokens >= self._size
        )

    def _serve_waiting(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            priority, _, turn = self._waiting[0]
            if not turn.done():
                if wait := self.seconds_until_free(priority):
                    self._timer = self._loop.call_later(max(wait, 0.001), self._serve_waiting)
                    return
                self._tokens -= 1
                turn.set_result(None)
            heapq.heappop(self._waiting)


class RateLimiter:
    """The buckets of one platform account: one per chat, one for all. Finals go first, then first words, then streams.

    In a chat a streaming call leaves one token, so that the final never waits. Overall, streams and first words leave
    most of the burst for many finals at once, at no cost in the long run.
    """

    MAX_FINAL_WAIT_SECONDS = 2.0  # for a paused chat, before TryLater

    def __init__(self, rates: RateLimits) -> None:
        self._rates = rates
        burst = max(1.0, rates.overall * SAFETY_FACTOR)
        spare = burst - 1
        self._all = TokenBucket(
            rates.overall * SAFETY_FACTOR, burst, min(0.85 * burst, spare), min(0.75 * burst, spare)
        )
        self._chats: dict[str, TokenBucket] = {}
        self._sweep_size = 4096  # number of chats at which the idle ones are dropped

    async def acquire(self, chat: str, priority: Priority, *, group: bool = False) -> None:
        """Wait until a call to `chat` is allowed. Raises TryLater for a final if the chat is paused."""
        bucket = self._chat_bucket(chat, group)
        if priority is Priority.FINAL and (left := bucket.paused_seconds()) > self.MAX_FINAL_WAIT_SECONDS:
            raise TryLater(f"the platform asked to retry after {left:.3g} s", left)
        await bucket.acquire(priority)
        try:
            await self._all.acquire(priority)
        except asyncio.CancelledError:
            bucket.release_unused()
            raise

    def try_acquire(self, chat: str, priority: Priority, *, group: bool = False) -> bool:
        """Take the tokens of a call if they are available now."""
        bucket = self._chat_bucket(chat, group)
        if not bucket.try_acquire(priority):
            return False
        if self._all.try_acquire(priority):
            return True
        bucket.release_unused()
        return False

    def release_unused(self, chat: str) -> None:
        """Return the tokens of a call that was not made."""
        if bucket := self._chats.get(chat):
            bucket.release_unused()
        self._all.release_unused()

    def pause_chat(self, chat: str, seconds: float, *, group: bool = False) -> None:
        """Allow no call to this chat for so many seconds; others continue."""
        self._chat_bucket(chat, group).pause(seconds)

    def _chat_bucket(self, chat: str, group: bool) -> TokenBucket:
        if bucket := self._chats.get(chat):
            return bucket
        if len(self._chats) >= self._sweep_size:
            self._chats = {key: known for key, known in self._chats.items() if not known.is_idle}
            self._sweep_size = max(4096, 2 * len(self._chats))
        burst = self._rates.burst
        # A full bucket and the refill of a minute together are the group's limit in any minute.
        rate = min(self._rates.chat, max(self._rates.group_minute - burst, 1) / 60) if group else self._rates.chat
        self._chats[chat] = TokenBucket(rate, burst, min(1, burst - 1))
        return self._chats[chat]


class ReplyRateLimit(Protocol):
    """The rate limit of one reply's calls.

    `idempotent_posts`: how often a message may be posted while the outcomes are unknown, where a repeated post is
    visible once and needs no mark; 0 where it is visible again.
    """

    @property
    def idempotent_posts(self) -> int: ...

    async def acquire(self, priority: Priority) -> None:
        """Wait until a call is allowed. Raises TryLater."""

    def try_acquire(self, priority: Priority) -> bool:
        """Take the tokens of a call if they are available now."""

    def release_unused(self) -> None:
        """Return the tokens of a call that was not made."""

    def pause(self, seconds: float) -> None:
        """Allow no streaming call for so many seconds."""


@dataclass(frozen=True, slots=True)
class RateLimitScope:
    """The rate limit of a reply: that of its chat, and the overall one."""

    limiter: RateLimiter
    chat: str
    group: bool = False
    idempotent_posts: int = 0

    async def acquire(self, priority: Priority) -> None:
        await self.limiter.acquire(self.chat, priority, group=self.group)

    def try_acquire(self, priority: Priority) -> bool:
        return self.limiter.try_acquire(self.chat, priority, group=self.group)

    def release_unused(self) -> None:
        self.limiter.release_unused(self.chat)

    def pause(self, seconds: float) -> None:
        self.limiter.pause_chat(self.chat, seconds, group=self.group)
