"""Cap the model calls of a turn, and the tokens of a task."""

from __future__ import annotations

from langchain_core.messages import AIMessage

from agent.core.policy import (
    ModelCallHandler,
    ModelCallRequest,
    ModelCallResponse,
    final_response,
    messages_since_human,
    model_answer,
)
from catalogue import ngettext

COUNT_KEY, TOKENS_KEY = "turn_call", "turn_tokens"


class CallLimitPolicy:
    """Count the model calls and tokens since a person's last message, inside the messages: the counts survive a crash,
    and the summarization of the counted messages. Without `max_tokens`, tokens are not limited."""

    def __init__(self, max_calls: int, max_tokens: int = 0) -> None:
        self._max_calls, self._max_tokens = max_calls, max_tokens

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Count the call, or end the turn with an explanation."""
        answers = [message for message in messages_since_human(request.messages) if isinstance(message, AIMessage)]
        metadata = (message.response_metadata for message in reversed(answers))  # not every answer is of a model
        counted = next((each for each in metadata if COUNT_KEY in each), {})
        count, tokens = int(counted.get(COUNT_KEY, 0)), int(counted.get(TOKENS_KEY, 0))
        if self._max_tokens:  # a task: its meter also has the calls whose answers its messages do not keep
            total = request.runtime.context.meter.total
            count, tokens = max(count, total.calls), max(tokens, total.input + total.output)
        if count >= self._max_calls or 0 < self._max_tokens <= tokens:
            return final_response(
                ngettext(
                    "I stopped after {n} step without finishing. Tell me how to continue.",
                    "I stopped after {n} steps without finishing. Tell me how to continue.",
                    count,
                )
            )
        response = await handler(request)
        answer = model_answer(response)
        used = answer.usage_metadata["total_tokens"] if answer.usage_metadata else 0
        answer.response_metadata |= {COUNT_KEY: count + 1, TOKENS_KEY: tokens + used}
        return response
