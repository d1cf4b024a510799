"""The policy protocols, and the middleware that folds all policies into one.

A policy notifies the person by writing to the run's stream: a `Notice`, or `TakeBack` to retract streamed text.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.agents.middleware.types import AgentState, ToolCallRequest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolCall, ToolMessage
from langgraph.types import Command

from agent.context import TurnContext

BY_POLICY_KEY = "by_policy"  # of an answer that no model gave

ModelCallRequest = ModelRequest[TurnContext]
ModelCallResponse = ModelResponse[Any]
ToolCallResult = ToolMessage | Command[Any]
ModelCallHandler = Callable[[ModelCallRequest], Awaitable[ModelCallResponse]]
ToolCallHandler = Callable[[ToolCallRequest], Awaitable[ToolCallResult]]


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Retract the streamed text of the current model call: it failed or was empty, and is retried."""


class ModelPolicy(Protocol):
    """A wrapper around every model call."""

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Return a response; await `handler` with this or another request, any number of times."""


class ToolPolicy(Protocol):
    """A wrapper around every tool call."""

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Return the result of `handler`, or another one in its place."""


@dataclass(frozen=True, slots=True)
class PolicyChain:
    """The policies of one agent; the first of each kind is outermost."""

    model: Sequence[ModelPolicy]
    tool: Sequence[ToolPolicy]


class PolicyMiddleware(AgentMiddleware[AgentState[Any], TurnContext, Any]):
    """All policies as one middleware."""

    def __init__(self, chain: PolicyChain) -> None:
        super().__init__()
        self._model_policies = tuple(reversed(chain.model))
        self._tool_policies = tuple(reversed(chain.tool))

    async def awrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Run the model call inside all model policies."""
        for policy in self._model_policies:
            handler = partial(policy.wrap_model_call, handler=handler)
        return await handler(request)

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Run the tool call inside all tool policies."""
        for policy in self._tool_policies:
            handler = partial(policy.wrap_tool_call, handler=handler)
        return await handler(request)


def change_request(request: ModelCallRequest, **changes: Any) -> ModelCallRequest:
    """Do what `request.override` does, for every call: that one issues a warning per field, which takes 50 µs."""
    changed = copy.copy(request)
    vars(changed).update(changes)
    return changed


def turn_context_of(request: ToolCallRequest) -> TurnContext:
    """Return the context of the turn that a tool call belongs to."""
    return cast(TurnContext, request.runtime.context)


def call_key(messages: Sequence[AnyMessage], call: str | None) -> str:
    """Return message id and call id: some servers restart their call ids with every message."""
    return next((f"{m.id}/{call}" for m in reversed(messages) if isinstance(m, AIMessage)), str(call))


def messages_since_human(messages: Sequence[AnyMessage]) -> Sequence[AnyMessage]:
    """Return the messages after the last one of a person."""
    for index in range(len(messages) - 1, -1, -1):
        if isinstance(messages[index], HumanMessage):
            return messages[index + 1 :]
    return messages


def model_answer(response: ModelCallResponse) -> AIMessage:
    """Return the model's message in a response."""
    return next(message for message in reversed(response.result) if isinstance(message, AIMessage))


def final_response(text: str) -> ModelCallResponse:
    """Make a final answer without calling the model."""
    return ModelResponse(result=[AIMessage(text, additional_kwargs={BY_POLICY_KEY: True})])


def is_final(answer: AIMessage) -> bool:
    """Return whether the model itself ends its work with this answer."""
    return not answer.tool_calls and not answer.additional_kwargs.get(BY_POLICY_KEY)


def continue_with(answer: AIMessage, name: str, args: dict[str, Any]) -> None:
    """Add a call to an answer that would end the turn: the policy that adds it also answers it."""
    if is_final(answer):
        answer.tool_calls = [ToolCall(name=name, args=args, id=f"{name}_{uuid.uuid4().hex[:16]}", type="tool_call")]


def append_text(answer: AIMessage, text: str) -> None:
    """Append a paragraph to the model's text."""
    if isinstance(answer.content, str):
        answer.content = f"{answer.content.rstrip()}\n\n{text}".strip()
    else:
        answer.content = [*answer.content, {"type": "text", "text": f"\n\n{text}"}]
