"""Check every tool call against the rules before it runs, and ask a person where they say so.

The question whether a call may carry data out: for rules a call of its own, such as `outward(web_fetch HOST)`.

Note what each tool result exposes the conversation to, before the model sees it.

Say which file a call of a file tool is about, however its path is written.
"""

from __future__ import annotations

import json
import logging
import posixpath
import re
from dataclasses import replace
from hashlib import sha256
from typing import Any, Protocol

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command, Interrupt

from agent.blocks import APPROVAL_OPTIONS, DENY
from agent.core.context import CallNote, JudgedCall
from agent.core.policy import (
    DENIED_KEY,
    ModelCallHandler,
    ModelCallRequest,
    ModelCallResponse,
    ToolCallHandler,
    ToolCallResult,
    call_key,
    turn_context_of,
)
from agent.core.tool import ask_person, traits_of
from agent.exposure import OUTWARD, WayOut, host_of
from agent.permissions.rules import (
    GRANTED,
    Judgement,
    PermissionGate,
    Subject,
    ToolUse,
    canonical_path,
    describe_call,
    parse_rule,
    permission_question,
)
from agent.reach import OUT_OF_REACH
from sandbox.base import Sandbox, SandboxError, SandboxFileError


def outward_use(to: str) -> ToolUse:
    """Return the use that rules and grants judge; without one, a person is asked."""
    return ToolUse(OUTWARD, {"to": to}, Subject("to"), "ask")


def outward_question(use: ToolUse, to: str) -> dict[str, Any]:
    """Return the value of the interrupt that asks whether a call may carry data out: the call as it is, and what a
    person may allow for later."""
    return permission_question(use) | {"grant": [OUTWARD, to], "argument": "", OUTWARD: to}


def settles(judgement: Judgement, use: ToolUse, way: WayOut) -> bool:
    """Return whether what allows a call also says that it may carry data out: a person's grant for this call, or a rule
    that names both the tool and, where there is one, the host, without a wildcard. A command line names no host."""
    if judgement.rule == GRANTED:
        return True
    if not judgement.rule:
        return False
    rule = parse_rule("allow", judgement.rule)
    if way == "network" or _has_wildcard(rule.tool):
        return False
    if way == "address":
        return bool(rule.pattern) and host_of(rule.pattern) == host_of(str(use.args.get("url", "")).strip()) != ""
    return not _has_wildcard(rule.pattern)


def explicit(judgement: Judgement) -> Judgement:
    """Return the judgement of an `outward_use`. A rule allows it only if it says `outward` and names a tool, and for
    a tool with addresses a host or domain: `*`, `outward` and `outward(web_fetch *)` do not, so a person is asked."""
    if judgement.verdict != "allow" or judgement.rule == GRANTED:
        return judgement
    rule = parse_rule("allow", judgement.rule)
    named = [re.sub(r"[*?.\-_\[\]]", "", word) for word in rule.pattern.split(" ")]
    return judgement if rule.tool.lower() == OUTWARD and all(named) else Judgement("ask")


def _has_wildcard(pattern: str) -> bool:
    return any(mark in pattern for mark in "*?[")


