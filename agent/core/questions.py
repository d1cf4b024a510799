"""Ask a person from inside a tool call."""

from __future__ import annotations

from typing import Any

from langgraph._internal._constants import CONFIG_KEY_SCRATCHPAD, CONFIG_KEY_SEND, RESUME
from langgraph.config import get_config
from langgraph.errors import GraphInterrupt
from langgraph.types import interrupt

from agent.core.context import AskingTask, TurnContext


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
        _record(answer)
        return answer


def count_recorded_answers() -> int:
    """Return how many answers to questions of this tool call are recorded: an earlier turn got them, or a task did."""
    return len(get_config()["configurable"][CONFIG_KEY_SCRATCHPAD].resume)


def _record(answer: str) -> None:
    """Record an answer as `interrupt` does. If the turn ends because a later question of this call waits, the call runs
    again, and gets it instead of asking again."""
    configurable = get_config()["configurable"]
    recorded = configurable[CONFIG_KEY_SCRATCHPAD].resume
    recorded.append(answer)
    configurable[CONFIG_KEY_SEND]([(RESUME, recorded)])
