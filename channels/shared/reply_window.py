"""Know when a platform lets a bot write to a person: for some hours, or some posts, after the person's last message."""

from __future__ import annotations

import time
from dataclasses import dataclass

from catalogue import N_, _
from channels.base import CatchUpSource, Unattended

CLOSED = N_("this person has to write first: {platform} lets a bot answer for {hours} hours")
LOOK_SECONDS = 5.0  # between two looks whether a window has opened: they cost no call
MARGIN_SECONDS = 60.0  # before its end in which nothing is begun


class WindowClosed(Unattended):
    """The person has to write before the bot may. What waits is sent then; waiting is no attempt."""

    def __init__(self, platform: str, hours: float) -> None:
        super().__init__(_(CLOSED, platform=platform, hours=f"{hours:g}"), LOOK_SECONDS)


@dataclass(slots=True)
class _Window:
    opened: float  # Unix time of the person's last message; 0: unknown
    posts: int = 0  # since then
    closed_until: float = 0.0  # Unix time, after a refusal


class ReplyWindows:
    """The windows of all chats, each `seconds` long, for at most `budget` posts (0: any number).

    A chat of which nothing is known counts as open: the platform says when it is not.
    """

    def __init__(self, platform: str, seconds: float, budget: int = 0) -> None:
        self._platform = platform
        self._seconds = seconds
        self._budget = budget
        self._windows: dict[str, _Window] = {}

    async def restore(self, source: CatchUpSource, channel: str, workspace: str) -> None:
        """Learn from the stored events, after a start, when each person wrote last. Raises NotStored."""
        gap = await source.open_gap(channel, workspace)
        for event in gap.heard:
            if not event.topic and event.chat not in self._windows:
                self._windows[event.chat] = _Window(event.time)
        await source.close_gap(gap)

    def open(self, chat: str, at: float) -> None:
        """Note a message of the person. An older one, which came late, changes nothing."""
        known = self._windows.get(chat)
        if known is None or at >= known.opened:
            self._windows[chat] = _Window(at)

    def close(self, chat: str, seconds: float = float("inf")) -> WindowClosed:
        """Note that the platform refused a post, until the person writes or for so long; return the error to raise."""
        known = self._windows.setdefault(chat, _Window(0.0))
        known.closed_until = time.time() + seconds
        return WindowClosed(self._platform, self._seconds / 3600)

    def check(self, chat: str) -> None:
        """Raise WindowClosed where nothing may be posted now."""
        known, now = self._windows.get(chat), time.time()
        if known is None:
            return
        is_over = known.opened and now > known.opened + self._seconds - MARGIN_SECONDS
        if is_over or now < known.closed_until or (self._budget and known.posts >= self._budget):
            raise WindowClosed(self._platform, self._seconds / 3600)

    def left(self, chat: str) -> int:
        """Return how many posts are left; the whole budget where nothing is known."""
        known = self._windows.get(chat)
        return self._budget - known.posts if known else self._budget

    def count(self, chat: str) -> None:
        """Count a post."""
        if known := self._windows.get(chat):
            known.posts += 1
