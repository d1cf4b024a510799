"""Run only whole tool calls; a call that is cut off, no JSON or unfit goes back to the model. Say if a text is cut."""

from __future__ import annotations

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest
from pydantic import BaseModel, ValidationError

from agent.blocks import Notice
from agent.core.policy import (
    ModelCallHandler,
    ModelCallRequest,
    ModelCallResponse,
    ToolCallHandler,
    ToolCallResult,
    append_text,
    model_answer,
)
from agent.models.whole_calls import CutReason, cut_reason, refusal_of, settle_calls
from agent.policies.loop_detection import LoopDetectionPolicy
from catalogue import N_, _

CUT_TEXTS = {
    "length": N_("My model reached its output limit, so this answer is cut off. Ask me to continue."),
    "filter": N_("My model's provider filtered the answer, so it is cut off. Please rephrase your request."),
}
CUT_MARK = "[This answer is cut off here.]"
MAX_FAULTS = 5


class WholeCallsPolicy:
    """Around the model, it settles the calls of each answer; around the tools, it answers those that must not run.

    A refused call reaches no tool and no person, and counts as a repeated one in `loops`. The lead tells the person
    that a text is cut off (`tells_person`), a sub-agent its caller.
    """

    def __init__(self, loops: LoopDetectionPolicy, *, tells_person: bool) -> None:
        self._loops = loops
        self._tells_person = tells_person

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Call the model. Each call of its answer has an id that is unique in the conversation and in the turn."""
        response = await handler(request)
        answer = model_answer(response)
        if answer.tool_calls or answer.invalid_tool_calls:
            taken = request.runtime.context.call_ids
            taken.update(str(call["id"]) for m in request.messages if isinstance(m, AIMessage) for call in m.tool_calls)
            settle_calls(answer, taken)
        cut: CutReason = cut_reason(answer)
        if cut and answer.text.strip() and not answer.tool_calls:
            if self._tells_person:
                request.runtime.stream_writer(Notice("cut", _(CUT_TEXTS[cut]), kept=True))
            else:
                append_text(answer, CUT_MARK)
        return response

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Run the call, or answer why it does not run."""
        call, messages = request.tool_call, request.state["messages"]
        answer = next((m for m in reversed(messages) if isinstance(m, AIMessage)), None)
        fault = refusal_of(answer, call["id"]) or _schema_fault(request.tool, call["args"])
        if not fault:
            return await handler(request)

        async def refuse(request: ToolCallRequest) -> ToolCallResult:
            return ToolMessage(fault, tool_call_id=call["id"], name=call["name"], status="error")

        return await self._loops.wrap_tool_call(request, refuse)


def _schema_fault(tool: BaseTool | None, args: dict[str, object]) -> str:
    """Return how the arguments miss the tool's schema, "" if they fit. A server checks those of its own tools."""
    schema = tool.args_schema if tool else None
    if not (isinstance(schema, type) and issubclass(schema, BaseModel)):
        return ""
    try:
        schema.model_validate(args)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        faults = [fault for fault in found if fault["loc"][:1] != ("runtime",)]  # injected when it runs
        if not faults:
            return ""
        told = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults[:MAX_FAULTS]]
        return f"The arguments do not fit the tool, so the call did not run: {'; '.join(told)}."
    return ""
