"""Politeness: what a site's robots.txt allows, and a pause between two requests to a host.

Read the robots.txt of strangers (RFC 9309) in linear time.

Only what concerns this robot is kept: the rules of the groups that name it, or else those for all robots.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from urllib.parse import quote

from yarl import URL

from agent.fair_slots import FairSlots
from agent.web.addresses import WebError

MAX_KEPT_BYTES = 100_000  # of the rules of one kind of group
MAX_RULES = 2_000
STEP_LINES = 2_000  # between two pauses for the event loop
STEP_RULES = 100
MAX_DELAY_CHARS = 10
_TOKEN = re.compile(rb"[a-z_-]*")  # the product token of a user-agent line; what follows is its version
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_ASCII = "".join(map(chr, range(0x21, 0x7F)))


@dataclass(frozen=True, slots=True)
class PathRule:
    """Whether paths are allowed that begin with `parts`, with anything between two parts; `ends`: up to the end."""

    allows: bool
    length: int  # the longest rule wins
    parts: tuple[str, ...]
    ends: bool

    def matches(self, path: str) -> bool:
        """Compare from left to right: each part at its first place, which never excludes a match."""
        first, *others = self.parts
        if not path.startswith(first):
            return False
        at = len(first)
        if self.ends and not others:
            return at == len(path)
        last = others.pop() if self.ends else ""
        for part in others:
            found = path.find(part, at)
            if found < 0:
                return False
            at = found + len(part)
        return not self.ends or (len(path) - len(last) >= at and path.endswith(last))


@dataclass(slots=True)
class RobotsRules:
    """The rules for one robot, and the pause it should make."""

    rules: list[PathRule] = field(default_factory=list)
    delay_seconds: float = 0.0
    kept_bytes: int = 0

    async def allow(self, path: str) -> bool:
        """Return whether a path with its query may be read. Of the longest rules that match, one that allows wins."""
        wanted, best = normalize_path(path), (-1, True)
        for number, rule in enumerate(self.rules):
            if number % STEP_RULES == STEP_RULES - 1:
                await asyncio.sleep(0)
            if (rule.length, rule.allows) > best and rule.matches(wanted):
                best = (rule.length, rule.allows)
        return best[1]

    def add(self, name: bytes, value: bytes) -> None:
        """Take a line of a group."""
        if name == b"crawl-delay":
            if re.fullmatch(rb"\d+(\.\d*)?", value[:MAX_DELAY_CHARS]):
                self.delay_seconds = float(value[:MAX_DELAY_CHARS])
        elif value and len(self.rules) < MAX_RULES and self.kept_bytes + len(value) <= MAX_KEPT_BYTES:
            self.kept_bytes += len(value)
            self.rules.append(_make_rule(name == b"allow", value.decode("utf-8", "replace")))


async def parse_robots(body: bytes, robot: str) -> RobotsRules:
    """Return what a robots.txt says to a robot; other tasks go on meanwhile."""
    named, general = RobotsRules(), RobotsRules()
    is_named, for_named, for_all, in_agents = False, False, False, False
    wanted = robot.lower().encode()
    for number, line in enumerate(body.removeprefix(b"\xef\xbb\xbf").splitlines()):
        if number % STEP_LINES == STEP_LINES - 1:
            await asyncio.sleep(0)
        name, _colon, value = line.partition(b"#")[0].partition(b":")
        name, value = name.strip().lower(), value.strip()
        if name == b"user-agent":
            if not in_agents:  # a group begins
                in_agents, for_named, for_all = True, False, False
            token = _TOKEN.match(value.lower())
            for_all = for_all or value.startswith(b"*")
            for_named = for_named or bool(token and token[0] == wanted)
            is_named = is_named or for_named
        elif name in (b"allow", b"disallow", b"crawl-delay"):
            in_agents = in_agents and name == b"crawl-delay"  # no rule of RFC 9309: agents may follow it
            if for_named:
                named.add(name, value)
            if for_all:
                general.add(name, value)
    return named if is_named else general


def _make_rule(allows: bool, pattern: str) -> PathRule:
    ends = pattern.endswith("$")
    first, *others = normalize_path(pattern.removesuffix("$")).split("*")
    last = [others.pop()] if others else []
    return PathRule(allows, len(pattern), (first, *filter(None, others), *last), ends)


def normalize_path(path: str) -> str:
    """Return a path with one spelling of each character (RFC 9309 §2.2.2)."""

    def unescape(found: re.Match[str]) -> str:
        char = chr(int(found[1], 16))
        return char if char in _UNRESERVED else f"%{found[1].upper()}"

    return _ESCAPED.sub(unescape, quote(path, safe=_ASCII))


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
