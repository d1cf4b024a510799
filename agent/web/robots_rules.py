"""Read a robots.txt (RFC 9309) in linear time, whoever wrote it.

Only what concerns this robot is kept: the rules of the groups that name it, or else those for all robots.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from urllib.parse import quote

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
