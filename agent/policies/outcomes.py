"""Log each tool call, and note how it ended.

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
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt.tool_node import ToolCallRequest

from agent.core.context import CallNote
from agent.core.policy import ToolCallHandler, ToolCallResult, turn_context_of
from agent.outcomes import CallError, CallOutcome, Used
from agent.span_contents import cut, value_text
from agent.spans import SpanKind, open_span, wants_contents
from sandbox.base import SKILLS, SandboxError

RUN_SKILL, BASH = "run_skill", "bash"
MAX_NAME_CHARS = 100  # of a tool: a server may call its tools what it likes
MAX_SEARCHED_CHARS = 8000  # of an argument
_SKILL_PATH = re.compile(rf"{SKILLS}/([a-z0-9-]{{1,64}})/")
_EXIT = re.compile(r"\[(?:exit code [1-9]\d{0,2}|(stopped after) [^\[\]]{1,80})\]$")


class OutcomePolicy:
    """Innermost of the tool policies: it sees the calls that really run, and their exceptions."""

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Run the tool. One that asks a person, or is stopped, has not ended."""
        began = time.monotonic()
        call = request.tool_call
        with open_span(
            SpanKind.TOOL, call["name"][:MAX_NAME_CHARS] if request.tool else "", id=(call["id"] or "")[:MAX_NAME_CHARS]
        ) as span:
            if wants_contents():
                span.note(arguments=value_text(call["args"]))
            try:
                result = await handler(request)
            except GraphBubbleUp:
                span.note(outcome="waiting")
                raise
            except Exception as error:
                span.note(error=_class_of(error))
                _note(request, _class_of(error), time.monotonic() - began)
                raise
            failed = isinstance(result, ToolMessage) and result.status == "error"
            span.note(outcome=CallError.REPORTED if failed else "")
            if wants_contents() and isinstance(result, ToolMessage):
                span.note(result=cut(result.text))
        _note(request, CallError.REPORTED if failed else None, time.monotonic() - began, result)
        return result


def _class_of(error: Exception) -> CallError:
    if isinstance(error, TimeoutError):
        return CallError.TIMEOUT
    return CallError.SANDBOX if isinstance(error, SandboxError) else CallError.FAULT


def _note(
    request: ToolCallRequest, error: CallError | None, seconds: float, result: ToolCallResult | None = None
) -> None:
    """Note a call of a tool that exists, and of each skill that it used; a model can invent names."""
    context, name = turn_context_of(request), request.tool_call["name"]
    if request.tool is None:
        return
    context.meter.note(CallOutcome(Used.TOOL, name[:MAX_NAME_CHARS], error=error, seconds=seconds))
    known = context.skills.current.skills if context.skills else {}
    for skill in sorted(_skills_of(request) & {*known}):
        ended = error or (_exit_error(result) if name == BASH else None)
        context.meter.note(CallOutcome(Used.SKILL, skill, error=ended, seconds=seconds))


def _skills_of(request: ToolCallRequest) -> set[str]:
    """Return the names in the arguments of what runs or reads files of skills."""
    call = request.tool_call
    if call["name"] == RUN_SKILL:
        return {str(call["args"].get("name"))}
    texts = [value[:MAX_SEARCHED_CHARS] for value in call["args"].values() if isinstance(value, str)]
    return {name for text in texts for name in _SKILL_PATH.findall(text)}


def _exit_error(result: ToolCallResult | None) -> CallError | None:
    """Return how a command failed, by the line that ends its output."""
    text = str(result.content)[-200:] if isinstance(result, ToolMessage) else ""
    found = _EXIT.search(text.rstrip())
    return (CallError.TIMEOUT if found[1] else CallError.EXIT_CODE) if found else None


log = logging.getLogger(__name__)

MAX_VALUE_CHARS = 300
MAX_REDACTED_CHARS = MAX_VALUE_CHARS + 100  # so that the cut does not split a name from its value
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
    shown = _SECRETS.sub(r"\1***", text[:MAX_REDACTED_CHARS])
    if len(text) > MAX_REDACTED_CHARS or len(shown) > MAX_VALUE_CHARS:
        return f"{shown[:MAX_VALUE_CHARS]}… ({len(text):,} characters)"
    return shown if isinstance(value, str) or shown != text else value
