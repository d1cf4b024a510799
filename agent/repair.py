"""Repair the state an interrupted turn left, so that the model's server accepts it.

Tool calls without results are answered 400 by every provider. Results that finished beside the interrupted one are
kept, the others are said to be unknown, what people wrote into the turn stays, and so does what the model had said so
far, marked as cut off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.types import StateSnapshot

if TYPE_CHECKING:
    from agent.resume import Graph

CUT_NOTE = "[interrupted here]"
CUT_KEY = "cut"
UNANSWERED_RESULT = "The person did not answer this question; they wrote something else or stopped the work."
UNKNOWN_RESULT = "This call was interrupted; its outcome is unknown."


async def repair_state(
    graph: Graph, config: RunnableConfig, partial: str = "", heard: Sequence[HumanMessage] = ()
) -> None:
    """End the interrupted turn in the state of `config`'s thread; `heard` are messages that may not have got into it.
    Does nothing when none is under way."""
    state = await graph.aget_state(config)
    if not state.tasks:
        return
    results = _missing_results(state)
    if results:
        await graph.aupdate_state(config, {"messages": results}, as_node="tools")
    said = AIMessage(f"{partial.rstrip()}\n\n{CUT_NOTE}".lstrip(), additional_kwargs={CUT_KEY: True})
    known = {message.id for message in state.values.get("messages", [])}
    missing = [message for message in heard if message.id not in known]
    await graph.aupdate_state(config, {"messages": [*missing, said]}, as_node="model")


def _missing_results(state: StateSnapshot) -> list[ToolMessage]:
    """One result for each call of the last answer: the kept ones, and a word for the others."""
    messages: list[AnyMessage] = state.values.get("messages", [])
    kept = {message.tool_call_id: message for message in messages if isinstance(message, ToolMessage)}
    for task in state.tasks:
        result: Any = task.result
        for message in result.get("messages", []) if isinstance(result, dict) else []:
            if isinstance(message, ToolMessage):
                kept[message.tool_call_id] = message
    last = next((message for message in reversed(messages) if isinstance(message, AIMessage)), None)
    if last is None or not last.tool_calls or not any(task.name == "tools" for task in state.tasks):
        return []
    text = UNANSWERED_RESULT if state.interrupts else UNKNOWN_RESULT
    return [
        kept.get(str(call["id"])) or ToolMessage(text, tool_call_id=call["id"], name=call["name"], status="error")
        for call in last.tool_calls
    ]
