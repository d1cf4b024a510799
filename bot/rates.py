"""Rate limits of people, chats and tools, counted in the memory of this process: a restart begins anew."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from agent.messages import Message
from bot.config.spending import RateLimitConfig
from bot.current import Current
from catalogue import format_duration, ngettext

MAX_KEYS = 10_000  # then those without a recent use are forgotten
Uses = Mapping[str, tuple[str, Collection[str]]]  # scope → the key, and the names by which an entry may call it


@dataclass(frozen=True, slots=True)
class RateRefusal:
    """A limit that is reached, and the unix time from which on there is room."""

    limit: RateLimitConfig
    key: str
    until: float

    def sentence(self, time_zone: str) -> str:
        """Return what the author of the message is told."""
        at = datetime.fromtimestamp(self.until + 59, ZoneInfo(time_zone) if time_zone else None)  # a whole minute
        window = format_duration(self.limit.seconds)
        time = f"{at:%Y-%m-%d %H:%M}"
        if self.limit.scope == "chat":
            return ngettext(
                "This chat may send {n} message in {window}, so I don't take this one, nor another one until {time}."
                " Please send it again then.",
                "This chat may send {n} messages in {window}, so I don't take this one, nor another one until {time}."
                " Please send it again then.",
                self.limit.count,
                window=window,
                time=time,
            )
        return ngettext(
            "You may send {n} message in {window}, so I don't take this one, nor another one until {time}."
            " Please send it again then.",
            "You may send {n} messages in {window}, so I don't take this one, nor another one until {time}."
            " Please send it again then.",
            self.limit.count,
            window=window,
            time=time,
        )


class ToolAndMessageRates:
    """Counts uses in sliding windows. Only uses that were allowed count."""

    def __init__(self, current: Current) -> None:
        self._current = current
        self._times: dict[str, deque[float]] = {}

    def take_message(self, message: Message, now: float) -> RateRefusal | None:
        """Count a message of a person in a chat, or return why it is refused."""
        thread, person = message.thread, message.author.id
        chat = str(replace(thread, topic=""))
        uses = {
            "person": (f"{thread.channel}:{person}", (person, f"{thread.channel}:{person}")),
            "chat": (chat, (thread.chat, f"{thread.channel}:{thread.chat}")),
        }
        return self._take(uses, now)

    def take(self, tool: str) -> float | None:
        """Count a call of a tool and return None, or return the unix time when it may be called again."""
        refused = self._take({"tool": (tool, (tool,))}, time.time())
        return refused.until if refused else None

    def _take(self, uses: Uses, now: float) -> RateRefusal | None:
        counted: list[deque[float]] = []
        for limit in _limits_of(self._current.config.rate_limits, uses):
            key = f"{limit.scope}:{limit.seconds:g}:{uses[limit.scope][0]}"
            times = self._times.setdefault(key, deque())
            while times and times[0] <= now - limit.seconds:
                times.popleft()
            if len(times) >= limit.count:
                return RateRefusal(limit, key, times[-limit.count] + limit.seconds)
            counted.append(times)
        for times in counted:
            times.append(now)
        if len(self._times) > MAX_KEYS:
            longest = max(limit.seconds for limit in self._current.config.rate_limits)
            self._times = {key: times for key, times in self._times.items() if times and times[-1] > now - longest}
        return None


def _limits_of(limits: Sequence[RateLimitConfig], uses: Uses) -> list[RateLimitConfig]:
    """Return the limits that apply. One for this person, chat or tool replaces those of its scope for all others."""
    mine = [limit for limit in limits if limit.scope in uses]
    own = [limit for limit in mine if limit.which and limit.which in uses[limit.scope][1]]
    scopes = {limit.scope for limit in own}
    return own + [limit for limit in mine if not limit.which and limit.scope not in scopes]
