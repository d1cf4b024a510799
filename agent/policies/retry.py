"""Retry transient model errors with a visible notice; fail with an explanation on others.

Retry an empty response once, then fail with an explanation.

Send each call to the first model of the turn's route; when it fails, continue with the next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from agent.backoff import backoff_seconds
from agent.blocks import Notice, command_hint
from agent.core.context import TurnContext
from agent.core.policy import ModelCallHandler, ModelCallRequest, ModelCallResponse, TakeBack, model_answer
from agent.core.tool import AgentTool, names_of
from agent.models.control_marks import CALL_AS_TEXT, is_call_as_text
from agent.models.errors import BudgetExceeded, ModelFailure, classify_error, words_for_operator
from agent.models.loader import LoadedModel
from agent.models.reasoning import thinking_of
from agent.models.whole_calls import cut_reason
from agent.permissions.invisible import is_seen
from agent.policies.added_context import picture_paths
from agent.token_estimates import messages_tokens
from catalogue import _

log = logging.getLogger(__name__)


class ContextOverflow(Exception):
    """The request exceeds the model's context window. `SummarizationPolicy` shortens it and retries once."""


class RetryPolicy:
    """The only place that retries a model call: jittered backoff, Retry-After honoured up to `max_seconds`."""

    def __init__(self, first_seconds: float = 1.0, max_seconds: float = 60.0) -> None:
        self._first_seconds = first_seconds
        self._max_seconds = max_seconds

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Call until it succeeds. Raises ModelFailure, or ContextOverflow if the request is too long."""
        emit = request.runtime.stream_writer
        retries = request.runtime.context.route[0].settings.retries
        for attempt in range(retries + 1):
            try:
                return await handler(request)
            except Exception as error:
                verdict = classify_error(error)
                if verdict is None:
                    raise
                model = request.runtime.context.route[0]
                what = words_for_operator(error)
                log.warning("model.failed model=%s error=%s", model.settings.name, what)
                model.trouble.record(what)
                emit(TakeBack())
                if verdict.action == "shorten":
                    raise ContextOverflow(verdict.what) from error
                if verdict.action == "fail":
                    raise ModelFailure(verdict.what, verdict.what_to_do, suspect=verdict.suspect) from error
                if attempt == retries or _should_hand_over(request.runtime.context):
                    raise ModelFailure(
                        verdict.what, verdict.what_to_do, attempt + 1, suspect=verdict.suspect
                    ) from error
                wait = self._wait_seconds(attempt, verdict.retry_after_seconds)
            text = _(
                "{problem} Trying again in {seconds} s ({attempt} of {attempts}).",
                problem=verdict.what,
                seconds=max(1, round(wait)),
                attempt=attempt + 2,
                attempts=retries + 1,
            )
            emit(Notice("retry", text))
            await asyncio.sleep(wait)
        raise AssertionError("the loop ends by return or raise")

    def _wait_seconds(self, attempt: int, retry_after: float | None) -> float:
        """Return what the server asks for plus a little jitter, or the backoff."""
        backoff = backoff_seconds(attempt + 1, self._max_seconds / 2, self._first_seconds)
        return backoff if retry_after is None else min(retry_after, self._max_seconds) + backoff / 10


def _should_hand_over(context: TurnContext) -> bool:
    """Return whether the first server is down, so that waiting is no use, and another one is not."""
    down, *others = [entry.endpoint.is_down_for(context.meter.root.conversation) for entry in context.route]
    return down and not all(others)


ASK_AGAIN = HumanMessage(
    "(Your last message was empty or could not be read. Answer the person, or call a tool properly.)"
)
ASK_FOR_CALL = HumanMessage(
    "(Your last message wrote a tool call as text, so nothing ran and nobody read it. Make the call through the tool"
    " interface, or answer the person in words.)"
)


class EmptyResponsePolicy:
    """Ask once more for an answer that has neither text nor a tool call, or writes the call as text.

    Nobody sees such a text. If both answers have only thoughts, the last thoughts are the answer.
    """

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Call once or twice. Raises ModelFailure when neither answer can be used."""
        response = await handler(request)
        first = model_answer(response)
        if not (again := _ask_for(first, request)):
            return response
        request.runtime.stream_writer(TakeBack())
        if reason := cut_reason(first):  # it would only be paid for again
            used_up = reason == "length" and not (first.usage_metadata and first.usage_metadata["output_tokens"])
            raise ModelFailure(*_why_empty(first), suspect="refused" if used_up else "")
        response = await handler(request.override(messages=[*request.messages, again]))
        message = model_answer(response)
        if not (again := _ask_for(message, request)):
            return response
        if again is ASK_AGAIN and not cut_reason(message) and not is_blank(thoughts := thinking_of(message)):
            message.content = thoughts.strip()
            return response
        request.runtime.stream_writer(TakeBack())
        if again is ASK_FOR_CALL:
            what = _("My model wrote a call of a tool as text, twice, so nothing ran.")
            raise ModelFailure(what, _("Ask again, or choose another model with {model}.", model=command_hint("model")))
        raise ModelFailure(*_why_empty(message))


