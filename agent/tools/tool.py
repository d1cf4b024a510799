"""Make a tool for the model from an async function.

The function's docstring describes the tool to the model, `Annotated[type, "text"]` an argument. langchain does not make
the schema, because its schema would validate and dump the whole state (the argument `runtime`) on every call.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, ParamSpec, TypeVar, get_args, get_type_hints

from langchain.tools import ToolException, ToolRuntime
from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool
from pydantic import ConfigDict, Field, create_model

from agent.context import TurnContext
from sandbox.base import WORKSPACE, SandboxError

P = ParamSpec("P")
T = TypeVar("T", str, tuple[str, dict[str, Any]])
Runtime = ToolRuntime[TurnContext, Any]  # the second is the graph's state, which no tool uses


def make_tool(function: Callable[P, Awaitable[T]]) -> BaseTool:
    """Make the tool. The function returns a result, or a pair of result and artifact; the model does not see the
    artifact. A SandboxError becomes a result with status "error"."""

    @functools.wraps(function)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await function(*args, **kwargs)
        except SandboxError as error:
            raise ToolException(str(error)) from error

    hints = get_type_hints(function, include_extras=True)
    # Each field is (type, default). The runtime is injected, and the model does not see it.
    fields: dict[str, Any] = {"runtime": (Annotated[Any, InjectedToolArg()], Field(exclude=True))}
    for name, parameter in inspect.signature(function).parameters.items():
        if name != "runtime":
            default = ... if parameter.default is parameter.empty else parameter.default
            kind, description = get_args(hints[name])
            fields[name] = (kind, Field(default, description=description))
    tool = StructuredTool(
        name=function.__name__,
        description=inspect.getdoc(function) or "",
        coroutine=call,
        response_format="content" if hints["return"] is str else "content_and_artifact",
        args_schema=create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields),
    )
    tool.handle_tool_error = True
    return tool


def absolute_path(path: str) -> str:
    """Resolve a relative path below the workspace."""
    return path if path.startswith("/") else f"{WORKSPACE}/{path.removeprefix('./')}".rstrip("/")


def join_lines(lines: Sequence[str], limit: int, noun: str) -> str:
    """Join at most `limit` lines; say so if there are more."""
    return "\n".join(lines if len(lines) <= limit else [*lines[:limit], f"[more than {limit} {noun}]"])
