"""Compute what a sub-agent may do: what its kind names, and nothing that its caller may not do.

The only place that computes it, for tasks of a turn and for background agents.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from agent.core.context import MemoryNotes, TurnContext
from agent.core.tool import TASK_TOOL
from agent.reach import ReachGate
from agent.settings.subagents import KindSettings

MEMORY_TOOL = "memory"
NAMED_ONLY = ("schedule", "propose_skill")  # they leave something behind: only for kinds that name them
READ_ONLY = "Not possible: a sub-agent only reads memory. Say in your result what should be remembered."


class ReadOnlyMemory:
    """The memory of a turn for its sub-agents."""

    def __init__(self, memory: MemoryNotes) -> None:
        self.notes = memory.notes
        self._memory = memory

    async def search(self, text: str) -> str:
        """See `MemoryNotes.search`."""
        return await self._memory.search(text)

    async def save(self, *fact: Any) -> str:
        """Refuse."""
        return READ_ONLY

    async def forget(self, number: int, quote: str) -> str:
        """Refuse."""
        return READ_ONLY

    async def link(self, *_link: Any) -> str:
        """Refuse."""
        return READ_ONLY

    async def unlink(self, *_link: Any) -> str:
        """Refuse."""
        return READ_ONLY


def callee_context(context: TurnContext, kind: KindSettings) -> TurnContext:
    """Return the context of a sub-agent of this kind that works for the agent of `context`."""
    reach = context.reach.narrowed(kind.tools, (TASK_TOOL, *_unnamed(NAMED_ONLY, kind.tools)))
    memory = context.memory
    if memory and MEMORY_TOOL not in kind.tools:
        memory = ReadOnlyMemory(memory)
    return replace(
        context,
        reach=reach,
        permissions=ReachGate(context.permissions, reach),
        skills=context.skills.narrowed(kind.skills) if context.skills else None,
        memory=memory,
        tasks=None,
        background=None,
    )


def _unnamed(tools: Collection[str], named: Collection[str]) -> list[str]:
    return [tool for tool in tools if tool not in named]
