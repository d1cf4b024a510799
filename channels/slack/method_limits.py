"""Rate limits that Slack has imposed, per method and channel."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from channels.base import TryLater

PER_CHANNEL = "chat.postMessage"  # its limit counts by channel
TIER_PER_MINUTE = {
    "chat.startStream": 20,
    "chat.stopStream": 20,
    "chat.appendStream": 100,
    "users.info": 100,
    "chat.postMessage": 60,
}
DEFAULT_TIER_PER_MINUTE = (
    50  # calls a minute of any other method in a workspace (docs.slack.dev/apis/web-api/rate-limits)
)
COOLDOWN_SECONDS, SHYEST = (
    2.0,
    60.0,
)  # seconds that calls which only show work leave the way to others, more with every flood
CALM_SECONDS = 60.0  # seconds without a flood after which that is forgotten


@dataclass(slots=True)
class MethodLimit:
    """One limit. Times are time.monotonic()."""

    closed: float = 0.0  # until when
    promised: float = 0.0  # the last moment that was given to somebody who has to wait
    shy: float = 0.0  # until when calls that only show work stay away
    penalty: float = 0.0


class MethodLimits:
    """The limits of one workspace that were hit. Nothing is held back before that: how much Slack takes, it says."""

    def __init__(self) -> None:
        self._gates: dict[tuple[str, str], MethodLimit] = {}

    def raise_if_closed(self, method: str, channel: str, *, live: bool) -> None:
        """Raises TryLater while it is closed. Whoever waits gets a moment of their own, at the pace of the method's
        tier: all at once would only be refused again."""
        gate = self._gates.get(_limit_key(method, channel))
        if gate is None:
            return
        now = time.monotonic()
        if live and now < gate.shy:
            raise TryLater("others go first", gate.shy - now + random.random() * gate.penalty)  # noqa: S311 — no secret
        if now < gate.closed:
            gate.promised = max(gate.closed, gate.promised + 60 / TIER_PER_MINUTE.get(method, DEFAULT_TIER_PER_MINUTE))
            raise TryLater("Slack asked to wait", gate.promised - now)

    def close(self, method: str, channel: str, seconds: float) -> None:
        """Slack asked to wait so long."""
        gate, now = self._gates.setdefault(_limit_key(method, channel), MethodLimit()), time.monotonic()
        gate.penalty = (
            min(SHYEST, 2 * gate.penalty) if gate.penalty and now < gate.shy + CALM_SECONDS else COOLDOWN_SECONDS
        )
        gate.closed = gate.promised = now + seconds
        gate.shy = gate.closed + gate.penalty


def _limit_key(method: str, channel: str) -> tuple[str, str]:
    return method, channel if method == PER_CHANNEL else ""
