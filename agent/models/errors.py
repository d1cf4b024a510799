"""Classify model errors and describe them for people.

Every network error of a model call is mapped here, once: the SDKs' errors, and those of httpx2 and aiohttp.
"""

from __future__ import annotations

import email.utils
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import aiohttp
import httpx2
import openai
from langchain_core.exceptions import ContextOverflowError, ModelConnectionError, ModelError, ModelTimeoutError

from agent.blocks import Failed, command_hint
from agent.foreign_text import printable_line
from agent.models.http_transport import StreamBroke
from agent.models.openai_events import BrokenStream, ErrorBody, StrangeBody, failure_of, words_of
from agent.outcomes import CallError
from agent.spending import Refusal
from catalogue import N_, _, join_sentences

Suspect = Literal["", "refused", "broken"]
"""Whether the length of the conversation may be why a call failed: the server refused it unexplained, or broke."""


class ModelFailure(Exception):
    """The model could not answer. `failed` is the message for the person; the error's text is only what happened."""

    def __init__(self, what: str, what_to_do: str, tries: int = 1, *, suspect: Suspect = "") -> None:
        super().__init__(what)
        self.suspect = suspect
        tried = _("{problem} I tried {count} times.", problem=what, count=tries) if tries > 1 else what
        self.failed = Failed(tried, what_to_do)


class UnreadableAnswer(Exception):
    """The server sent something that the model's class could not read."""


