"""Run effects once: replay finished calls and report interrupted ones as unknown."""

from __future__ import annotations

import orjson
from langchain_core.messages import ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest

from agent.core.context import CallNote, LedgerEntry
from agent.core.policy import ToolCallHandler, ToolCallResult, call_key, turn_context_of
from agent.core.tool import traits_of
from agent.policies.loop_detection import FINGERPRINT_KEY

OUTCOME_UNKNOWN = (
    "The service stopped while this call was running, so its outcome is unknown: it may have taken full effect, "
    "partial effect, or none. Verify what happened before you repeat it."
)


class LedgerPolicy:
    """Record each call whose effect must happen once, before and after it runs. Outermost of the tool policies, so
    that a replay returns what the model would have received."""

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Run the tool at most once."""
        if traits_of(request.tool).effect_of(request.tool_call["args"]) != "once":
            return await handler(request)
        context, tool = turn_context_of(request), request.tool_call["name"]
        ledger = context.ledger
        key = call_key(request.state["messages"], request.tool_call["id"])
        if entry := await ledger.begin(key):
            context.notes.append(CallNote("result", tool, "replayed" if entry.result else "unknown"))
            return _replayed_result(request, entry)
        result = await handler(request)
        await ledger.end(key, _dump_result(result) if isinstance(result, ToolMessage) else "")
        return result


def _dump_result(result: ToolMessage) -> str:
    mark = result.additional_kwargs.get(FINGERPRINT_KEY, "")
    return orjson.dumps({"content": result.content, "status": result.status, "mark": mark}).decode()


def _replayed_result(request: ToolCallRequest, entry: LedgerEntry) -> ToolMessage:
    call = request.tool_call
    stored = orjson.loads(entry.result) if entry.result else {"content": OUTCOME_UNKNOWN, "status": "error", "mark": ""}
    fingerprint = {FINGERPRINT_KEY: stored["mark"]} if stored["mark"] else {}
    return ToolMessage(
        stored["content"],
        tool_call_id=call["id"],
        name=call["name"],
        status=stored["status"],
        additional_kwargs=fingerprint,
    )
