"""Log each tool call: what the agent did, for the operator. Note its outcome for the audit.

Arguments are people's words in the model's mouth, so only the level `debug` shows them: the log is not searched when
somebody is forgotten. `fawn export` shows what was called with which arguments.
"""

from __future__ import annotations

import logging
import re
import time
from typing import Any

import orjson
from langchain_core.messages import ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest

from agent.core.context import CallNote
from agent.core.policy import ToolCallHandler, ToolCallResult, turn_context_of

log = logging.getLogger(__name__)

MAX_VALUE_CHARS = 300
MAX_SEARCHED_CHARS = MAX_VALUE_CHARS + 100  # so that the cut does not split a name from its value
_SECRET_WORD = r"(?:token|passw(?:or)?d|secret|api[_-]?key|authorization)\w*+"  # noqa: S105  a pattern
_SECRETS = re.compile(rf"(?i)({_SECRET_WORD}[\"']?\s*[=:]\s*[\"']?(?:bearer |basic )?|--?{_SECRET_WORD}\s+)[^\s\"'&;]+")


class ToolLogPolicy:
    """Log a call before it runs, so that the log has it after a crash too, and its outcome."""

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Run the tool between two lines of the log."""
        name, began = request.tool_call["name"], time.monotonic()
        arguments = request.tool_call["args"]
        log.info("tool.begin tool=%s characters=%d", name, sum(map(_size, arguments.values())))
        if log.isEnabledFor(logging.DEBUG):
            log.debug("tool.arguments tool=%s arguments=%s", name, loggable_arguments(arguments))
        result = await handler(request)
        status = result.status if isinstance(result, ToolMessage) else "success"
        log.info("tool.end tool=%s status=%s seconds=%.1f", name, status, time.monotonic() - began)
        turn_context_of(request).notes.append(CallNote("result", name if request.tool else "", status))
        return result


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str) else len(orjson.dumps(value, default=str))


def loggable_arguments(arguments: dict[str, Any]) -> str:
    """Return the arguments as JSON: long values cut, values that are named like secrets hidden."""
    return orjson.dumps({name: _shorten(value) for name, value in arguments.items()}, default=str).decode()


def _shorten(value: Any) -> Any:
    text = value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
    shown = _SECRETS.sub(r"\1***", text[:MAX_SEARCHED_CHARS])
    if len(text) > MAX_SEARCHED_CHARS or len(shown) > MAX_VALUE_CHARS:
        return f"{shown[:MAX_VALUE_CHARS]}… ({len(text):,} characters)"
    return shown if isinstance(value, str) or shown != text else value
