"""Make model calls within the budgets: reserve, call, clean the answer, count it, settle."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata

from agent.models.control_marks import clean_answer
from agent.models.errors import (
    BudgetExceeded,
    ModelFailure,
    UnreadableAnswer,
    classify_error,
    error_class,
    is_charged,
)
from agent.models.loader import LoadedModel
from agent.models.reasoning import ThinkingOpenAI
from agent.models.streamed_answer import ReceivedOutput, count_into, stream_answer
from agent.models.traffic import model_call
from agent.models.whole_calls import show_refusal
from agent.outcomes import CallOutcome, Used
from agent.span_contents import messages_json
from agent.spans import note_here, wants_contents
from agent.spending import LEAD, TURN, Meter, ModelCall, PlannedCall, Refusal, count_call, reserve_call, text_tokens
from agent.text_cleaning import clean_message

log = logging.getLogger(__name__)

DEFAULT_OUTPUT_TOKENS = 16_384  # the upper bound of an answer's tokens, where the model's settings have none

MAX_CALL_TOKENS = 100_000_000  # no call has as many: whoever says so does not count

R = TypeVar("R")


async def call_model(
    meter: Meter,
    model: BaseChatModel,
    ask: Callable[[], Awaitable[R]],
    answer_of: Callable[[R], AIMessage],
    input_tokens: Callable[[], int],
    *,
    prompt: Callable[[], Sequence[BaseMessage]],
    kind: str = TURN,
    agent: str = LEAD,
) -> R:
    """Return what `ask` returns; its answer is cleaned in place and counted. `input_tokens` makes an estimate.
    `prompt` is what the model reads, for traces with contents.

    Raises BudgetExceeded without making the call if a budget does not allow it.
    """
    estimate = input_tokens() if meter.root.gate else 0  # only budgets need it, and it reads all messages
    planned = PlannedCall(agent, model.name or "", kind, estimate, _max_output(model))
    held = await reserve_call(meter, planned)
    if isinstance(held, Refusal):
        raise BudgetExceeded(held)
    began, received = time.monotonic(), ReceivedOutput()

    async def answer() -> tuple[R, ModelCall]:
        try:
            with count_into(received):
                result = await _read_answer(ask)
        except Exception as error:  # one that was stopped did not fail
            seconds, role, why = time.monotonic() - began, agent if kind == TURN else kind, error_class(error)
            meter.note(CallOutcome(Used.MODEL, planned.model, role, why, seconds, is_charged(error)))
            note_here(error=why)
            raise
        message = answer_of(result)
        note_here(first=received.first and received.first - began)
        call = _record_answer(message, model, began, kind, agent)
        if wants_contents():
            note_here(prompt=messages_json(prompt()), answer=messages_json([message], finished=_finish_reason(message)))
        if held and not (call.input and call.output):  # the provider does not count, or only a part
            output = call.output or max(received.tokens, text_tokens(message.text))
            call = replace(call, input=call.input or planned.input, output=output)
        return result, call

    def charge_of(error: BaseException) -> ModelCall | None:
        if not is_charged(error):
            return None
        cut_off = planned.cut_off(received.tokens, time.monotonic() - began)
        return cut_off if estimate else replace(cut_off, input=input_tokens())

    return await count_call(meter, planned, held, answer, charge_of)


async def _read_answer(ask: Callable[[], Awaitable[R]]) -> R:
    """Return what `ask` returns. Raises UnreadableAnswer for an error that no server and no network has reported."""
    try:
        return await ask()
    except Exception as error:
        if isinstance(error, ModelFailure) or classify_error(error):
            raise
        log.exception("model.answer_unreadable")
        raise UnreadableAnswer(type(error).__name__) from error


def _record_answer(message: AIMessage, model: BaseChatModel, began: float, kind: str, agent: str) -> ModelCall:
    """Clean the answer in place and return its call. `began` is the monotonic time of its start."""
    if isinstance(model, ThinkingOpenAI):
        model.fold_thoughts(message)
    else:
        clean_answer(message)
    show_refusal(message)
    used = _settle_usage(clean_message(message)) or UsageMetadata(input_tokens=0, output_tokens=0, total_tokens=0)
    return ModelCall(
        agent=agent,
        model=model.name or "",
        kind=kind,
        input=used["input_tokens"],
        output=used["output_tokens"],
        cached=(used.get("input_token_details") or {}).get("cache_read") or 0,
        reasoning=(used.get("output_token_details") or {}).get("reasoning") or 0,
        seconds=time.monotonic() - began,
        at=time.time(),
    )


def _settle_usage(message: AIMessage) -> UsageMetadata | None:
    """Return what the provider counted, None if it cannot be true: then an estimate counts. In place, too."""
    used = message.usage_metadata
    if used is None:
        return None
    sent, made = used["input_tokens"], used["output_tokens"]
    if not (0 <= sent <= MAX_CALL_TOKENS and 0 <= made <= MAX_CALL_TOKENS):
        log.warning("model.strange_usage input=%d output=%d", sent, made)
        message.usage_metadata = None
        return None
    used["total_tokens"] = sent + made  # some servers count something else
    for details, most in ((used.get("input_token_details"), sent), (used.get("output_token_details"), made)):
        for name, count in (details or {}).items():
            details[name] = min(max(count, 0), most) if isinstance(count, int) else 0  # type: ignore[literal-required, index]  # names of a TypedDict
    return used


def _finish_reason(message: AIMessage) -> str:
    return str(message.response_metadata.get("finish_reason") or ("tool_call" if message.tool_calls else "stop"))


def _max_output(model: BaseChatModel) -> int:
    """Return the most tokens that an answer of the model may have."""
    for name in ("max_tokens", "max_completion_tokens", "max_output_tokens"):
        if isinstance(limit := getattr(model, name, None), int) and limit > 0:
            return limit
    return DEFAULT_OUTPUT_TOKENS


async def ask_model(entry: LoadedModel, prompt: str, meter: Meter, kind: str, *, background: bool = False) -> str:
    """Return the text of the answer, for a summary or a title. It is counted, but not streamed to people.

    While places are scarce, a call in the `background` lets the calls of turns go first. Raises BudgetExceeded.
    """

    async def ask() -> AIMessage:
        messages = [HumanMessage(prompt)]
        return await (entry.model.ainvoke(messages) if background else stream_answer(entry.model, messages))

    async with model_call(entry, meter, background=background):
        message = await call_model(
            meter,
            entry.model,
            ask,
            lambda answer: answer,
            lambda: text_tokens(prompt),
            prompt=lambda: [HumanMessage(prompt)],
            kind=kind,
        )
    return message.text.strip()
