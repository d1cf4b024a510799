"""Refuse calls of a tool above its rate limit, and tell the model when it may call again."""

from __future__ import annotations

import math
import time

from langchain_core.messages import ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest

from agent.core.context import CallNote
from agent.core.policy import ToolCallHandler, ToolCallResult, turn_context_of


class RateLimitPolicy:
    """Apply the rate limits of tools, which all turns share."""

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Run the tool unless it was called too often."""
        name, rates = request.tool_call["name"], turn_context_of(request).tool_rates
        until = await rates.take(name) if rates else None
        if until is None:
            return await handler(request)
        turn_context_of(request).notes.append(CallNote("result", name, "rate"))
        text = (
            f"{name} was not called: it has reached its rate limit. It may be called again in"
            f" {max(1, math.ceil(until - time.time()))} s. Continue without it, or tell the person when to ask again."
        )
        return ToolMessage(text, tool_call_id=request.tool_call["id"], name=name, status="error")
