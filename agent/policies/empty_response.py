"""Retry an empty response once, then fail with an explanation."""

from __future__ import annotations

from langchain_core.messages import AIMessage, HumanMessage

from agent.core.policy import ModelCallHandler, ModelCallRequest, ModelCallResponse, TakeBack, model_answer
from agent.models.errors import ModelFailure
from agent.models.whole_calls import cut_reason
from catalogue import _

ASK_AGAIN = HumanMessage(
    "(Your last message was empty or could not be read. Answer the person, or call a tool properly.)"
)


class EmptyResponsePolicy:
    """Retry an answer that has neither text nor a tool call."""

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Call once or twice. Raises ModelFailure when both answers are empty."""
        response = await handler(request)
        if not _is_empty(first := model_answer(response)):
            return response
        request.runtime.stream_writer(TakeBack())
        if cut_reason(first) == "filter":  # it would only be paid for again
            raise ModelFailure(*_why_empty(first))
        response = await handler(request.override(messages=[*request.messages, ASK_AGAIN]))
        if not _is_empty(message := model_answer(response)):
            return response
        request.runtime.stream_writer(TakeBack())
        raise ModelFailure(*_why_empty(message))


def _is_empty(message: AIMessage) -> bool:
    return not message.tool_calls and not message.text.strip()


def _why_empty(message: AIMessage) -> tuple[str, str]:
    reason = cut_reason(message)
    if reason == "length":
        return _("My model reached its output limit before it answered."), _("Ask for less at once.")
    if reason == "filter":
        return _("My model's provider filtered the answer."), _("Please rephrase your request.")
    return _("I got no answer from my model, twice."), _("Please rephrase, or ask again.")
