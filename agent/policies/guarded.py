"""Decide what happens where an operator's own policy fails: nothing, or the call without it."""

from __future__ import annotations

import logging
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.tools import ToolException
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt.tool_node import ToolCallRequest

from agent.core.policy import (
    ModelCallHandler,
    ModelCallRequest,
    ModelCallResponse,
    ToolCallHandler,
    ToolCallResult,
)
from agent.models.errors import ModelFailure

log = logging.getLogger(__name__)

MEANT = (GraphBubbleUp, ToolException, ModelFailure)  # what a policy raises on purpose
NOT_MADE = "{name} was not called: the rule {policy} of this service failed. The operator can see why in the log."
WITHHELD = "{name} was called, but its result is withheld: the rule {policy} of this service failed."


class GuardedPolicy:
    """An own policy. If its code fails, a `closed` one lets no call pass, and an open one is left out of that call.

    What fails inside of it, in another policy or in the tool, is not its failure.
    """

    def __init__(self, inner: Any, *, closed: bool) -> None:
        self.inner, self._closed = inner, closed

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Make the call inside the policy."""
        call = _Watched(handler)
        try:
            response: ModelCallResponse = await self.inner.wrap_model_call(request, call)
        except Exception as error:
            if self._closed or not self._is_own(error, call):
                raise
            return call.results[-1] if call.results else await handler(request)
        return response

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Run the tool inside the policy."""
        call = _Watched(handler)
        try:
            result: ToolCallResult = await self.inner.wrap_tool_call(request, call)
        except Exception as error:
            if not self._is_own(error, call):
                raise
            if not self._closed:
                return call.results[-1] if call.results else await handler(request)
            name = request.tool_call["name"]
            text = (WITHHELD if call.results else NOT_MADE).format(name=name, policy=type(self.inner).__name__)
            return ToolMessage(text, tool_call_id=request.tool_call["id"], name=name, status="error")
        return result

    def _is_own(self, error: Exception, call: _Watched) -> bool:
        """Return whether the policy's own code failed, and log that."""
        if isinstance(error, MEANT) or error is call.error:
            return False
        log.error("policy.failed policy=%s closed=%s", type(self.inner).__name__, self._closed, exc_info=error)
        return True


class _Watched:
    """The handler that the policy gets: knows what it returned and raised."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler
        self.results: list[Any] = []
        self.error: BaseException | None = None

    async def __call__(self, request: Any) -> Any:
        try:
            result = await self._handler(request)
        except BaseException as error:
            self.error = error
            raise
        self.results.append(result)
        return result