def _ask_for(answer: AIMessage, request: ModelCallRequest) -> HumanMessage | None:
    """Return what to ask of the model for a proper answer, None if this is one."""
    if answer.tool_calls:
        return None
    if answer.additional_kwargs.get(CALL_AS_TEXT) or is_call_as_text(answer.text, names_of(request.tools)):
        return ASK_FOR_CALL
    return ASK_AGAIN if is_blank(answer.text) else None


def is_blank(text: str) -> bool:
    """Return whether a text shows nothing: spaces, controls, formats, and letters that are blank."""
    return not any(is_seen(each) for each in text if not each.isspace())


def _why_empty(message: AIMessage) -> tuple[str, str]:
    reason = cut_reason(message)
    if reason == "length":
        return _("My model reached its output limit before it answered."), _("Ask for less at once.")
    if reason == "filter":
        return _("My model's provider filtered the answer."), _("Please rephrase your request.")
    return _("I got no answer from my model, twice."), _("Please rephrase, or ask again.")


class RoutePolicy:
    """A model that failed is out of the route for the rest of the turn: its retries delay the turn only once.

    So is a model whose server is down, without a call to it, as long as another model may answer.
    """

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Call the models until one answers. Raises what the last one raised."""
        context = request.runtime.context
        _use_vision(request)
        usable = _usable(context.route, context)
        if usable is not context.route:
            _hand_over(request, usable, _("The server of {model} is failing.", model=context.route[0].settings.label))
        while True:
            failed = context.route[0]
            try:
                return await handler(_for_model(request, failed))
            except (ModelFailure, ContextOverflow) as error:
                if isinstance(error, BudgetExceeded) and not error.other_model:
                    raise
                following = _usable(context.route[1:], context)
                if isinstance(error, ContextOverflow):
                    needed = max(failed.settings.context_tokens, messages_tokens(request.messages))
                    following = _with_room(following, needed)
                if not following:
                    raise
                what = str(error)
            _hand_over(request, following, what)


def _hand_over(request: ModelCallRequest, route: Sequence[LoadedModel], why: str) -> None:
    """Let the first model of `route` answer for the rest of the turn, and tell people."""
    context = request.runtime.context
    log.warning("model.fallback from=%s to=%s", context.route[0].settings.name, route[0].settings.name)
    context.route = route
    text = _("{problem} {model} answers instead.", problem=why, model=route[0].settings.label)
    request.runtime.stream_writer(Notice("fallback", text, kept=True))


def _usable(route: Sequence[LoadedModel], context: TurnContext) -> Sequence[LoadedModel]:
    """Return the route from its first model whose server is not down; all of it if there is none."""
    for number, entry in enumerate(route):
        if entry.endpoint.admits_call(context.meter.root.conversation):
            return route[number:] if number else route
    return route


def _use_vision(request: ModelCallRequest) -> None:
    """If this turn shows pictures to a model that does not see, let the one of the role `vision` take over, once."""
    context = request.runtime.context
    vision = context.vision
    if vision is None or context.route[0].sees_pictures or not any(map(picture_paths, _of_turn(request.messages))):
        return
    context.vision = None
    others = [entry for entry in context.route if entry.settings.name != vision.settings.name]
    seeing = _("{model} can't see pictures.", model=context.route[0].settings.label)
    _hand_over(request, [vision, *others], seeing)


def _of_turn(messages: Sequence[AnyMessage]) -> Iterator[AnyMessage]:
    """Yield the messages after the last final answer, newest first."""
    for message in reversed(messages):
        if isinstance(message, AIMessage) and not message.tool_calls:
            return
        yield message


def _for_model(request: ModelCallRequest, entry: LoadedModel) -> ModelCallRequest:
    if not entry.wants_json_schemas:
        return request.override(model=entry.model)
    tools = [tool.json_schema if isinstance(tool, AgentTool) else tool for tool in request.tools]
    return request.override(model=entry.model, tools=tools)


def _with_room(route: Sequence[LoadedModel], tokens: int) -> Sequence[LoadedModel]:
    """Return the route from its first model whose context window is known to exceed `tokens`."""
    return next((route[n:] for n, entry in enumerate(route) if entry.settings.context_tokens > tokens), ())
