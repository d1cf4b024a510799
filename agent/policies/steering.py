"""Take steering messages into the conversation before each model call."""

from __future__ import annotations

from agent.policies.base import ModelCallHandler, ModelCallRequest, ModelCallResponse
from agent.user_message import MessageFormatter


class SteeringPolicy:
    """Unread messages join the conversation before each model call, in the same superstep as its answer.

    Their ids are the event ids: after a crash in the middle of the call they are unread again, and are injected again
    without a double.
    """

    def __init__(self, formatter: MessageFormatter) -> None:
        self._formatter = formatter

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Add what is unread to the request, and to the state before the answer."""
        context = request.runtime.context
        unread = await context.steering.take_unread()
        context.taken_steering += unread  # a call that fails brings nothing into the state: the repair does
        known = {message.id for message in request.messages}
        new = [self._formatter.format_message(item) for item in unread if item.message.key not in known]
        if not new:
            return await handler(request)
        response = await handler(request.override(messages=[*request.messages, *new]))
        landed = {message.id for message in response.result}  # a summary has rewritten the state with them in it
        response.result = [*(message for message in new if message.id not in landed), *response.result]
        return response
