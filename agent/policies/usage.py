"""Every model call is counted when it ends, the hidden ones too."""

from __future__ import annotations

from langchain_core.messages import AIMessage

from agent.blocks import Usage
from agent.policies.base import ModelCallHandler, ModelCallRequest, ModelCallResponse, model_answer


class UsagePolicy:
    """Count the tokens of each answered call on the turn's meter; below `RetryPolicy`, so that each try counts."""

    def __init__(self, model: str) -> None:
        self._model = model

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Count the call."""
        response = await handler(request)
        request.runtime.context.meter.add(message_usage(model_answer(response)), self._model)
        return response


def message_usage(message: AIMessage) -> Usage:
    """What one answer cost, as far as the provider tells."""
    told = message.usage_metadata
    if told is None:
        return Usage(calls=1)
    cached = (told.get("input_token_details") or {}).get("cache_read") or 0
    return Usage(input=told["input_tokens"], output=told["output_tokens"], cached=cached, calls=1)
