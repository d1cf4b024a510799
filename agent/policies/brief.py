"""Put the turn's brief before the conversation, as the system message of every model call."""

from __future__ import annotations

from langchain_core.messages import SystemMessage

from agent.core.policy import ModelCallHandler, ModelCallRequest, ModelCallResponse


class BriefPolicy:
    """The brief is the same in all calls of a turn, whichever model answers, so that its prefix stays cached."""

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Call with the brief."""
        brief = SystemMessage(request.runtime.context.brief)
        return await handler(request.override(system_message=brief))
