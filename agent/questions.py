"""Ask a person from inside a tool call."""

from __future__ import annotations

from typing import Any

from langgraph.errors import GraphInterrupt
from langgraph.types import interrupt

from agent.context import TurnContext


async def ask_person(context: TurnContext, value: dict[str, Any]) -> str:
    """Return the answer to a question, whose `value` ARCHITECTURE.md describes.

    In a task, it is asked at once while other tasks work. Otherwise the turn ends and waits: the tool call then runs
    again from its start when the answer arrives, so it must not have effects before.
    """
    try:
        return str(interrupt(value))
    except GraphInterrupt as asked:
        answer = await context.task.wait_for_answer(asked.args[0][0]) if context.task else None
        if answer is None:
            raise
        return answer
