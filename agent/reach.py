"""Limit what an agent may use. Whatever works for it gets the intersection with this, and never more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from agent.exposure import OUTWARD
from agent.permissions.rules import Judgement, PermissionGate, ToolUse

OUT_OF_REACH = "the agent that gave this work does not have this tool"
# `tool_search` finds only what the agent has; an external agent's calls are its own, and rules judge them.
ALWAYS = ("tool_search", "acp__*", OUTWARD)


def matches_any(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a name matches one of these patterns; without patterns, every name does."""
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Reach:
    """The tools of an agent: those that match a pattern of each group, `but` not these names."""

    groups: tuple[tuple[str, ...], ...] = ()
    but: tuple[str, ...] = ()

    def allows(self, tool: str) -> bool:
        """Return whether the agent has a tool."""
        if tool in self.but:
            return False
        return matches_any(tool, ALWAYS) or all(matches_any(tool, group) for group in self.groups)

    def narrowed(self, patterns: Sequence[str], but: Sequence[str] = ()) -> Reach:
        """Return the reach of an agent with these tools, all for none, that works for the one with this reach."""
        groups = (*self.groups, tuple(patterns)) if patterns else self.groups
        return replace(self, groups=groups, but=(*self.but, *but))


@dataclass(frozen=True, slots=True)
class ReachGate:
    """A gate that denies what is out of reach, whatever the rules say."""

    gate: PermissionGate
    reach: Reach

    async def judge(self, use: ToolUse) -> Judgement:
        """Return the verdict about a call."""
        if not self.reach.allows(use.name):
            return Judgement("deny", OUT_OF_REACH)
        return await self.gate.judge(use)

    def hides(self, tool: str) -> bool:
        """Return whether every call of the tool is denied."""
        return not self.reach.allows(tool) or self.gate.hides(tool)

    def compares(self, tool: str) -> bool:
        """Return whether it matters for a call of this tool what its arguments are."""
        return self.gate.compares(tool)
