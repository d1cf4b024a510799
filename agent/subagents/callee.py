"""Say what a sub-agent may do, and write its system text.

The only place that computes it, for tasks of a turn and for background agents.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import orjson

from agent.core.context import MemoryNotes, TurnContext, join_parts
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


ROLE = """You are a sub-agent: another agent gave you the task below. Nobody reads what you write on the way; your last
message is your result, and the other agent sees nothing else of your work. So it must contain everything asked for:
findings, numbers, sources, paths of files. State what you could not do or verify. Ask a person only if you cannot
continue without the answer. Files for the person belong in /mnt/user-data/outputs."""
BACKGROUND = """You are a sub-agent: another agent gave you the task below, to do in the background. The person gets
your last message as the result and sees nothing else of your work. So it must contain everything asked for: findings,
numbers, sources, paths of files. State what you could not do or verify. Ask the person only if you cannot continue
without the answer. You have a sandbox of your own, which is empty at first; files for the person belong in
/mnt/user-data/outputs."""
SHARED_SANDBOX = "You share the sandbox and its folders with the other agent and other sub-agents."
OWN_SANDBOX = "You have a sandbox of your own, which is empty at first. What you leave in outputs is copied from there."
CHECKER = """You check the result of another agent's task. Find out with your tools whether the result is correct and
complete; do not repeat the whole task, and do not change any file. Answer with `PASSED` or `FAILED`, and then the
reason in at most three sentences."""


def worker_brief(kind: KindSettings, *, background: bool = False) -> str:
    """Return the system text of a sub-agent."""
    schema = orjson.dumps(kind.output_schema, option=orjson.OPT_INDENT_2).decode() if kind.output_schema else ""
    answer = f"Your last message must be one JSON value that fits this schema, without other text:\n{schema}"
    role = join_parts(ROLE, OWN_SANDBOX if kind.sandbox == "own" else SHARED_SANDBOX)
    return join_parts(BACKGROUND if background else role, kind.prompt, answer if schema else "")
