"""Clean every model answer, so that it can be stored, shown and sent, and count its tokens."""

from __future__ import annotations

from agent.models.answers import record_answer
from agent.policies.base import ModelCallHandler, ModelCallRequest, ModelCallResponse, model_answer


class AccountingPolicy:
    """Innermost of the model policies: the others see a clean answer, and every attempt is counted."""

    def __init__(self, model: str) -> None:
        self._model = model

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Clean the answer in place and add its usage to the turn's meter."""
        response = await handler(request)
        record_answer(model_answer(response), request.runtime.context.meter, self._model)
        return response
