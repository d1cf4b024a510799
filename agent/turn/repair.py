"""Repair the state of an interrupted turn.

Every provider answers 400 to tool calls without results. Finished results are kept and missing ones are added as
unknown. Steering messages and the model's partial text are kept too, the text marked as cut off.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.types import StateSnapshot

from agent.core.graphs import Graph

CUT_NOTE = "[interrupted here]"
CUT_KEY = "cut"
UNANSWERED_RESULT = "The person did not answer this question; they wrote something else or stopped the work."
UNKNOWN_RESULT = "This call was interrupted; its outcome is unknown."


async def repair_state(
    graph: Graph, config: RunnableConfig, partial_text: str = "", steering: Sequence[HumanMessage] = ()
) -> None:
    """End the interrupted turn of `config`'s thread, if there is one. `steering` are messages the state may lack."""
    state = await graph.aget_state(config)
    if not state.tasks:
        return
    results = _missing_results(state)
    if results:
        await graph.aupdate_state(config, {"messages": results}, as_node="tools")
    answer = AIMessage(f"{partial_text.rstrip()}\n\n{CUT_NOTE}".lstrip(), additional_kwargs={CUT_KEY: True})
    known = {message.id for message in state.values.get("messages", [])}
    missing = [message for message in steering if message.id not in known]
    await graph.aupdate_state(config, {"messages": [*missing, answer]}, as_node="model")


def _missing_results(state: StateSnapshot) -> list[ToolMessage]:
    """Return one result for each tool call of the last answer: the real one, or an explanation."""
    messages: list[AnyMessage] = state.values.get("messages", [])
    finished = [task.result.get("messages", []) for task in state.tasks if isinstance(task.result, dict)]
    kept = {message.tool_call_id: message for message in chain(messages, *finished) if isinstance(message, ToolMessage)}
    last = next((message for message in reversed(messages) if isinstance(message, AIMessage)), None)
    if last is None or not last.tool_calls or not any(task.name == "tools" for task in state.tasks):
        return []
    text = UNANSWERED_RESULT if state.interrupts else UNKNOWN_RESULT
    return [
        kept.get(str(call["id"])) or ToolMessage(text, tool_call_id=call["id"], name=call["name"], status="error")
        for call in last.tool_calls
    ]
