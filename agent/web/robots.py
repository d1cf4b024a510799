"""Politeness: what a site's robots.txt allows, and a pause between two requests to a host."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field

from yarl import URL

from agent.fair_slots import FairSlots
from agent.web.addresses import WebError
from agent.web.robots_rules import RobotsRules, parse_robots

ROBOT_NAME = "FawnBot"
KEEP_SECONDS = 3600.0
MAX_HOSTS = 500
MAX_PACE_SECONDS = 10.0  # of a Crawl-delay

ReadRobots = Callable[[URL], Awaitable[tuple[int, bytes]]]
"""Request a robots.txt; return status and body. Raises WebError."""


@dataclass(eq=False, slots=True)
class _Host:
    """Who waits for a host, and when its next request may start."""

    slots: FairSlots = field(default_factory=FairSlots)
    free_at: float = 0.0

    async def wait(self, owner: Hashable, pace: float) -> None:
        """Wait until nobody else's request starts and the pause is over. Who is cancelled leaves no trace."""
        await self.slots.acquire(owner, {"host": 1})
        try:
            await asyncio.sleep(max(0.0, self.free_at - time.monotonic()))
            self.free_at = time.monotonic() + pace
        finally:
            self.slots.release(owner, {"host": 1})

    @property
    def is_idle(self) -> bool:
        return not (self.slots.used or self.slots.waiting) and self.free_at <= time.monotonic()


class Politeness:
    """Waits for the host's turn, and refuses what its robots.txt excludes (RFC 9309), if that is wanted."""

    def __init__(self, read_robots: ReadRobots, *, obeys_robots: bool, pace_seconds: float) -> None:
        self._read_robots = read_robots
        self._obeys_robots = obeys_robots
        self._pace_seconds = pace_seconds
        self._rules: dict[URL, tuple[float, RobotsRules]] = {}
        self._hosts: dict[str, _Host] = {}

    async def wait_for_turn(self, url: URL, owner: Hashable) -> None:
        """Return when the request may be sent; the owners take turns. Raises WebError if robots.txt excludes it."""
        pace = self._pace_seconds
        if self._obeys_robots:
            rules = await self._rules_of(url.origin())
            if not await rules.allow(url.raw_path_qs):
                raise WebError(f"{url.host}'s robots.txt excludes this page from automatic reading.")
            pace = max(pace, min(rules.delay_seconds, MAX_PACE_SECONDS))
        await self._host(str(url.host)).wait(owner, pace)

    def _host(self, name: str) -> _Host:
        if len(self._hosts) >= MAX_HOSTS:
            self._hosts = {known: host for known, host in self._hosts.items() if not host.is_idle}
        return self._hosts.setdefault(name, _Host())

    async def _rules_of(self, origin: URL) -> RobotsRules:
        read_at, rules = self._rules.get(origin, (0.0, None))
        if rules and time.monotonic() - read_at < KEEP_SECONDS:
            return rules
        status, body = await self._read_robots(origin / "robots.txt")
        if status >= 500:
            raise WebError(f"{origin.host}'s robots.txt answers with status {status}, so the page was not read.")
        rules = await parse_robots(body if status < 400 else b"", ROBOT_NAME)
        if len(self._rules) >= MAX_HOSTS:
            del self._rules[next(iter(self._rules))]
        self._rules[origin] = (time.monotonic(), rules)
        return rules
