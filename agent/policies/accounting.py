"""Clean every model answer, so that it can be stored, shown and sent, and count its tokens."""

from __future__ import annotations

import time

from agent.models.answers import record_answer
from agent.policies.base import ModelCallHandler, ModelCallRequest, ModelCallResponse, model_answer


class AccountingPolicy:
    """Innermost of the model policies: the others see a clean answer, and every attempt is counted.

    `agent` names whose calls these are. A sub-agent shares the context, and so the meter, of the turn.
    """

    def __init__(self, agent: str) -> None:
        self._agent = agent

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Clean the answer in place and add the call to the turn's meter."""
        began = time.monotonic()
        response = await handler(request)
        meter = request.runtime.context.meter
        record_answer(model_answer(response), meter, request.model, began, agent=self._agent)
        return response
