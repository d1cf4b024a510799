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

FINGERPRINT_KEY = "fingerprint"
READ_WINDOW_LINES = 200  # lines of a file that count as one place
LOOP_WARNING = (
    "\n\n[This was call number {count} with the same arguments and the same result. Repeating it will not help: "
    "change the approach, or tell the person what is in the way.]"
)


class LoopDetectionPolicy:
    """Counts calls with equal tool, arguments and output since a person last spoke: a word to the model at `warn`, the
    end at `stop`. Reads of one file count as equal only within the same 200 lines."""

    def __init__(self, warn: int = 3, stop: int = 5) -> None:
        self._warn = warn
        self._stop = stop

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Mark the result with its fingerprint and, if it came too often, with a warning."""
        result = await handler(request)
        if not isinstance(result, ToolMessage) or not isinstance(result.content, str):
            return result
        mark = call_fingerprint(request.tool_call["name"], request.tool_call["args"], result.content)
        count = 1 + _fingerprints(request.state["messages"])[mark]
        result.additional_kwargs[FINGERPRINT_KEY] = mark
        if count >= self._warn:
            result.content += LOOP_WARNING.format(count=count)
        return result

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """End the turn instead of calling when a call came too often."""
        marks = _fingerprints(request.messages)
        mark, count = next(iter(marks.most_common(1)), ("", 0))
        if count < self._stop:
            return await handler(request)
        tool = next(m.name for m in request.messages if isinstance(m, ToolMessage) and _fingerprint_of(m) == mark)
        return final_response(
            f"I stopped because I was going in circles: I called `{tool}` {count} times in the same way and always got "
            "the same result. Tell me what to try instead."
        )


def call_fingerprint(name: str, args: Mapping[str, Any], output: str) -> str:
    """A short name for "this tool, so called, said this"."""
    if name == "read_file":
        args = {key: value // READ_WINDOW_LINES if isinstance(value, int) else value for key, value in args.items()}
    call = orjson.dumps([name, args], option=orjson.OPT_SORT_KEYS, default=str)
    return blake2b(call + b"\0" + output.encode("utf-8", "replace"), digest_size=12).hexdigest()


def _fingerprint_of(message: ToolMessage) -> str:
    return str(message.additional_kwargs.get(FINGERPRINT_KEY, ""))


def _fingerprints(messages: Sequence[AnyMessage]) -> Counter[str]:
    tools = (message for message in messages_since_human(messages) if isinstance(message, ToolMessage))
    return Counter(mark for message in tools if (mark := _fingerprint_of(message)))
