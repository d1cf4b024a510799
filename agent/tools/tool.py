"""Turn an async function into a tool the model can call.

The function's docstring is what the model reads, `Annotated[type, "words"]` describes an argument. The schema is made
here and not by langchain, whose own would validate and dump the whole state (the `runtime` argument) with every call.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

from langchain.tools import ToolException, ToolRuntime
from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool
from pydantic import ConfigDict, Field, create_model

from agent.context import TurnContext
from sandbox.base import WORKSPACE, SandboxError

P = ParamSpec("P")
T = TypeVar("T", str, tuple[str, dict[str, Any]])
Runtime = ToolRuntime[TurnContext, Any]  # the second is the graph's state, which no tool looks at


def make_tool(function: Callable[P, Awaitable[T]]) -> BaseTool:
    """The tool. It gives its result, or a pair: the result, and what is kept with it that the model does not see. What
    a sandbox refuses becomes the tool's result, with status "error"."""

    @functools.wraps(function)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await function(*args, **kwargs)
        except SandboxError as error:
            raise ToolException(str(error)) from error

    hints = get_type_hints(function, include_extras=True)
    # What create_model takes: (type, default). The runtime passes as it is; the model never hears of it.
    fields: dict[str, Any] = {"runtime": (Annotated[Any, InjectedToolArg()], Field(exclude=True))}
    for name, parameter in inspect.signature(function).parameters.items():
        if name != "runtime":
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[name] = _argument_field(hints[name], default)
    tool = StructuredTool(
        name=function.__name__,
        description=inspect.getdoc(function) or "",
        coroutine=call,
        response_format="content" if hints["return"] is str else "content_and_artifact",
        args_schema=create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields),
    )
    tool.handle_tool_error = True
    return tool


def _argument_field(hint: Any, default: Any) -> tuple[Any, Any]:  # a type as typing gives it, and any default
    if get_origin(hint) is Annotated:
        kind, words = get_args(hint)[:2]
        return kind, Field(default, description=words)
    return hint, default


def absolute_path(path: str) -> str:
    """A path as the sandbox wants it; a relative one is meant below the workspace."""
    return path if path.startswith("/") else f"{WORKSPACE}/{path.removeprefix('./')}".rstrip("/")
