"""Ask a person from inside a tool call."""

from __future__ import annotations

from typing import Any

from langgraph.errors import GraphInterrupt
from langgraph.types import interrupt

from agent.context import AskingTask, TurnContext


async def ask_person(context: TurnContext, value: dict[str, Any]) -> str:
    """Return the answer to a question, whose `value` ARCHITECTURE.md describes.

    It is asked at once while tasks work. Otherwise the turn ends and waits: the tool call then runs
    again from its start when the answer arrives, so it must not have effects before.
    """
    try:
        return str(interrupt(value))
    except GraphInterrupt as asked:
        asker: AskingTask | None = context.task or context.tasks
        answer = await asker.wait_for_answer(asked.args[0][0]) if asker else None
        if answer is None:
            raise
        return answer
