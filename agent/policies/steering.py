"""Add steering messages to the conversation before each model call."""

from __future__ import annotations

from agent.core.policy import ModelCallHandler, ModelCallRequest, ModelCallResponse
from agent.core.user_message import MessageFormatter


class SteeringPolicy:
    """Add unread messages before each model call, in the same superstep as its answer.

    Their ids are the event keys: after a crash during the call they are unread again and are added without duplicates.
    """

    def __init__(self, formatter: MessageFormatter) -> None:
        self._formatter = formatter

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Add unread messages to the request, and to the state before the answer."""
        context = request.runtime.context
        unread = await context.steering.take_unread()
        context.taken_steering += unread  # if the call fails, the repair adds them to the state
        await context.exposure.note_inputs(unread)
        known = {message.id for message in request.messages} if unread else set()
        new = [self._formatter.format_message(item) for item in unread if item.message.key not in known]
        if not new:
            return await handler(request)
        response = await handler(request.override(messages=[*request.messages, *new]))
        included = {message.id for message in response.result}  # a summary rewrites the state, these included
        response.result = [*(message for message in new if message.id not in included), *response.result]
        return response
