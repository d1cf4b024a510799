"""Small tools for the agent's tests: each has one property that a policy handles."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from langchain_core.tools import BaseTool, ToolException
from langgraph.prebuilt import ToolRuntime
from langgraph.types import interrupt

from agent.core.tool import AgentTool, ToolTraits
from sandbox.base import SandboxFileError

Runtime = ToolRuntime[Any, Any]  # the context is a TurnContext; pydantic would try to validate its protocols


def tool_with(
    response: Literal["content", "content_and_artifact"] = "content", **traits: Any
) -> Callable[[Callable[..., Awaitable[Any]]], AgentTool]:
    """Return a decorator that makes a tool with these traits."""

    def decorate(function: Callable[..., Awaitable[Any]]) -> AgentTool:
        made = AgentTool.from_function(
            coroutine=function, response_format=response, traits=ToolTraits(**{"permission": "allow"} | traits)
        )
        assert isinstance(made, AgentTool)
        return made

    return decorate


@tool_with(effect="none", read_only=True)
async def look(text: str) -> str:
    """Return the text."""
    return f"seen {text}"


@tool_with(needs_sandbox=True)
async def effect(text: str, runtime: Runtime) -> str:
    """Append a line to the file of effects, which must not happen twice."""
    sandbox = await runtime.context.sandbox.get()
    await sandbox.write("/mnt/user-data/workspace/effects", f"{text}\n".encode(), append=True)
    return f"did {text}"


@tool_with()
async def slow(seconds: float, runtime: Runtime) -> str:
    """Wait and report progress."""
    runtime.stream_writer({"type": "output", "call": runtime.tool_call_id, "text": "waiting…\n"})
    await asyncio.sleep(seconds)
    return "waited"


@tool_with(effect="none")
async def big(size: int) -> str:
    """Return a long text."""
    return "".join(f"line {number}\n" for number in range(size))


@tool_with(effect="none", paged=True)
async def read_file(path: str, offset: int = 0) -> str:
    """Return the same text for every range."""
    return "the same"


@tool_with(effect="none")
async def broken(kind: str) -> str:
    """Fail."""
    if kind == "sandbox":
        raise SandboxFileError("/mnt/user-data/workspace/x: no such file")
    if kind == "tool":
        raise ToolException("that is not a number")
    raise RuntimeError("secret host path /etc/x")


@tool_with(effect="none")
async def fails(line: int) -> str:
    """Fail for the same reason every time."""
    raise ToolException(f"syntax error in line {line}")


@tool_with("content_and_artifact", effect="none")
async def present_files(paths: list[str]) -> tuple[str, dict[str, Any]]:
    """Present files."""
    return "presented", {"presented": [{"path": path, "caption": "caption"} for path in paths]}


@tool_with(effect="resumable", asks=True)
async def ask_clarification(question: str, options: list[str] | None = None) -> str:
    """Ask the person."""
    return str(interrupt({"kind": "ask", "question": question, "options": options or [], "context": True}))


@tool_with(effect="resumable")
async def gated(text: str) -> str:
    """Return what the person decided about this call."""
    return str(interrupt({"kind": "approve", "name": "gated", "args": {"text": text}, "detail": "It has effects."}))


TOOLS: list[BaseTool] = [look, effect, slow, big, read_file, broken, fails, present_files, ask_clarification]
