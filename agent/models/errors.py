"""Classify model errors and describe them for people.

Failure
└── ModelFailure     the model could not answer, after everything that could be tried
Verdict              what one error of a model call means: try again, shorten the conversation, or give up
"""

from __future__ import annotations

import email.utils
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import aiohttp
import httpx2
import openai
from langchain_core.exceptions import ContextOverflowError, ModelError

from agent.blocks import Failed


class ModelFailure(Exception):
    """The model could not answer. `failed` is what the person is told."""

    def __init__(self, what: str, what_to_do: str) -> None:
        super().__init__(what)
        self.failed = Failed(what, what_to_do)


@dataclass(frozen=True, slots=True)
class ErrorVerdict:
    """What an error means. `after` is the server's own wish in seconds, None where it has none."""

    action: Literal["retry", "shorten", "fail"]
    what: str
    what_to_do: str = ""
    retry_after_seconds: float | None = None


TRY_LATER = "Try again in a few minutes, or choose another model with /model."
TELL_OPERATOR = "Please tell the operator; another model may work (/model)."
BUSY_STATUSES = (408, 409, 425, 429)
# Servers that are not OpenAI tell an overlong conversation only in words (vLLM, llama.cpp, Ollama, proxies).
TOO_LONG_PHRASES = (
    "context length",
    "context window",
    "context size",
    "context_length",
    "too many tokens",
    "prompt is too long",
)
NO_CREDIT_CODES = ("insufficient_quota", "billing_hard_limit_reached", "credit_balance_exhausted")


def classify_error(error: Exception) -> ErrorVerdict | None:
    """What an error of a model call means; None when it is not a model's error at all (a fault of ours)."""
    if isinstance(error, ContextOverflowError) or _is_too_long(error):
        return ErrorVerdict("shorten", "The conversation is too long for the model.", "Start a fresh one with /new.")
    status = _http_status(error)
    if status is not None:
        return _classify_status(error, status)
    if isinstance(error, (openai.APITimeoutError, httpx2.TimeoutException, TimeoutError)):
        return ErrorVerdict("retry", _transport_error(error) or "The model did not answer in time.", TRY_LATER)
    if isinstance(error, (openai.APIConnectionError, httpx2.HTTPError, aiohttp.ClientError, ConnectionError)):
        return ErrorVerdict("retry", _transport_error(error) or "The connection to the model broke.", TRY_LATER)
    if isinstance(error, openai.APIError):  # told inside the stream, where there is no status
        return ErrorVerdict("retry", "The model reported an error in the middle of its answer.", TRY_LATER)
    if isinstance(error, ModelError):
        act: Literal["retry", "fail"] = "retry" if error.is_retryable else "fail"
        return ErrorVerdict(act, "The model reported an error.", TRY_LATER if error.is_retryable else TELL_OPERATOR)
    return None


def _classify_status(error: Exception, status: int) -> ErrorVerdict:
    if _error_code(error) in NO_CREDIT_CODES:
        return ErrorVerdict("fail", "The credit at the model's provider is used up.", TELL_OPERATOR)
    if status in BUSY_STATUSES:
        return ErrorVerdict("retry", f"The model is busy ({status}).", TRY_LATER, _retry_after_seconds(error))
    if status >= 500:
        return ErrorVerdict(
            "retry", f"The model's server has a problem ({status}).", TRY_LATER, _retry_after_seconds(error)
        )
    if status in (401, 403):
        return ErrorVerdict("fail", f"The model's server does not accept our key ({status}).", TELL_OPERATOR)
    if status == 404:
        return ErrorVerdict("fail", "The model's server does not know this model (404).", TELL_OPERATOR)
    return ErrorVerdict(
        "fail", f"The model's server refused the request ({status}).", f"{TELL_OPERATOR} Or start over with /new."
    )


def _http_status(error: Exception) -> int | None:
    """The HTTP status of an error of any SDK; inside a stream some servers put it into the error's code."""
    for value in (getattr(error, "status_code", None), _error_code(error)):
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str) and value.isdigit() and len(value) == 3:
            return int(value)
    return None


def _transport_error(error: Exception) -> str:
    """What really happened below: the aiohttp transport calls a refused connection a connect time-out."""
    for cause in _error_causes(error):
        if isinstance(cause, aiohttp.ClientConnectorError):
            return "The model's server cannot be reached."
        if isinstance(cause, aiohttp.ClientConnectionError) and not isinstance(cause, aiohttp.ServerTimeoutError):
            return "The connection to the model broke."
    return ""


def _error_code(error: Exception) -> Any:
    return getattr(error, "code", None)


def _is_too_long(error: Exception) -> bool:
    if not isinstance(error, openai.APIError) and not hasattr(error, "status_code"):
        return False
    if _http_status(error) == 413:
        return True
    text = f"{_error_code(error)} {error}".lower()
    return _http_status(error) in (400, 422, None) and any(words in text for words in TOO_LONG_PHRASES)


def _retry_after_seconds(error: Exception) -> float | None:
    """Seconds the server asks us to wait: `retry-after-ms`, or `Retry-After` as a number or a date (RFC 9110)."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    if headers is None:
        return None
    try:
        if milliseconds := headers.get("retry-after-ms"):
            return max(0.0, float(milliseconds) / 1000)
        if not (text := headers.get("retry-after")):
            return None
        if text.strip().replace(".", "", 1).isdigit():
            return float(text)
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError):
        return None


def _error_causes(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__
