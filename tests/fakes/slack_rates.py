"""Slack's limits: calls a minute of a method in a workspace, messages a second in a channel."""

from __future__ import annotations

import asyncio

TIERS = {  # calls a minute and workspace (docs.slack.dev/apis/web-api/rate-limits and each method's page)
    "chat.startStream": 20,
    "chat.stopStream": 20,
    "users.conversations": 20,
    "reactions.remove": 20,
    "chat.update": 50,
    "reactions.add": 50,
    "agents.sessions.rename": 50,
    "agents.sessions.setStatus": 50,
    "conversations.history": 50,
    "conversations.info": 50,
    "conversations.replies": 50,
    "chat.appendStream": 100,
    "users.info": 100,
    "users.list": 20,
    "views.publish": 100,
    "assistant.threads.setStatus": 50,  # "special", without a number
}


class Rates:
    """A bucket for each of them, in the time of the server's loop. The tiers are minima: a workspace may have `factor`
    times as much."""

    def __init__(self) -> None:
        self.factor = 1.0
        self._buckets: dict[tuple[str, str, str], tuple[float, float]] = {}

    def late(self, method: str, team: str, channel: str) -> float:
        """Seconds that a call comes too early, 0 when it may be made."""
        if method == "chat.postMessage":
            key, rate, size = (team, method, channel), 1.0, 4.0
        elif most := TIERS.get(method):
            key, rate, size = (team, method, ""), most / 60, most / 3
        else:
            return 0.0
        rate, size = rate * self.factor, size * self.factor
        now = asyncio.get_running_loop().time()
        tokens, at = self._buckets.get(key, (size, now))
        tokens = min(size, tokens + (now - at) * rate)
        self._buckets[key] = (tokens - 1, now) if tokens >= 1 else (tokens, now)
        return 0.0 if tokens >= 1 else (1 - tokens) / rate
