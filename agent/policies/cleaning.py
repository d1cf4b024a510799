"""Clean every model answer, so that it can be stored, shown and sent."""

from __future__ import annotations

from agent.policies.base import ModelCall, Request, Response, model_answer
from agent.text_cleaning import clean_message


class Cleaning:
    """Innermost of the model policies: all others see a clean answer."""

    async def model(self, request: Request, call: ModelCall) -> Response:
        """Clean the answer in place."""
        response = await call(request)
        clean_message(model_answer(response))
        return response
