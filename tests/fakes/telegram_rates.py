"""Telegram's rate limits as token buckets."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Bucket:
    """A token bucket: `rate` tokens a second, at most `burst`."""

    rate: float
    burst: float
    tokens: float = -1.0
    at: float = 0.0

    def wait(self, now: float, cost: float) -> float:
        """Seconds until `cost` tokens are there (0: now)."""
        self.tokens = self.burst if self.tokens < 0 else min(self.burst, self.tokens + (now - self.at) * self.rate)
        self.at = now
        return max(0.0, (cost - self.tokens) / self.rate)


@dataclass(slots=True)
class Rates:
    """Telegram's limits (core.telegram.org/bots/faq): 1 message/s in a chat, 20/min in a group, 30/s in all.

    The bursts are a little wider than a polite client's, because calls can bunch up on the way.
    """

    chat: tuple[float, float] = (1.0, 3.0)
    group: tuple[float, float] = (20 / 60, 21.0)
    overall: tuple[float, float] = (30.0, 33.0)
    refused: int = 0  # the number of calls that were too fast
    _buckets: dict[object, Bucket] = field(default_factory=dict)

    def scale(self, factor: float) -> None:
        """Allow so many times the documented limits."""
        self.chat, self.group, self.overall = (
            (rate * factor, burst * factor) for rate, burst in (self.chat, self.group, self.overall)
        )

    def take(self, chat: int, cost: int) -> float:
        """Seconds to wait when this is too fast, else 0 and the call is counted."""
        now = time.monotonic()
        wanted: list[tuple[object, tuple[float, float]]] = [("all", self.overall), (chat, self.chat)]
        if chat < 0:
            wanted.append((("group", chat), self.group))
        buckets = [self._buckets.setdefault(key, Bucket(*limit)) for key, limit in wanted]
        if late := max(bucket.wait(now, min(cost, bucket.burst)) for bucket in buckets):
            self.refused += 1
            return late
        for bucket in buckets:
            bucket.tokens -= cost
        return 0.0
