"""Clean every model answer, so that it can be stored, shown and sent, and count its tokens."""

from __future__ import annotations

from agent.models.answers import record_answer
from agent.policies.base import ModelCallHandler, ModelCallRequest, ModelCallResponse, model_answer


class AccountingPolicy:
    """Innermost of the model policies: the others see a clean answer, and every attempt is counted."""

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Clean the answer in place and add its usage to the turn's meter."""
        response = await handler(request)
        context = request.runtime.context
        record_answer(model_answer(response), context.meter, context.route[0].settings.name)
        return response
