"""Write long tool outputs to a file; give the model the beginning, the end and the path."""

from __future__ import annotations

import logging
import re

from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.messages import ToolMessage

from agent.policies.base import ToolCallHandler, ToolCallResult, turn_context_of
from sandbox.base import WORKSPACE, SandboxError

log = logging.getLogger(__name__)

OUTPUT_FOLDER = f"{WORKSPACE}/.outputs"
EXEMPT_TOOLS = frozenset({"read_file"})  # it bounds itself, and is how the file is read


class TruncationPolicy:
    """Bounds every tool result to about `chars` characters."""

    def __init__(self, chars: int) -> None:
        self._chars = chars

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Run the tool and shorten what is too long."""
        result = await handler(request)
        if not isinstance(result, ToolMessage) or not isinstance(result.content, str):
            return result
        if len(result.content) > self._chars and request.tool_call["name"] not in EXEMPT_TOOLS:
            result.content = await self._shorten_output(request, result.content)
        return result

    async def _shorten_output(self, request: ToolCallRequest, text: str) -> str:
        head, tail = text[: self._chars // 2], text[-self._chars // 4 :]
        left_out = len(text) - len(head) - len(tail)
        name = re.sub(r"[^\w-]", "_", f"{request.tool_call['name']}-{request.tool_call['id']}")[:80]
        path = f"{OUTPUT_FOLDER}/{name}.txt"
        try:
            sandbox = await turn_context_of(request).sandbox.get()
            await sandbox.write(path, text.encode("utf-8", "replace"))
        except SandboxError as error:
            log.warning("a long tool output was not kept: %s", error)
            return f"{head}\n\n[… {left_out} characters left out …]\n\n{tail}"
        return (
            f"{head}\n\n[… {left_out} characters left out. The whole output of {len(text)} characters is in {path}: "
            f"use read_file or grep on it. …]\n\n{tail}"
        )
