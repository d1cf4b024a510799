"""Politeness: what a site's robots.txt allows, and a pause between two requests to a host."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from yarl import URL

from agent.web.addresses import WebError

if TYPE_CHECKING:
    from protego import Protego

ROBOT_NAME = "FawnBot"
KEEP_SECONDS = 3600.0
MAX_HOSTS = 500
MAX_PACE_SECONDS = 10.0  # of a Crawl-delay

ReadRobots = Callable[[URL], Awaitable[tuple[int, bytes]]]
"""Request a robots.txt; return status and body. Raises WebError."""


class Politeness:
    """Waits for the host's turn, and refuses what its robots.txt excludes (RFC 9309), if that is wanted."""

    def __init__(self, read_robots: ReadRobots, *, obeys_robots: bool, pace_seconds: float) -> None:
        self._read_robots = read_robots
        self._obeys_robots = obeys_robots
        self._pace_seconds = pace_seconds
        self._rules: dict[URL, tuple[float, Protego]] = {}
        self._free_at: dict[str, float] = {}  # when the next request to a host may start

    async def wait_for_turn(self, url: URL) -> None:
        """Return when the request may be sent. Raises WebError if robots.txt excludes the page."""
        pace = self._pace_seconds
        if self._obeys_robots:
            rules = await self._rules_of(url.origin())
            if not rules.can_fetch(str(url), ROBOT_NAME):
                raise WebError(f"{url.host}'s robots.txt excludes this page from automatic reading.")
            pace = max(pace, min(rules.crawl_delay(ROBOT_NAME) or 0.0, MAX_PACE_SECONDS))
        now, host = time.monotonic(), str(url.host)
        start = max(now, self._free_at.pop(host, 0.0))
        self._free_at[host] = start + pace
        if len(self._free_at) > MAX_HOSTS:
            del self._free_at[next(iter(self._free_at))]
        await asyncio.sleep(start - now)

    async def _rules_of(self, origin: URL) -> Protego:
        from protego import Protego

        read_at, rules = self._rules.get(origin, (0.0, None))
        if rules and time.monotonic() - read_at < KEEP_SECONDS:
            return rules
        status, body = await self._read_robots(origin / "robots.txt")
        if status >= 500:
            raise WebError(f"{origin.host}'s robots.txt answers with status {status}, so the page was not read.")
        rules = Protego.parse(body.decode("utf-8", "replace") if status < 400 else "")
        if len(self._rules) >= MAX_HOSTS:
            del self._rules[next(iter(self._rules))]
        self._rules[origin] = (time.monotonic(), rules)
        return rules
