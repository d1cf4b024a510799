"""Add the notes from memory behind the conversation, for this call only."""

from __future__ import annotations

from langchain_core.messages import HumanMessage

from agent.policies.base import ModelCallHandler, ModelCallRequest, ModelCallResponse, change_request


class MemoryPolicy:
    """The notes follow the conversation and never join its state: what comes before them stays the same from call to
    call, so that providers cache it, and a memory that was forgotten is in no later request."""

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Call with the notes."""
        memory = request.runtime.context.memory
        if memory is None or not memory.notes:
            return await handler(request)
        return await handler(change_request(request, messages=[*request.messages, HumanMessage(memory.notes)]))
