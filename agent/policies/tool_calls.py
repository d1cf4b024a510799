"""Run only whole tool calls, each effect once; detect loops, and explain errors to the model."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import orjson
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.tools import BaseTool, ToolException
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt.tool_node import ToolCallRequest
from pydantic import BaseModel, ValidationError

from agent.blocks import Notice
from agent.core.context import CallNote, LedgerEntry
from agent.core.policy import (
    ModelCallHandler,
    ModelCallRequest,
    ModelCallResponse,
    ToolCallHandler,
    ToolCallResult,
    append_text,
    call_key,
    final_response,
    messages_since_human,
    model_answer,
    turn_context_of,
)
from agent.core.tool import FAILED_KEY, has_failed, names_of, traits_of
from agent.models.streamed_answer import MAX_ANSWER_CHARS
from agent.models.whole_calls import CutReason, cut_reason, refusal_of, settle_calls
from catalogue import N_, _
from sandbox.base import OUTPUTS, SandboxError

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


CUT_TEXTS = {
    "length": N_("My model reached its output limit, so this answer is cut off. Ask me to continue."),
    "filter": N_("My model's provider filtered the answer, so it is cut off. Please rephrase your request."),
}
LONG_TEXT = N_("This answer is longer than {n} characters. What I wrote after that is in the file {file}.")
REST_FILE = "rest-of-the-answer.md"
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
            settle_calls(answer, taken, names_of(request.tools))
        cut: CutReason = cut_reason(answer)
        if cut and answer.text.strip() and not answer.tool_calls:
            if self._tells_person:
                request.runtime.stream_writer(Notice("cut", await _tell_cut(cut, response, request), kept=True))
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


async def _tell_cut(cut: CutReason, response: ModelCallResponse, request: ModelCallRequest) -> str:
    """Return what the person is told about an answer that is cut off. What followed it becomes a file."""
    if cut and response.rest:
        try:
            sandbox = await request.runtime.context.sandbox.get()
            await sandbox.write(f"{OUTPUTS}/{REST_FILE}", response.rest.encode("utf-8", "replace"))
        except SandboxError as error:
            log.warning("turn.rest_lost reason=%s", error)
        else:
            return _(LONG_TEXT, n=f"{MAX_ANSWER_CHARS:,}", file=REST_FILE)
    return _(CUT_TEXTS[cut])


def _schema_fault(tool: BaseTool | None, args: dict[str, object]) -> str | None:
    """Return how the arguments miss the tool's schema, None if they fit. A server checks those of its own tools."""
    schema = tool.args_schema if tool else None
    if not (isinstance(schema, type) and issubclass(schema, BaseModel)):
        return None
    try:
        schema.model_validate(args)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        faults = [fault for fault in found if fault["loc"][:1] != ("runtime",)]  # injected when it runs
        if not faults:
            return None
        told = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults[:MAX_FAULTS]]
        return f"The arguments do not fit the tool, so the call did not run: {'; '.join(told)}."
    return None


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
    kept = {"content": result.content, "status": result.status, "mark": mark, FAILED_KEY: has_failed(result)}
    return orjson.dumps(kept).decode()


def _replayed_result(request: ToolCallRequest, entry: LedgerEntry) -> ToolMessage:
    call = request.tool_call
    stored = orjson.loads(entry.result) if entry.result else {"content": OUTCOME_UNKNOWN, "status": "error", "mark": ""}
    fingerprint = {FINGERPRINT_KEY: stored["mark"]} if stored["mark"] else {}
    return ToolMessage(
        stored["content"],
        tool_call_id=call["id"],
        name=call["name"],
        status=stored["status"],
        artifact={FAILED_KEY: True} if stored.get(FAILED_KEY) else None,
        additional_kwargs=fingerprint,
    )


log = logging.getLogger(__name__)


class ToolErrorPolicy:
    """Return a tool's exception as its result. The text of sandbox and tool errors is written for the model; of any
    other exception the model gets only the type, and the log the rest."""

    async def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        """Run the tool. An interrupt is not an error and passes through."""
        name = request.tool_call["name"]
        try:
            return await handler(request)
        except GraphBubbleUp:
            raise
        except (SandboxError, ToolException) as error:
            text = f"{name} failed: {error}"
        except TimeoutError:
            text = f"{name} failed: it timed out."
        except Exception as error:  # a tool may raise anything, and the turn must continue
            log.exception("tool.fault name=%s", name)
            text = f"{name} failed internally ({type(error).__name__}). The fault is in the tool, not in its arguments."
        return ToolMessage(text, tool_call_id=request.tool_call["id"], name=name, status="error")
