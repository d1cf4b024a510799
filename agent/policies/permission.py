"""Check every tool call against the rules before it runs, and ask a person where they say so."""

from __future__ import annotations

import json
import logging
from hashlib import sha256

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Interrupt

from agent.blocks import APPROVAL_OPTIONS, DENY
from agent.core.context import CallNote, JudgedCall
from agent.core.policy import (
    ModelCallHandler,
    ModelCallRequest,
    ModelCallResponse,
    ToolCallHandler,
    ToolCallResult,
    call_key,
    turn_context_of,
)
from agent.core.questions import ask_person
from agent.core.tool import traits_of
from agent.permissions.paths import refused_path, resolve_paths
from agent.permissions.rules import GRANTED, Judgement, PermissionGate, ToolUse, describe_call, permission_question
from agent.policies.outward import explicit, outward_question, outward_use, settles
from agent.reach import OUT_OF_REACH
from sandbox.base import SandboxError

log = logging.getLogger(__name__)

APPROVED = frozenset(APPROVAL_OPTIONS) - {DENY}
DENIED_BY_RULE = (
    "A rule of this installation ({rule}) forbids this call. Do not try to get around it; continue without it."
)
DENIED_WHILE_PLANNING = (
    "Plan mode: only tools that just read or search run before the person agreed to your plan, and this one may change"
    " something. Answer with the plan."
)
DENIED_BY_PERSON = "The person did not approve this call: {answer}. Do not repeat it; continue without it."
NO_FILE = "{path} is no file that this tool may use: what it leads to depends on the process that opens it."
NOT_JUDGED = "This call did not run: whether it is allowed could not be checked. Continue without it, and say so."


class PermissionPolicy:
    """The outermost of the tool policies, so that a question is not recorded as a begun effect.

    A call that was asked about is decided by its answer alone, even if a rule has changed since: otherwise a call that
    a person refused could run. The model does not get tools that never run.
    """

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Call the model without the tools that a rule denies."""
        gate = request.runtime.context.permissions
        tools = [tool for tool in request.tools if not (isinstance(tool, BaseTool) and gate.hides(tool.name))]
        return await handler(request if len(tools) == len(request.tools) else request.override(tools=tools))

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Run the call if it is allowed or approved; otherwise tell the model why not."""
        if request.state.get("planning") and not _may_plan_with(request):
            _note(request, "denied", by="plan")
            return _refusal(request, DENIED_WHILE_PLANNING)
        if request.tool is None:  # the model invented a name, and is told so
            return await handler(request)
        context, call = turn_context_of(request), request.tool_call
        traits = traits_of(request.tool)
        use = ToolUse(call["name"], call["args"], traits.subject, traits.permission)
        if use.paths():
            try:
                use = await resolve_paths(use, context.sandbox) if context.permissions.compares(use.name) else use
            except SandboxError as error:  # the tool would meet it, too
                return _refusal(request, str(error))
            if path := refused_path(use):
                _note(request, "denied", by="rule")
                return _refusal(request, NO_FILE.format(path=path))
        if (judgement := await _judge_safely(context.permissions, use)) is None:
            _note(request, "denied", by="fault")
            return _refusal(request, NOT_JUDGED)
        asked = bool(context.asked) and _interrupt_id(request) in context.asked
        if judgement.rule != OUT_OF_REACH and not asked:
            context.judged.append(JudgedCall.of(call_key(request.state["messages"], call["id"]), use, judgement))
        to = ""
        if judgement.verdict == "allow" and not settles(judgement, use, traits.outward):
            to = context.exposure.destination(traits.outward, use.name, use.args)
            if to and (judged := await _judge_safely(context.permissions, outward_use(to))) is None:
                _note(request, "denied", by="fault")
                return _refusal(request, NOT_JUDGED)
            judgement = explicit(judged) if to and judged else judgement
        if judgement.verdict == "deny" and not asked:
            _note(request, "denied", by="rule")
            return _refusal(request, DENIED_BY_RULE.format(rule=judgement.rule or "the default for this tool"))
        if judgement.verdict == "allow" and not asked:
            _note(request, "granted" if judgement.rule == GRANTED else "allowed")
            return await handler(request)
        answer = await ask_person(context, outward_question(use, to) if to else permission_question(use))
        approval = sha256(describe_call(use.name, use.args).encode()).hexdigest()
        if answer not in APPROVED:
            _note(request, "denied", by="person", approval=approval)
            return _refusal(request, DENIED_BY_PERSON.format(answer=answer))
        if (judgement := await _judge_safely(context.permissions, use)) is None:
            _note(request, "denied", by="fault", approval=approval)
            return _refusal(request, NOT_JUDGED)
        if judgement.verdict == "deny":  # the rule came after the question
            _note(request, "denied", by="rule", approval=approval)
            return _refusal(request, DENIED_BY_RULE.format(rule=judgement.rule))
        context.asked = {*context.asked, _interrupt_id(request)}  # for a tool that asks, too
        _note(request, "approved", approval=approval)
        return await handler(request)


def _may_plan_with(request: ToolCallRequest) -> bool:
    """Return whether a call only reads, or asks the person. `effect` does not say so: it is about repeated calls."""
    traits = traits_of(request.tool)
    return request.tool is None or traits.read_only or traits.asks


async def _judge_safely(gate: PermissionGate, use: ToolUse) -> Judgement | None:
    """Return the verdict, or None if the call cannot be judged: then it does not run."""
    try:
        return await gate.judge(use)
    except Exception:  # whatever the gate raises
        log.exception("permission.not_judged tool=%s", use.name)
        return None


def _interrupt_id(request: ToolCallRequest) -> str:
    """Return the id that the first interrupt of this call's task has."""
    return Interrupt.from_ns(None, request.runtime.config["configurable"]["checkpoint_ns"]).id


def _note(request: ToolCallRequest, outcome: str, by: str = "", approval: str = "") -> None:
    """Note for the audit what was decided about a call, without its arguments."""
    name, args = request.tool_call["name"], request.tool_call["args"]
    arguments = sha256(json.dumps(args, sort_keys=True, default=str).encode()).hexdigest()
    turn_context_of(request).notes.append(CallNote("call", name, outcome, arguments, approval, by))


def _refusal(request: ToolCallRequest, text: str) -> ToolMessage:
    call = request.tool_call
    return ToolMessage(text, tool_call_id=call["id"], name=call["name"], status="error")
