"""Note what each tool result exposes the conversation to, before the model sees it."""

from __future__ import annotations

from langchain_core.messages import ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from agent.core.policy import ToolCallHandler, ToolCallResult, turn_context_of
from agent.core.tool import traits_of


class ExposurePolicy:
    """Around the ledger: a result that is replayed was noted, too."""

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Run the call, and note what its result may hold. An error may quote a stranger, too."""
        result = await handler(request)
        brings, args = traits_of(request.tool).exposes, request.tool_call["args"]
        await turn_context_of(request).exposure.note_result(brings, args, _text_of(result))
        return result


def _text_of(result: ToolCallResult) -> str:
    """Return the text that a call adds to the messages of the model."""
    update = result.update if isinstance(result, Command) else None
    messages = update.get("messages", ()) if isinstance(update, dict) else [result]
    return "\n".join(str(each.text) for each in messages if isinstance(each, ToolMessage))
