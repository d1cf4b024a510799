"""Settle the tool calls of an answer when it comes in: only whole ones run, and each has an id of its own."""

from __future__ import annotations

import itertools
import re
import uuid
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal, cast

from langchain_core.messages import AIMessage, ToolCall

from agent.models.arguments import BAD_MARK, MAX_CALLS, TOO_LONG, BadArguments, check_arguments, parse_arguments
from agent.models.reasoning import rename_signatures

MAX_ID_CHARS = 200
REFUSED_KEY = "refused_calls"  # of an answer: why its calls do not run, by call id

CALL_BLOCKS = {"tool_use": "id", "function_call": "call_id"}  # type of a block that is a call → where its id is

CutReason = Literal["", "length", "filter"]
CUT_REASONS: Mapping[str, CutReason] = {
    "length": "length",
    "max_tokens": "length",  # Anthropic, Gemini
    "max_output_tokens": "length",  # Responses
    "model_context_window_exceeded": "length",  # Anthropic
    "content_filter": "filter",
    "content_filtered": "filter",  # Bedrock
    "refusal": "filter",  # Anthropic
    "sensitive": "filter",  # GLM
    "safety": "filter",  # Gemini
    "prohibited_content": "filter",
}
CUT_CALLS: Mapping[CutReason, str] = {
    "length": "The answer reached the output limit in the middle of this call, so the call is incomplete and did not "
    "run. Call again with less at once, for example write a long file in several parts.",
    "filter": "The provider's content filter ended the answer in the middle of this call, so the call is incomplete "
    "and did not run. Try another wording, or tell the person.",
}
TOO_MANY = (
    f"At most {MAX_CALLS} calls of one answer run. This call and those after it did not; make them in your next answer."
)
_PIECES = re.compile(r"[.:/<>|｜\s]++")
_SIGN = re.compile(r"[^a-z0-9]")
_NAME = re.compile(r"[^\w.:/-]", re.ASCII)


def cut_reason(answer: AIMessage) -> CutReason:
    """Return why the provider ended the answer before the model did, "" if it did not."""
    data = answer.response_metadata
    details = data.get("incomplete_details")
    reasons = [data.get(name) for name in ("finish_reason", "stop_reason", "done_reason")]
    reasons += [details.get("reason")] if isinstance(details, dict) else []
    return next((CUT_REASONS[text] for text in (str(reason).lower() for reason in reasons) if text in CUT_REASONS), "")


def show_refusal(answer: AIMessage) -> None:
    """Let the words in which a model refuses be the text of an answer without any, in place."""
    if answer.text.strip():
        return
    refusal = answer.additional_kwargs.pop("refusal", None)
    if isinstance(answer.content, list):
        shown = [_as_text(block) for block in answer.content]
        answer.content = [*shown, *([{"type": "text", "text": refusal}] if refusal else ())]
    elif refusal:
        answer.content = str(refusal)


def _as_text(block: Any) -> Any:
    if isinstance(block, dict) and block.get("type") == "refusal" and isinstance(block.get("refusal"), str):
        return {"type": "text", "text": block["refusal"]}
    return block


def meant_tool(name: str, tools: Collection[str]) -> str:
    """Return the tool that a name can mean only, such as `functions.look:0` or `Look`; "" if there is none.

    `tools` are those that the model was offered.
    """
    if name in tools:
        return name
    for form in (_fold, lambda each: _fold(each.rpartition("__")[2])):  # at last, without the name of its server
        pieces = {form(each).removesuffix("tool") for each in (name, *_PIECES.split(name))}
        if len(found := [each for each in tools if form(each).removesuffix("tool") in pieces - {""}]) == 1:
            return found[0]
    return ""


def _fold(name: str) -> str:
    return _SIGN.sub("", name.casefold())


def settle_calls(answer: AIMessage, taken: set[str], tools: Collection[str] = ()) -> None:
    """Give each call of the answer an id of its own, and mark those that must not run; in place.

    A name that can mean only one of the `tools` becomes its name. `taken` are the ids in use, to which the new ones
    are added. A call that must not run has no arguments any more.
    """
    calls: list[ToolCall] = []
    refused: dict[str, str] = {}
    renamed: list[tuple[str | None, str]] = []
    cut = CUT_CALLS.get(cut_reason(answer), "")
    for number, (name, args, given) in enumerate(_all_calls(answer)):
        fault = cut or (TOO_MANY if number >= MAX_CALLS else _fault_of(args))
        id_ = _unique_id(given, taken)
        taken.add(id_)
        renamed.append((given, id_))
        if fault:
            refused[id_] = fault
        arguments = {} if fault else cast(dict[str, Any], args)
        name = meant_tool(name, tools) or _NAME.sub("_", name)[:64]
        calls.append(ToolCall(name=name, args=arguments, id=id_, type="tool_call"))
    answer.tool_calls, answer.invalid_tool_calls = calls, []
    if refused:
        answer.additional_kwargs[REFUSED_KEY] = refused
    _settle_blocks(answer, renamed, refused)


def _all_calls(answer: AIMessage) -> Iterator[tuple[str, object, str | None]]:
    """Yield name, arguments and id of each call. Without a name, nobody can answer it."""
    for call in answer.tool_calls:
        if call["name"]:
            yield call["name"], call["args"], call["id"]
    for broken in answer.invalid_tool_calls:
        if broken["name"]:
            yield broken["name"], broken["args"] or "", broken["id"]


def _fault_of(args: object) -> str | None:
    """Return why a call with these arguments, or with this text of arguments, must not run; None if it may."""
    try:
        if isinstance(args, str):
            if args.endswith(TOO_LONG):  # after what came before
                raise BadArguments(TOO_LONG.removeprefix(BAD_MARK))
            if args.startswith(BAD_MARK):
                raise BadArguments(args.removeprefix(BAD_MARK))
            parse_arguments(args)
            raise BadArguments("The arguments could not be read.")
        check_arguments(args)
    except BadArguments as error:
        return f"{error} The call did not run. Call again with the arguments as one valid JSON object."
    return None


def _unique_id(given: str | None, taken: set[str]) -> str:
    """Return the id if it is free, else one that looks like it: some servers demand a form."""
    if not given or len(given) > MAX_ID_CHARS:
        return f"call_{uuid.uuid4().hex[:24]}"
    if given not in taken:
        return given
    stem = given.rstrip("0123456789")
    return next(id_ for number in itertools.count(len(taken)) if (id_ := f"{stem}{number}") not in taken)


def _settle_blocks(answer: AIMessage, renamed: list[tuple[str | None, str]], refused: Mapping[str, str]) -> None:
    """Change the calls in the content as well: Anthropic's classes and Responses send it back."""
    left = list(renamed)
    for block in answer.content if isinstance(answer.content, list) else ():
        key = CALL_BLOCKS.get(block.get("type", "")) if isinstance(block, dict) else None
        if not (isinstance(block, dict) and key):
            continue
        pair = next((pair for pair in left if pair[0] == block.get(key)), None)
        if pair is None:
            continue
        left.remove(pair)
        block[key] = pair[1]
        if pair[1] in refused:
            block.pop("partial_json", None)
            block["input" if key == "id" else "arguments"] = {} if key == "id" else "{}"
    rename_signatures(answer, {old: new for old, new in renamed if old and old != new})


def refusal_of(answer: AIMessage | None, call: str | None) -> str | None:
    """Return why a call of the answer must not run, None if it may."""
    found = answer.additional_kwargs.get(REFUSED_KEY, {}).get(call) if answer else None
    return str(found) if found else None
