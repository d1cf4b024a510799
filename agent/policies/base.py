"""The policy protocols, and the fold that makes many of them one middleware.

A policy tells the person something by writing to the run's stream: a `Notice`, or `TakeBack` when what was shown of the
answer at hand no longer holds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.agents.middleware.types import AgentState, ToolCallRequest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.types import Command

from agent.context import TurnContext

ModelCallRequest = ModelRequest[TurnContext]
ModelCallResponse = ModelResponse[Any]
ToolCallResult = ToolMessage | Command[Any]
ModelCallHandler = Callable[[ModelCallRequest], Awaitable[ModelCallResponse]]
ToolCallHandler = Callable[[ToolCallRequest], Awaitable[ToolCallResult]]


@dataclass(frozen=True, slots=True)
class TakeBack:
    """The text shown of the model call at hand is void: it broke, or was empty, and is made again."""


class ModelPolicy(Protocol):
    """Something to do around every model call."""

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Call `call` with this request or another one, as often as it needs, and answer."""


class ToolPolicy(Protocol):
    """Something to do around every tool call."""

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Call `call`, or answer in its place."""


class PolicyMiddleware(AgentMiddleware[AgentState[Any], TurnContext, Any]):
    """All policies as one middleware; the first of each kind is outermost."""

    def __init__(
        self,
        model: Sequence[ModelPolicy],
        tool: Sequence[ToolPolicy],
        schemas: Sequence[dict[str, Any]] = (),
    ) -> None:
        super().__init__()
        self._schemas: list[BaseTool | dict[str, Any]] = list(
            schemas
        )  # the tools as the model's server reads them, converted once and not per call
        self._model = tuple(reversed(model))
        self._tool = tuple(reversed(tool))

    async def awrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Around the model call."""
        call = handler
        for policy in self._model:
            call = partial(policy.wrap_model_call, handler=call)
        return await call(request.override(tools=self._schemas) if self._schemas else request)

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Around the tool call."""
        call = handler
        for policy in self._tool:
            call = partial(policy.wrap_tool_call, handler=call)
        return await call(request)


def turn_context_of(request: ToolCallRequest) -> TurnContext:
    """The context of the turn a tool call belongs to."""
    return cast(TurnContext, request.runtime.context)


def messages_since_human(messages: Sequence[AnyMessage]) -> Sequence[AnyMessage]:
    """What came after the last words of a person."""
    for index in range(len(messages) - 1, -1, -1):
        if isinstance(messages[index], HumanMessage):
            return messages[index + 1 :]
    return messages


def model_answer(response: ModelCallResponse) -> AIMessage:
    """The model's message in a response."""
    return next(message for message in reversed(response.result) if isinstance(message, AIMessage))


def final_response(text: str) -> ModelCallResponse:
    """A final answer of our own, in the model's place."""
    return ModelResponse(result=[AIMessage(text)])
