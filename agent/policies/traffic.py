"""Let each model call wait for its place, and note how its server answers."""

from __future__ import annotations

from agent.core.policy import ModelCallHandler, ModelCallRequest, ModelCallResponse
from agent.models.traffic import model_call


class TrafficPolicy:
    """Inside of the retries: a call that waits to be repeated holds no place. The turn owns the places of all its
    calls, those of sub-agents included."""

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Call the model in use."""
        context = request.runtime.context
        async with model_call(context.route[0], context.meter, emit=request.runtime.stream_writer):
            return await handler(request)