class BudgetExceeded(ModelFailure):
    """A budget or an unknown price does not allow the call, which was not made."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.what, refusal.what_to_do)
        self.other_model = refusal.other_model  # a fallback may be allowed


@dataclass(frozen=True, slots=True)
class ErrorVerdict:
    """What to do about an error of a model call: retry, shorten the conversation, or fail."""

    action: Literal["retry", "shorten", "fail"]
    what: str
    what_to_do: str = ""
    retry_after_seconds: float | None = None  # None: the server asked for no delay
    is_outage: bool = False  # the server does not work, whatever the request
    suspect: Suspect = ""


CONNECT_ERRORS = (httpx2.ConnectError, aiohttp.ClientConnectorError)
TIMEOUT_ERRORS = (openai.APITimeoutError, httpx2.TimeoutException, TimeoutError)
NETWORK_ERRORS = (openai.APIConnectionError, httpx2.HTTPError, aiohttp.ClientError, ConnectionError, *TIMEOUT_ERRORS)
MAX_WORDS_CHARS = 200  # of what a provider says about an error
BUSY_STATUSES = (408, 409, 425, 429)
# Servers other than OpenAI's report an overlong conversation only in their message (vLLM, llama.cpp, Ollama, proxies;
# the last ones: Kimi, Qwen, Gemini, Doubao).
TOO_LONG_PHRASES = (
    "context length",
    "context window",
    "context size",
    "context_length",
    "too many tokens",
    "prompt is too long",
    "exceeded model token limit",
    "range of input length",
    "maximum number of tokens allowed",
    "exceed max message tokens",
)
# Of errors that come without a status of their own.
NO_CREDIT_PHRASES = (
    "insufficient balance",
    "insufficient_balance",
    "insufficient credit",
    "insufficient_quota",
    "quota exceeded",
    "exceeded your current quota",
    "余额不足",
    "欠费",
)
NO_CREDIT_CODES = ("insufficient_quota", "billing_hard_limit_reached", "credit_balance_exhausted")


def _try_later() -> str:
    return _("Try again in a few minutes, or choose another model with {model}.", model=command_hint("model"))


def _tell_operator() -> str:
    return _("Whoever runs me can fix it. Another model may help ({model}).", model=command_hint("model"))


def too_long() -> tuple[str, str]:
    """Return what happened, and what to do, when a conversation exceeds the context window."""
    what_to_do = _("Start a new one with {new}.", new=command_hint("new"))
    return _("The conversation is too long for my model."), what_to_do


def classify_error(error: Exception) -> ErrorVerdict | None:
    """Return the verdict on an error of a model call, or None if the error does not come from a model."""
    if isinstance(error, ContextOverflowError) or _is_too_long(error):
        return ErrorVerdict("shorten", *too_long())
    if isinstance(error, UnreadableAnswer | StrangeBody):
        return ErrorVerdict("retry", _("I couldn't read what my model's server sent."), _try_later())
    status = _http_status(error)
    if status is not None and status >= 400:
        return _classify_status(error, status)
    if isinstance(error, openai.APIError) and any(words in _text_of(error) for words in NO_CREDIT_PHRASES):
        return _no_credit()
    if isinstance(error, ErrorBody):
        return ErrorVerdict("retry", _("My model's server reported an error in place of an answer."), _try_later())
    if isinstance(error, (*NETWORK_ERRORS, ModelConnectionError, ModelTimeoutError)):
        is_outage = not any(isinstance(cause, BrokenStream | StreamBroke) for cause in _causes(error))
        return ErrorVerdict("retry", _describe_network_error(error), _try_later(), is_outage=is_outage)
    # An error event in the stream, without an HTTP status; Anthropic's has that of the stream, 200.
    if isinstance(error, openai.APIError) or status is not None:
        what = _("My model reported an error in the middle of its answer.")
        return ErrorVerdict("retry", what, _try_later())  # the server works, since it has begun to answer
    if isinstance(error, ModelError):
        if error.is_retryable:
            return ErrorVerdict("retry", _("My model reported an error."), _try_later())
        return ErrorVerdict("fail", _("My model reported an error."), _tell_operator())
    return None


def error_class(error: Exception) -> CallError:
    """Return why a model call failed, in one of a few words."""
    verdict, status = classify_error(error), _http_status(error)
    if verdict is None:
        return CallError.FAULT
    if verdict.action == "shorten":
        return CallError.TOO_LONG
    if isinstance(error, UnreadableAnswer | StrangeBody):
        return CallError.UNREADABLE
    if isinstance(error, (*TIMEOUT_ERRORS, ModelTimeoutError)):
        return CallError.TIMEOUT
    if verdict.action == "fail":
        return CallError.REFUSED
    if status is not None and status >= 400:
        return CallError.RATE if status in BUSY_STATUSES else CallError.SERVER
    return CallError.NETWORK if isinstance(error, (*NETWORK_ERRORS, ModelConnectionError)) else CallError.SERVER


def is_charged(error: BaseException) -> bool:
    """Return whether a provider may charge for the input of a call that ended so: the server had begun to answer."""
    if not isinstance(error, Exception):
        return True  # cancelled
    if isinstance(error, ErrorBody):
        return False
    return _http_status(error) is None and not any(isinstance(cause, CONNECT_ERRORS) for cause in _causes(error))


def _describe_network_error(error: Exception) -> str:
    causes = tuple(_causes(error))  # the openai SDK wraps every error of the transport
    if any(isinstance(cause, CONNECT_ERRORS) for cause in causes):
        return _("My model's server can't be reached.")
    if any(isinstance(cause, TIMEOUT_ERRORS) for cause in causes):
        return _("My model didn't answer in time.")
    return _("The connection to my model broke.")


def _classify_status(error: Exception, status: int) -> ErrorVerdict:
    if status == 402 or getattr(error, "code", None) in NO_CREDIT_CODES:
        return _no_credit()
    if status in BUSY_STATUSES or status >= 500:
        what = (
            N_("My model's server has a problem ({status}).") if status >= 500 else N_("My model is busy ({status}).")
        )
        suspect: Suspect = "broken" if status >= 500 else ""
        asked = _retry_after_seconds(error)
        return ErrorVerdict("retry", _(what, status=status), _try_later(), asked, status >= 500, suspect)
    if status in (401, 403):
        what = _("My model refused its key ({status}), so I can't think right now.", status=status)
        return ErrorVerdict("fail", what, _tell_operator())
    if status == 404:
        return ErrorVerdict("fail", _("My model's server doesn't know this model (404)."), _tell_operator())
    start_over = _("You can also start over with {new}.", new=command_hint("new"))
    what = _("My model's server refused the request ({status}).", status=status)
    return ErrorVerdict("fail", what, join_sentences(_tell_operator(), start_over), suspect="refused")


def _no_credit() -> ErrorVerdict:
    return ErrorVerdict("fail", _("My account at the model's provider has run out of credit."), _tell_operator())


def _http_status(error: Exception) -> int | None:
    """Return the HTTP status of any SDK's error. In a stream, some servers put it into the error's `code`."""
    for value in (getattr(error, "status_code", None), getattr(error, "code", None)):
        if isinstance(value, int) and 100 <= value <= 599:  # others are a provider's own codes
            return value
        if isinstance(value, str) and value.isdigit() and len(value) == 3:
            return int(value)
    return None


def words_for_operator(error: Exception) -> str:
    """Return the error's type, status and code, and the first words of the provider: they name what it refused."""
    details = (getattr(error, "status_code", None), getattr(error, "code", None))
    head = " ".join([type(error).__name__, *(str(each) for each in details if each)])
    body = getattr(error, "body", None)
    if isinstance(body, list) and body:  # Gemini's
        body = body[0]
    said = words_of(failure_of(body) or body) if body else ""
    line = printable_line(said, MAX_WORDS_CHARS)
    return f"{head}: {line}" if line else head


def _is_too_long(error: Exception) -> bool:
    if not isinstance(error, openai.APIError) and not hasattr(error, "status_code"):
        return False
    if _http_status(error) == 413:
        return True
    if _http_status(error) in (401, 402, 403, 404, *BUSY_STATUSES):
        return False
    return any(words in _text_of(error) for words in TOO_LONG_PHRASES)


def _text_of(error: Exception) -> str:
    """Return all that an error says: Gemini's body is a list, of which the SDK tells nothing in its message."""
    return f"{getattr(error, 'code', None)} {error} {getattr(error, 'body', None)}".lower()


def _retry_after_seconds(error: Exception) -> float | None:
    """Return the requested delay: `retry-after-ms`, or `Retry-After` as a number or a date (RFC 9110)."""
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


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
