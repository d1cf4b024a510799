"""Check every tool call against the rules before it runs, and ask a person where they say so."""

from __future__ import annotations

from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.messages import ToolMessage
from langgraph.types import Interrupt

from agent.permissions.rules import ToolUse, permission_question
from agent.policies.base import ToolCallHandler, ToolCallResult, turn_context_of
from agent.questions import ask_person
from agent.tools.tool import traits_of
from catalogue import N_

APPROVED = (N_("Approve"), N_("Allow in this conversation"), N_("Always allow"))
DENIED_BY_RULE = (
    "A rule of this installation ({rule}) forbids this call. Do not try to get around it; continue without it."
)
DENIED_BY_PERSON = "The person did not approve this call: {answer}. Do not repeat it; continue without it."


class PermissionPolicy:
    """The outermost of the tool policies, so that a question is not recorded as a begun effect.

    A call that was asked about is decided by its answer alone, even if a rule has changed since: otherwise a call that
    a person refused could run.
    """

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Run the call if it is allowed or approved; otherwise tell the model why not."""
        if request.tool is None:  # the model invented a name, and is told so
            return await handler(request)
        context, call = turn_context_of(request), request.tool_call
        traits = traits_of(request.tool)
        use = ToolUse(call["name"], call["args"], traits.subject, traits.permission)
        judgement = context.permissions.judge(use)
        asked = bool(context.asked) and _interrupt_id(request) in context.asked
        if judgement.verdict == "deny" and not asked:
            return _refusal(request, DENIED_BY_RULE.format(rule=judgement.rule or "the default for this tool"))
        if judgement.verdict == "allow" and not asked:
            return await handler(request)
        answer = await ask_person(context, permission_question(use.name, use.args))
        if answer not in APPROVED:
            return _refusal(request, DENIED_BY_PERSON.format(answer=answer))
        if judgement.verdict == "deny":  # the rule came after the question
            return _refusal(request, DENIED_BY_RULE.format(rule=judgement.rule))
        return await handler(request)


def _interrupt_id(request: ToolCallRequest) -> str:
    """Return the id that the first interrupt of this call's task has."""
    return Interrupt.from_ns(None, request.runtime.config["configurable"]["checkpoint_ns"]).id


def _refusal(request: ToolCallRequest, text: str) -> ToolMessage:
    call = request.tool_call
    return ToolMessage(text, tool_call_id=call["id"], name=call["name"], status="error")
