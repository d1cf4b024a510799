"""Cap the model calls of a turn."""

from __future__ import annotations

from langchain_core.messages import AIMessage

from agent.policies.base import (
    ModelCallHandler,
    ModelCallRequest,
    ModelCallResponse,
    final_response,
    messages_since_human,
    model_answer,
)

COUNT_KEY = "turn_call"


class CallLimitPolicy:
    """Counts the model calls since a person last spoke, in the messages themselves: the count survives a crash and
    the summarization of the messages it counted."""

    def __init__(self, calls: int) -> None:
        self._calls = calls

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Count, or end the turn with a sentence."""
        spoken = [message for message in messages_since_human(request.messages) if isinstance(message, AIMessage)]
        number = int(spoken[-1].response_metadata.get(COUNT_KEY, 0)) if spoken else 0
        if number >= self._calls:
            return final_response(f"I stopped after {number} steps without getting to the end. Tell me how to go on.")
        response = await handler(request)
        model_answer(response).response_metadata[COUNT_KEY] = number + 1
        return response
