"""Clean every model answer, so that it can be stored, shown and sent."""

from __future__ import annotations

from agent.policies.base import ModelCallHandler, ModelCallRequest, ModelCallResponse, model_answer
from agent.text_cleaning import clean_message


class CleaningPolicy:
    """Innermost of the model policies: all others see a clean answer."""

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Clean the answer in place."""
        response = await handler(request)
        clean_message(model_answer(response))
        return response