class ExposurePolicy:
    """Around the ledger: a result that is replayed was noted, too."""

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Run the call, and note what its result may hold. An error may quote a stranger, too."""
        result = await handler(request)
        brings, args = traits_of(request.tool).exposes, request.tool_call["args"]
        await turn_context_of(request).exposure.note_result(brings, args, _text_of(result))
        return result


def _text_of(result: ToolCallResult) -> str:
    """Return the text that a call adds to the messages of the model."""
    update = result.update if isinstance(result, Command) else None
    messages = update.get("messages", ()) if isinstance(update, dict) else [result]
    return "\n".join(str(each.text) for each in messages if isinstance(each, ToolMessage))


MAX_PATH_CHARS = 4096
_REFUSED = re.compile(r"/(?:proc|dev/(?:fd|std(?:in|out|err)))(?:/|$)")


class PathResolver(Protocol):
    """Gives the sandbox of a turn."""

    async def get(self) -> Sandbox:
        """Return the sandbox, started. Raises SandboxError."""


def refused_path(use: ToolUse) -> str | None:
    """Return the path of a call that leads to other files than it says, None if none does."""
    paths = [*(canonical_path(path) for path in use.paths()), *use.real]
    return next((path for path in paths if _REFUSED.match(path)), None)


async def resolve_paths(use: ToolUse, machine: PathResolver) -> ToolUse:
    """Return the call with its paths as the sandbox resolves them: no links, no `..`. Raises SandboxError."""
    sandbox = await machine.get()
    return replace(use, real=tuple([await _resolve(sandbox, path) for path in use.paths()]))


async def _resolve(sandbox: Sandbox, path: str) -> str:
    if len(path) > MAX_PATH_CHARS or "\0" in path:  # no file has such a path
        return canonical_path(path)
    try:
        return await sandbox.realpath(posixpath.join(canonical_path(""), path))
    except SandboxFileError:
        return canonical_path(path)


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
            return _deny(request, DENIED_WHILE_PLANNING, by="plan")
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
                return _deny(request, NO_FILE.format(path=path), by="rule")
        if (judgement := await _judge_safely(context.permissions, use)) is None:
            return _deny(request, NOT_JUDGED, by="fault")
        asked = bool(context.asked) and _interrupt_id(request) in context.asked
        if judgement.rule != OUT_OF_REACH and not asked:
            context.judged.append(JudgedCall.of(call_key(request.state["messages"], call["id"]), use, judgement))
        to = ""
        if judgement.verdict == "allow" and not settles(judgement, use, traits.outward):
            to = context.exposure.destination(traits.outward, use.name, use.args)
            if to and (judged := await _judge_safely(context.permissions, outward_use(to))) is None:
                return _deny(request, NOT_JUDGED, by="fault")
            judgement = explicit(judged) if to and judged else judgement
        if judgement.verdict == "deny" and not asked:
            rule = judgement.rule or "the default for this tool"
            return _deny(request, DENIED_BY_RULE.format(rule=rule), by="rule")
        if judgement.verdict == "allow" and not asked:
            _allow(request, "granted" if judgement.rule == GRANTED else "allowed")
            return await handler(request)
        answer = await ask_person(context, outward_question(use, to) if to else permission_question(use))
        approval = sha256(describe_call(use.name, use.args).encode()).hexdigest()
        if answer not in APPROVED:
            return _deny(request, DENIED_BY_PERSON.format(answer=answer), by="person", approval=approval)
        if (judgement := await _judge_safely(context.permissions, use)) is None:
            return _deny(request, NOT_JUDGED, by="fault", approval=approval)
        if judgement.verdict == "deny":  # the rule came after the question
            return _deny(request, DENIED_BY_RULE.format(rule=judgement.rule), by="rule", approval=approval)
        context.asked = {*context.asked, _interrupt_id(request)}  # for a tool that asks, too
        _allow(request, "approved", approval=approval)
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


def _allow(request: ToolCallRequest, outcome: str, approval: str = "") -> None:
    """Note that a call may run. Its step begins now."""
    _note(request, outcome, approval=approval)
    request.runtime.stream_writer({"type": "judged", "call": request.tool_call, "allowed": True})


def _deny(request: ToolCallRequest, text: str, by: str, approval: str = "") -> ToolMessage:
    """Note that a call may not run, and return the result that says so."""
    _note(request, "denied", by=by, approval=approval)
    request.runtime.stream_writer({"type": "judged", "call": request.tool_call, "allowed": False})
    denied = _refusal(request, text)
    denied.additional_kwargs[DENIED_KEY] = True
    return denied


def _refusal(request: ToolCallRequest, text: str) -> ToolMessage:
    call = request.tool_call
    return ToolMessage(text, tool_call_id=call["id"], name=call["name"], status="error")
