"""Keep a turn's calls within its limits: budgets, number, rate, and the places of the server."""

from __future__ import annotations

import math
import time
from functools import partial

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest

from agent.core.context import CallNote
from agent.core.policy import (
    ModelCallHandler,
    ModelCallRequest,
    ModelCallResponse,
    ToolCallHandler,
    ToolCallResult,
    final_response,
    messages_since_human,
    model_answer,
    turn_context_of,
)
from agent.core.tool import AgentTool
from agent.models.answers import call_model
from agent.models.traffic import model_call
from agent.spending import text_tokens
from agent.token_estimates import counted_tokens, messages_tokens
from catalogue import ngettext


class AccountingPolicy:
    """Innermost of the model policies: the others see a clean answer, and every attempt is reserved and counted.

    `agent` names whose calls these are. A sub-agent shares the context, and so the meter, of the turn.
    """

    def __init__(self, agent: str) -> None:
        self._agent = agent

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Make the call. Raises BudgetExceeded if a budget does not allow it."""
        return await call_model(
            request.runtime.context.meter,
            request.model,
            partial(handler, request),
            model_answer,
            partial(_input_tokens, request),
            prompt=partial(_prompt, request),
            agent=self._agent,
        )


def _prompt(request: ModelCallRequest) -> list[BaseMessage]:
    return [*filter(None, [request.system_message]), *request.messages]


def _input_tokens(request: ModelCallRequest) -> int:
    """Estimate the input: what the provider counted last and what came after it; for a first call, all by length."""
    tokens = messages_tokens(request.messages)
    if any(map(counted_tokens, request.messages)):
        return tokens
    tools = [tool.json_schema if isinstance(tool, AgentTool) else tool for tool in request.tools]
    system = request.system_message.text if request.system_message else ""
    return tokens + text_tokens(system) + sum(text_tokens(str(tool)) for tool in tools)


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


class TrafficPolicy:
    """Inside of the retries: a call that waits to be repeated holds no place. The turn owns the places of all its
    calls, those of sub-agents included."""

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Call the model in use."""
        context = request.runtime.context
        async with model_call(context.route[0], context.meter, emit=request.runtime.stream_writer):
            return await handler(request)
