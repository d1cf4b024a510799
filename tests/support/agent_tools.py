"""Small tools for the agent's tests: each has one property that a policy handles."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from langchain.tools import ToolRuntime, tool
from langchain_core.tools import BaseTool, ToolException
from langgraph.types import interrupt

from agent.factory import Toolbox
from sandbox.base import SandboxFileError

Runtime = ToolRuntime[Any, Any]  # the context is a TurnContext; pydantic would try to validate its protocols


@tool
async def look(text: str) -> str:
    """Return the text."""
    return f"seen {text}"


@tool
async def effect(text: str, runtime: Runtime) -> str:
    """Append a line to the file of effects, which must not happen twice."""
    sandbox = await runtime.context.sandbox.get()
    await sandbox.write("/mnt/user-data/workspace/effects", f"{text}\n".encode(), append=True)
    return f"did {text}"


@tool
async def slow(seconds: float, runtime: Runtime) -> str:
    """Wait and report progress."""
    runtime.stream_writer({"type": "output", "call": runtime.tool_call_id, "text": "waiting…\n"})
    await asyncio.sleep(seconds)
    return "waited"


@tool
async def big(size: int) -> str:
    """Return a long text."""
    return "".join(f"line {number}\n" for number in range(size))


@tool
async def read_file(path: str, offset: int = 0) -> str:
    """Return the same text for every range."""
    return "the same"


@tool
async def broken(kind: str) -> str:
    """Fail."""
    if kind == "sandbox":
        raise SandboxFileError("/mnt/user-data/workspace/x: no such file")
    if kind == "tool":
        raise ToolException("that is not a number")
    raise RuntimeError("secret host path /etc/x")


@tool(response_format="content_and_artifact")
async def present_files(paths: list[str]) -> tuple[str, dict[str, Any]]:
    """Present files."""
    return "presented", {"presented": [{"path": path, "caption": "caption"} for path in paths]}


@tool
async def ask_clarification(question: str, options: list[str] | None = None) -> str:
    """Ask the person."""
    return str(interrupt({"kind": "ask", "question": question, "options": options or []}))


@tool
async def gated(text: str) -> str:
    """Return what the person decided about this call."""
    return str(interrupt({"kind": "approve", "name": "gated", "args": {"text": text}, "detail": "It has effects."}))


TOOLS: list[BaseTool] = [look, effect, slow, big, read_file, broken, present_files, ask_clarification]


def idempotent(name: str, args: Mapping[str, Any]) -> bool:
    """Whether a call may run again after a crash."""
    return name not in ("effect", "slow")


def toolbox(*more: BaseTool) -> Toolbox:
    """Return all of them."""
    return Toolbox([*TOOLS, *more], frozenset({"effect"}), idempotent)
