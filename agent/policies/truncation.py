"""Write long tool outputs to a file; give the model the head, the tail and the path."""

from __future__ import annotations

import logging
import re
from hashlib import blake2b

from langchain_core.messages import ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest

from agent.core.policy import ToolCallHandler, ToolCallResult, call_key, turn_context_of
from agent.core.tool import traits_of
from sandbox.base import WORKSPACE, SandboxError, SandboxHandle

log = logging.getLogger(__name__)

OUTPUT_FOLDER = f"{WORKSPACE}/.outputs"


class TruncationPolicy:
    """Limit every tool result to about `max_chars` characters."""

    def __init__(self, max_chars: int) -> None:
        self._max_chars = max_chars

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Run the tool and shorten its output if it is too long."""
        result = await handler(request)
        if not isinstance(result, ToolMessage) or not isinstance(result.content, str):
            return result
        if len(result.content) > self._max_chars and not traits_of(request.tool).paged:
            result.content = await self._shorten_output(request, result.content)
        return result

    async def _shorten_output(self, request: ToolCallRequest, text: str) -> str:
        key = call_key(request.state["messages"], request.tool_call["id"])  # ids alone recur, also among sub-agents
        handle, name = turn_context_of(request).sandbox, request.tool_call["name"]
        return await shorten_output(handle, name, key, text, self._max_chars // 2, self._max_chars // 4)


async def shorten_output(
    handle: SandboxHandle, tool: str, key: str, text: str, head_chars: int, tail_chars: int
) -> str:
    """Return head and tail of a tool's output; the whole is in a file, which `key` names, if the sandbox takes it."""
    head, tail = text[:head_chars], text[len(text) - tail_chars :]
    omitted = len(text) - len(head) - len(tail)
    digest = blake2b(key.encode("utf-8", "replace"), digest_size=8).hexdigest()
    name = re.sub(r"[^\w-]", "_", tool)[:60]
    path = f"{OUTPUT_FOLDER}/{name}-{digest}.txt"
    try:
        sandbox = await handle.get()
        await sandbox.write(path, text.encode("utf-8", "replace"))
    except SandboxError as error:
        log.warning("long tool output could not be written to a file: %s", error)
        return f"{head}\n\n[… {omitted} characters left out …]\n\n{tail}"
    where = f"The whole output of {len(text)} characters is in {path}: use read_file or grep on it."
    return f"{head}\n\n[… {omitted} characters left out. {where} …]\n\n{tail}"
