"""Notices to people whose messages cannot be stored: once per thread and outage of the inbox."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from agent.messages import Kind, Message, Thread, Unreadable


class OutageNotices:
    """The threads that have a notice of the present outage."""

    def __init__(self) -> None:
        self._notified: set[Thread] = set()

    def take_due(
        self, events: Iterable[Message | Unreadable], place_of: Callable[[Message], Thread] = lambda event: event.thread
    ) -> list[Message]:
        """Return the first message to the bot of each place that has no notice yet. They count as notified."""
        first: dict[Thread, Message] = {}
        for event in events:
            if isinstance(event, Message) and event.addressed and event.kind in (Kind.CHAT, Kind.COMMAND):
                first.setdefault(place_of(event), event)
        due = [event for place, event in first.items() if place not in self._notified]
        self._notified.update(first)
        return due

    def end(self) -> None:
        """Note that the inbox stores messages again."""
        self._notified.clear()
