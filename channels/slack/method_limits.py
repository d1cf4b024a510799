"""Rate limits that Slack has imposed, per method and channel."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from channels.base import TryLater
from channels.shared.http_client import RateLimited

LIMITED_PER_CHANNEL = "chat.postMessage"
CALLS_PER_MINUTE = {
    "chat.startStream": 20,
    "chat.stopStream": 20,
    "chat.appendStream": 100,
    "users.info": 100,
    "chat.postMessage": 60,
}
DEFAULT_CALLS_PER_MINUTE = 50  # of any other method in a workspace (docs.slack.dev/apis/web-api/rate-limits)
MIN_COOLDOWN_SECONDS, MAX_COOLDOWN_SECONDS = 2.0, 60.0  # doubled by every 429 soon after the last
FORGET_SECONDS = 60.0  # without a 429, after which the cooldown begins with the minimum again


@dataclass(slots=True)
class MethodLimit:
    """The limit of one method. Times are time.monotonic()."""

    closed_until: float = 0.0
    last_slot: float = 0.0  # the latest time that a waiting caller was given
    cooldown_until: float = 0.0  # live calls wait until then
    cooldown_seconds: float = 0.0


class MethodLimits:
    """The limits of one workspace after a 429. Calls are not limited before, because Slack says when it is enough."""

    def __init__(self) -> None:
        self._limits: dict[tuple[str, str], MethodLimit] = {}

    def raise_if_closed(self, method: str, channel: str, *, live: bool) -> None:
        """Raise TryLater while the method is closed, or cools down if the call is `live`.

        Waiting callers get staggered retry times at the pace of the method's tier, so that Slack does not reject them
        all again.
        """
        limit = self._limits.get(_limit_key(method, channel))
        if limit is None:
            return
        now = time.monotonic()
        if live and now < limit.cooldown_until:
            spread = random.random() * limit.cooldown_seconds  # noqa: S311 — no secret
            raise TryLater("final messages go first", limit.cooldown_until - now + spread)
        if now < limit.closed_until:
            interval = 60 / CALLS_PER_MINUTE.get(method, DEFAULT_CALLS_PER_MINUTE)
            limit.last_slot = max(limit.closed_until, limit.last_slot + interval)
            raise RateLimited("Slack", limit.last_slot - now)

    def close(self, method: str, channel: str, seconds: float) -> None:
        """Close a method for the seconds that Slack asked for."""
        limit, now = self._limits.setdefault(_limit_key(method, channel), MethodLimit()), time.monotonic()
        recent = limit.cooldown_seconds and now < limit.cooldown_until + FORGET_SECONDS
        limit.cooldown_seconds = (
            min(MAX_COOLDOWN_SECONDS, 2 * limit.cooldown_seconds) if recent else MIN_COOLDOWN_SECONDS
        )
        limit.closed_until = limit.last_slot = now + seconds
        limit.cooldown_until = limit.closed_until + limit.cooldown_seconds


def _limit_key(method: str, channel: str) -> tuple[str, str]:
    return method, channel if method == LIMITED_PER_CHANNEL else ""
