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
from catalogue import ngettext

COUNT_KEY = "turn_call"


class CallLimitPolicy:
    """Count the model calls since a person's last message, inside the messages: the count survives a crash, and the
    summarization of the counted messages."""

    def __init__(self, max_calls: int) -> None:
        self._max_calls = max_calls

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Count the call, or end the turn with an explanation."""
        answers = [message for message in messages_since_human(request.messages) if isinstance(message, AIMessage)]
        count = int(answers[-1].response_metadata.get(COUNT_KEY, 0)) if answers else 0
        if count >= self._max_calls:
            return final_response(
                ngettext(
                    "I stopped after {n} step without finishing. Tell me how to continue.",
                    "I stopped after {n} steps without finishing. Tell me how to continue.",
                    count,
                )
            )
        response = await handler(request)
        model_answer(response).response_metadata[COUNT_KEY] = count + 1
        return response
