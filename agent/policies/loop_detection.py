"""Detect repeated tool calls and failures: have the model reflect once, warn it, then end the turn."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import orjson
from langchain_core.messages import AnyMessage, ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest

from agent.core.policy import (
    ModelCallHandler,
    ModelCallRequest,
    ModelCallResponse,
    ToolCallHandler,
    ToolCallResult,
    final_response,
    messages_since_human,
)
from agent.core.tool import traits_of
from catalogue import _

FINGERPRINT_KEY = "fingerprint"
READ_WINDOW_LINES = 200  # reads that start within the same window count as equal
LOOP_WARNING = (
    "\n\n[This was call number {count} with the same arguments and the same result. Repeating it will not help: "
    "change your approach, or tell the person what blocks you.]"
)
REFLECTION = (
    "\n\n[This approach has failed {count} times in much the same way. Before you call another tool, write down what"
    " you assumed, what these failures show about it, and at least two different approaches. Then take the better one,"
    " or tell the person what blocks you.]"
)
FAILURE_KEY, REFLECTED_KEY = "failure", "reflected"
MAX_FAILURE_CHARS = 200  # of an output's end, which is where the reason stands
MAX_END_CHARS = 400  # of a result, where the line about its failure is searched
_FAILED_COMMAND = re.compile(r"\n?\[(?:exit code -?[1-9]\d*+|stopped after [^\[\]]*+)\]$")
_DETAIL = re.compile(r"0x[0-9a-f]+|\d+|'[^']*'|\"[^\"]*\"|`[^`]*`|[\w.~-]*/[\w./~-]+")


class LoopDetectionPolicy:
    """Count calls with equal tool, arguments and output since a person's last message. Warn the model at `warn_count`
    and end the turn at `stop_count`.

    Failures look equal if they differ in numbers, names and paths only. At `reflect_count` of them, the model is told
    to reflect, once until a person's next message.
    """

    def __init__(self, warn_count: int = 3, stop_count: int = 5, reflect_count: int = 3) -> None:
        self._warn_count = warn_count
        self._stop_count = stop_count
        self._reflect_count = reflect_count

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Add the fingerprint to the result and, if it is repeated too often, a warning."""
        result = await handler(request)
        if not isinstance(result, ToolMessage) or not isinstance(result.content, str):
            return result
        call, paged = request.tool_call, traits_of(request.tool).paged
        mark = call_fingerprint(call["name"], call["args"], result.content, paged=paged)
        messages = messages_since_human(request.state["messages"])
        count = 1 + _marks(messages, FINGERPRINT_KEY)[mark]
        result.additional_kwargs[FINGERPRINT_KEY] = mark
        if not self._reflect(result, messages) and count >= self._warn_count:
            result.content += LOOP_WARNING.format(count=count)
        return result

    def _reflect(self, result: ToolMessage, messages: Sequence[AnyMessage]) -> bool:
        """Have the model reflect if this is one failure too many. Returns whether it was told so now."""
        if not (mark := failure_mark(result)):
            return False
        result.additional_kwargs[FAILURE_KEY] = mark
        count = 1 + _marks(messages, FAILURE_KEY)[mark]
        if count < self._reflect_count or any(REFLECTED_KEY in message.additional_kwargs for message in messages):
            return False
        result.content = f"{result.content}{REFLECTION.format(count=count)}"
        result.additional_kwargs[REFLECTED_KEY] = True
        return True

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Call the model, or end the turn if a tool call was repeated too often."""
        marks = _marks(messages_since_human(request.messages), FINGERPRINT_KEY)
        mark, count = next(iter(marks.most_common(1)), ("", 0))
        if count < self._stop_count:
            return await handler(request)
        tool = next(m.name for m in request.messages if m.additional_kwargs.get(FINGERPRINT_KEY) == mark)
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


def failure_mark(result: ToolMessage) -> str:
    """Return a short hash of how a call failed, "" if it did not, or did not say why."""
    text = str(result.content).rstrip()
    end = _FAILED_COMMAND.search(text[-MAX_END_CHARS:])
    reason = text[: len(text) - len(end[0])] if end else text
    if not reason or (result.status != "error" and reason == text):
        return ""
    looks = f"{result.name}\0{_DETAIL.sub('', reason[-MAX_FAILURE_CHARS:])}"
    return blake2b(looks.encode("utf-8", "replace"), digest_size=12).hexdigest()


def _marks(messages: Sequence[AnyMessage], key: str) -> Counter[str]:
    return Counter(str(mark) for message in messages if (mark := message.additional_kwargs.get(key)))
