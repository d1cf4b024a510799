"""Detect repeated tool calls: warn the model, then end the turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import orjson
from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.messages import AnyMessage, ToolMessage

from agent.policies.base import (
    ModelCallHandler,
    ModelCallRequest,
    ModelCallResponse,
    ToolCallHandler,
    ToolCallResult,
    final_response,
    messages_since_human,
)
from agent.tools.tool import traits_of
from catalogue import _

FINGERPRINT_KEY = "fingerprint"
READ_WINDOW_LINES = 200  # reads that start within the same window count as equal
LOOP_WARNING = (
    "\n\n[This was call number {count} with the same arguments and the same result. Repeating it will not help: "
    "change your approach, or tell the person what blocks you.]"
)


class LoopDetectionPolicy:
    """Count calls with equal tool, arguments and output since a person's last message. Warn the model at `warn_count`
    and end the turn at `stop_count`."""

    def __init__(self, warn_count: int = 3, stop_count: int = 5) -> None:
        self._warn_count = warn_count
        self._stop_count = stop_count

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Add the fingerprint to the result and, if it is repeated too often, a warning."""
        result = await handler(request)
        if not isinstance(result, ToolMessage) or not isinstance(result.content, str):
            return result
        call, paged = request.tool_call, traits_of(request.tool).paged
        mark = call_fingerprint(call["name"], call["args"], result.content, paged=paged)
        count = 1 + _fingerprints(request.state["messages"])[mark]
        result.additional_kwargs[FINGERPRINT_KEY] = mark
        if count >= self._warn_count:
            result.content += LOOP_WARNING.format(count=count)
        return result

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Call the model, or end the turn if a tool call was repeated too often."""
        marks = _fingerprints(request.messages)
        mark, count = next(iter(marks.most_common(1)), ("", 0))
        if count < self._stop_count:
            return await handler(request)
        tool = next(m.name for m in request.messages if isinstance(m, ToolMessage) and _fingerprint_of(m) == mark)
        return final_response(
            _(
                "I stopped because I was going in circles: I called `{tool}` {count} times with the same arguments and"
                " always got the same result. Tell me what to try instead.",
                tool=tool,
                count=count,
            )
        )


def call_fingerprint(name: str, args: Mapping[str, Any], output: str, *, paged: bool = False) -> str:
    """Return a short hash of tool, arguments and output; of a `paged` tool with numbers rounded to a window."""
    if paged:
        args = {key: value // READ_WINDOW_LINES if isinstance(value, int) else value for key, value in args.items()}
    call = orjson.dumps([name, args], option=orjson.OPT_SORT_KEYS, default=str)
    return blake2b(call + b"\0" + output.encode("utf-8", "replace"), digest_size=12).hexdigest()


def _fingerprint_of(message: ToolMessage) -> str:
    return str(message.additional_kwargs.get(FINGERPRINT_KEY, ""))


def _fingerprints(messages: Sequence[AnyMessage]) -> Counter[str]:
    tools = (message for message in messages_since_human(messages) if isinstance(message, ToolMessage))
    return Counter(mark for message in tools if (mark := _fingerprint_of(message)))
