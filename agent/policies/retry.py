"""Retry transient model errors with a visible notice; fail clearly on the others."""

from __future__ import annotations

import asyncio
import logging
import random

from agent.blocks import Notice
from agent.models.errors import ModelFailure, classify_error
from agent.policies.base import ModelCallHandler, ModelCallRequest, ModelCallResponse, TakeBack

log = logging.getLogger(__name__)


class ContextOverflow(Exception):
    """The request was longer than the model takes. The summary policy shortens it and tries once more."""


class RetryPolicy:
    """The only place that retries a model call: jittered back-off, Retry-After honoured up to `longest` seconds."""

    def __init__(self, times: int, *, first: float = 1.0, longest: float = 60.0) -> None:
        self._times = times
        self._first = first
        self._longest = longest

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Call until it works. Raises ModelFailure when it will not, Overflow when the request is too long."""
        tell = request.runtime.stream_writer
        for attempt in range(self._times + 1):
            try:
                return await handler(request)
            except Exception as error:
                verdict = classify_error(error)
                if verdict is None:
                    raise
                log.warning("model call failed: %s, %s", type(error).__name__, verdict.what)
                tell(TakeBack())
                if verdict.action == "shorten":
                    raise ContextOverflow from error
                if verdict.action == "fail":
                    raise ModelFailure(verdict.what, verdict.what_to_do) from error
                if attempt == self._times:
                    tries = f" I tried {attempt + 1} times." if attempt else ""
                    raise ModelFailure(f"{verdict.what}{tries}", verdict.what_to_do) from error
                wait = self._wait_seconds(attempt, verdict.retry_after_seconds)
            again = f"trying again in {max(1, round(wait))} s ({attempt + 2} of {self._times + 1})"
            tell(Notice("retry", f"{verdict.what.rstrip('.')}; {again}."))
            await asyncio.sleep(wait)
        raise AssertionError("the loop ends by return or raise")

    def _wait_seconds(self, attempt: int, after: float | None) -> float:
        """Seconds: what the server asks for plus a little, or doubling from `first`, spread by half."""
        spread: float = random.uniform(0.5, 1.0)  # noqa: S311  # spreads load, guards nothing
        backoff: float = min(self._first * 2**attempt, self._longest / 2) * spread
        return backoff if after is None else min(after, self._longest) + backoff / 10
