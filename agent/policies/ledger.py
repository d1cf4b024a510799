"""Run effects once: replay finished calls, report interrupted ones as unknown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson
from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.messages import AIMessage, ToolMessage

from agent.context import LedgerEntry
from agent.policies.base import ToolCallHandler, ToolCallResult, turn_context_of
from agent.policies.loop_detection import FINGERPRINT_KEY

OUTCOME_UNKNOWN = (
    "The service stopped while this call was running, so its outcome is unknown: it may have had its whole effect, a "
    "part of it, or none. Verify what happened before you repeat it."
)


class LedgerPolicy:
    """Records each call of a tool that is not idempotent before and after it runs; outermost of the tool policies, so
    that what is replayed is what the model would have got."""

    def __init__(self, idempotent: Callable[[str, Mapping[str, Any]], bool]) -> None:
        self._idempotent = idempotent

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Run the tool at most once."""
        if self._idempotent(request.tool_call["name"], request.tool_call["args"]):
            return await handler(request)
        ledger = turn_context_of(request).ledger
        key = _ledger_key(request)
        if replay := await ledger.begin(key):
            return _replayed_result(request, replay)
        result = await handler(request)
        await ledger.end(key, _dump_result(result) if isinstance(result, ToolMessage) else "")
        return result


def _ledger_key(request: ToolCallRequest) -> str:
    """The call's id within the message it came in: some servers begin to count their call ids anew every time."""
    call = request.tool_call["id"]
    for message in reversed(request.state["messages"]):
        if isinstance(message, AIMessage):
            return f"{message.id}/{call}"
    return str(call)


def _dump_result(result: ToolMessage) -> str:
    mark = result.additional_kwargs.get(FINGERPRINT_KEY, "")
    return orjson.dumps({"content": result.content, "status": result.status, "mark": mark}).decode()


def _replayed_result(request: ToolCallRequest, replay: LedgerEntry) -> ToolMessage:
    call = request.tool_call
    if not replay.result:
        return ToolMessage(OUTCOME_UNKNOWN, tool_call_id=call["id"], name=call["name"], status="error")
    kept = orjson.loads(replay.result)
    return ToolMessage(
        kept["content"],
        tool_call_id=call["id"],
        name=call["name"],
        status=kept["status"],
        additional_kwargs={FINGERPRINT_KEY: kept["mark"]} if kept["mark"] else {},
    )
