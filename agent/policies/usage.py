"""Every model call is counted, the hidden ones too."""

from __future__ import annotations

from langchain_core.messages import AIMessage

from agent.conversation import Usage
from agent.policies.base import ModelCall, Request, Response, answer


class Accounting:
    """Writes the tokens of each answered call to the run's stream; innermost, so that tries count one by one."""

    async def model(self, request: Request, call: ModelCall) -> Response:
        """Count the call."""
        response = await call(request)
        request.runtime.stream_writer(tokens(answer(response)))
        return response


def tokens(message: AIMessage) -> Usage:
    """What one answer cost, as far as the provider tells."""
    told = message.usage_metadata
    if told is None:
        return Usage(calls=1)
    cached = (told.get("input_token_details") or {}).get("cache_read") or 0
    return Usage(input=told["input_tokens"], output=told["output_tokens"], cached=cached, calls=1)


def add(one: Usage, other: Usage) -> Usage:
    """The sum of two."""
    return Usage(one.input + other.input, one.output + other.output, one.cached + other.cached, one.calls + other.calls)
