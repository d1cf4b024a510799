"""Note what each tool result exposes the conversation to, before the model sees it."""

from __future__ import annotations

from langchain.agents.middleware.types import ToolCallRequest

from agent.policies.base import ToolCallHandler, ToolCallResult, turn_context_of
from agent.tools.tool import traits_of


class ExposurePolicy:
    """Around the ledger: a result that is replayed was noted, too."""

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Run the call, and note what its result may hold. An error may quote a stranger, too."""
        result = await handler(request)
        await turn_context_of(request).exposure.note_result(traits_of(request.tool).exposes, request.tool_call["args"])
        return result
