"""Retry transient model errors with a visible notice; fail with an explanation on others."""

from __future__ import annotations

import asyncio
import logging

from agent.backoff import backoff_seconds
from agent.blocks import Notice
from agent.core.context import TurnContext
from agent.core.policy import ModelCallHandler, ModelCallRequest, ModelCallResponse, TakeBack
from agent.models.errors import ModelFailure, classify_error
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
                what = _describe_for_operator(error)
                log.warning("model.failed model=%s error=%s", model.settings.name, what)
                model.trouble.record(what)
                emit(TakeBack())
                if verdict.action == "shorten":
                    raise ContextOverflow(verdict.what) from error
                if verdict.action == "fail":
                    raise ModelFailure(verdict.what, verdict.what_to_do) from error
                if attempt == retries or _should_hand_over(request.runtime.context):
                    raise ModelFailure(verdict.what, verdict.what_to_do, attempt + 1) from error
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


def _describe_for_operator(error: Exception) -> str:
    """Return the error's type with its status and code: its text can repeat what people wrote."""
    details = (getattr(error, "status_code", None), getattr(error, "code", None))
    return " ".join([type(error).__name__, *(str(each) for each in details if each)])
