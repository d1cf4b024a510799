"""The policy protocols, and the chain that folds all policies of an agent into one.

A policy notifies the person by writing to the run's stream: a `Notice`, or `TakeBack` to retract streamed text.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.runtime import Runtime
from langgraph.types import Command

from agent.core.context import TurnContext

BY_POLICY_KEY = "by_policy"  # of an answer that no model gave

ToolCallResult = ToolMessage | Command[Any]


@dataclass(frozen=True, slots=True)
class ModelCallRequest:
    """A model call that is about to be made. Policies pass on another one instead of changing it."""

    model: BaseChatModel
    messages: list[AnyMessage]
    tools: list[BaseTool | dict[str, Any]]
    state: Mapping[str, Any]
    runtime: Runtime[TurnContext]
    system_message: SystemMessage | None = None

    def override(self, **changes: Any) -> ModelCallRequest:
        """Return this request with other values of these fields."""
        return replace(self, **changes)


@dataclass(slots=True)
class ModelCallResponse:
    """The messages with which a model call ends, the answer last. They join the state.

    `rest` is the text that followed an answer which is too long.
    """

    result: list[BaseMessage]
    rest: str = ""


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

    def around_model(self, handler: ModelCallHandler) -> ModelCallHandler:
        """Return `handler` inside of all model policies."""
        for policy in reversed(self.model):
            handler = partial(policy.wrap_model_call, handler=handler)
        return handler

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Run the tool call inside of all tool policies."""
        for policy in reversed(self.tool):
            handler = partial(policy.wrap_tool_call, handler=handler)
        return await handler(request)


DENIED_KEY = "denied"  # in `additional_kwargs` of the result of a call that was not allowed to run


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
    return ModelCallResponse([AIMessage(text, additional_kwargs={BY_POLICY_KEY: True})])


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
