"""Call the Web API with one token: within Slack's rate limits, with its errors as channel errors.

Slack's numbers: calls a minute of a method in a workspace, of chat.postMessage in a channel.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from agent.messages import ANYWHERE, Thread
from agent.setting import Secret
from channels.base import ChannelError, ChatGone, MayPass, OutcomeUnknown, Refused, TokenRejected, TryLater
from channels.shared.http_client import (
    HttpClient,
    RateLimited,
    TokenState,
    mapped_network_errors,
    opened_file,
    retry_after_seconds,
)
from channels.shared.rate_limit import SAFETY_FACTOR, CallRate, MethodLimits, Priority, RateLimiter
from channels.shared.reply_writer import MessageMissing
from channels.slack import SlackSettings
from channels.slack.events import Json

CALLS_PER_MINUTE = {
    "chat.startStream": 20,
    "chat.stopStream": 20,
    "reactions.remove": 20,
    "users.conversations": 20,
    "users.list": 20,
    "chat.appendStream": 100,
    "users.info": 100,
    "views.publish": 100,
}
PER_CHANNEL = {"chat.postMessage": 60}
DEFAULT_CALLS_PER_MINUTE = 50  # of any other method in a workspace (docs.slack.dev/apis/web-api/rate-limits)
BURST = 1 / 6  # of a minute's calls may come at once…
STREAM_RESERVE, FIRST_RESERVE = 1 / 2, 1 / 4  # …of which live calls leave these shares for other calls


def slack_limits(rate_factor: float) -> MethodLimits:
    """Return the limits of a workspace, with `rate_factor` times Slack's rates. Its tiers are minima: "20+"."""

    def limit(calls: float, per_chat: bool = False) -> CallRate:
        calls *= SAFETY_FACTOR * rate_factor
        burst = max(2.0, calls * BURST)
        reserves = burst * STREAM_RESERVE, burst * FIRST_RESERVE
        return CallRate(
            calls, 60.0, burst, per_chat=per_chat, minimum=True, stream_reserve=reserves[0], first_reserve=reserves[1]
        )

    methods = {method: [limit(calls)] for method, calls in CALLS_PER_MINUTE.items()}
    channels = {method: [limit(calls, per_chat=True)] for method, calls in PER_CHANNEL.items()}
    return MethodLimits({"": [limit(DEFAULT_CALLS_PER_MINUTE)], **methods, **channels})


SDK_LOG = logging.getLogger(f"{__name__}.sdk")
SDK_LOG.setLevel(logging.CRITICAL)  # its debug lines contain messages, its errors socket tickets

READ_METHODS = re.compile(r"(conversations|users|files)\.(history|replies|conversations|info|list)")  # accept no JSON
QUERY_METHODS = frozenset({"files.getUploadURLExternal"})

WRONG_KIND = "{0} is the wrong kind of token: bot_token begins with xoxb-, app_token with xapp-"
TOKEN_ERRORS = {
    "invalid_auth": "Slack rejects {0}: copy it again from the app's settings",
    "not_authed": "Slack received no {0}: set it",
    "account_inactive": "{0} belongs to a workspace or a bot that was removed: install the app again",
    "token_revoked": "{0} was revoked: install the app again",
    "token_expired": "{0} has expired: turn token rotation off and install the app again",
    "not_allowed_token_type": WRONG_KIND,
}
_WRONG_PREFIX = {"bot_token": "xapp-", "app_token": "xoxb-"}
_CHAT_GONE = frozenset(
    [
        "channel_not_found",
        "is_archived",
        "not_in_channel",
        "user_not_in_channel",
        "restricted_action",
        "cannot_dm_bot",
        "thread_not_found",
    ]
)
_MESSAGE_MISSING = frozenset({"message_not_found", "edit_window_closed", "cant_update_message", "cant_delete_message"})
_STREAM_ENDED = frozenset({"message_not_in_streaming_state", "streaming_state_conflict"})
_PERSON_UNKNOWN = frozenset({"user_not_found", "user_not_visible"})
_BUSY = frozenset({"ratelimited", "rate_limited", "service_unavailable"})
_FOR_MINUTES = frozenset({"team_added_to_org", "org_login_required"})  # the workspace moves into an organization
MOVING_SECONDS = 30.0
_OUTCOME_UNKNOWN = frozenset({"internal_error", "fatal_error", "request_timeout"})  # "some aspect may have succeeded"


class PersonUnknown(Refused):
    """The workspace knows no such person."""


class StreamEnded(Refused):
    """The stream has ended: Slack closes each after some minutes, and people can stop it."""


def thread_arguments(thread: Thread) -> Json:
    topic = "" if thread.topic == ANYWHERE else thread.topic
    return {"channel": thread.chat} | ({"thread_ts": topic} if topic else {})


def session_address(thread: Thread) -> Json:
    return {"channel_id": thread.chat, "thread_ts": thread.topic}


class SlackApi:
    """The calls with one token, called `name` in the configuration, within `limits`. Raises ChannelError."""

    def __init__(self, name: str, token: Secret, settings: SlackSettings, http: HttpClient) -> None:
        self._name = name
        self._http = http
        self.web = AsyncWebClient(
            token=token.reveal(),
            base_url=settings.base_url,
            session=http.session,
            ssl=http.certificates,
            logger=SDK_LOG,
            retry_handlers=[],  # the default one repeats a post of unknown outcome
        )
        self.web.proxy = http.proxy_for(settings.base_url)  # the SDK's own choice ignores NO_PROXY
        self.token_state = TokenState()
        self.limits = RateLimiter(slack_limits(settings.rate_factor), lambda seconds: RateLimited("Slack", seconds))

    async def __call__(self, method: str, /, *, live: bool = False, reserved: bool = False, **arguments: Any) -> Json:
        """Call a method within its rate limit: a `live` call yields to others, a `reserved` one has waited before."""
        channel = str(arguments.get("channel") or arguments.get("channel_id") or "")
        if not reserved:
            await self.limits.acquire(channel, Priority.STREAM if live else Priority.FINAL, method=method)
        try:
            answer = await self._call(method, arguments)
        except RateLimited as error:
            self.limits.note_refused(channel, error.after, method)
            raise
        except (ChannelError, asyncio.CancelledError):
            self.limits.note_accepted(channel, method)
            raise
        self.limits.note_accepted(channel, method)
        return dict(answer.data) if isinstance(answer.data, dict) else {}

    async def who_am_i(self) -> tuple[Json, set[str]]:
        """Return the account of the token (docs.slack.dev/reference/methods/auth.test), and its scopes: empty if
        Slack does not name them."""
        await self.limits.acquire("", Priority.FINAL, method="auth.test")
        answer = await self._call("auth.test", {})
        granted = answer.headers.get("x-oauth-scopes") or ""
        account = dict(answer.data) if isinstance(answer.data, dict) else {}
        return account, {scope.strip() for scope in granted.split(",") if scope.strip()}

    async def _call(self, method: str, arguments: Json) -> AsyncSlackResponse:
        self.web.session = self._http.session  # once it is closed, the SDK would open one of its own
        is_read = bool(READ_METHODS.fullmatch(method))
        if is_read:
            encoded: Json = {"http_verb": "GET", "params": arguments}
        else:
            encoded = {"params": arguments} if method in QUERY_METHODS else {"json": arguments}
        with self.token_state.watch(), mapped_network_errors("Slack", repeatable=is_read or method in QUERY_METHODS):
            try:
                return await self.web.api_call(method, **encoded)
            except SlackApiError as error:
                raise self._map_api_error(error) from None

    def _map_api_error(self, error: SlackApiError) -> ChannelError:
        answer = error.response
        status = getattr(answer, "status_code", getattr(answer, "status", 0))  # aiohttp's for an answer without JSON
        data = getattr(answer, "data", None)
        code = str(data.get("error", "")) if isinstance(data, dict) else ""
        if status == 429 or code in _BUSY:
            return RateLimited("Slack", retry_after_seconds(answer.headers))
        if code in TOKEN_ERRORS:
            text = WRONG_KIND if str(self.web.token).startswith(_WRONG_PREFIX[self._name]) else TOKEN_ERRORS[code]
            return TokenRejected(text.format(self._name), 60.0)
        if code in _FOR_MINUTES:
            return TryLater(f"Slack: {code}", MOVING_SECONDS)
        if status >= 500 or code in _OUTCOME_UNKNOWN:
            return OutcomeUnknown(f"Slack answered {code or status}")
        if not code:
            return TryLater(f"the answer is not from Slack (status {status})")
        if code == "missing_scope":
            needed = data.get("needed", "?") if isinstance(data, dict) else "?"
            return Refused(f"the app lacks the scope {needed}: add it and install the app again")
        kinds: tuple[tuple[frozenset[str], type[Refused]], ...] = (
            (_CHAT_GONE, ChatGone),
            (_MESSAGE_MISSING, MessageMissing),
            (_STREAM_ENDED, StreamEnded),
            (_PERSON_UNKNOWN, PersonUnknown),
        )
        return next((kind for codes, kind in kinds if code in codes), MayPass)(f"Slack: {code}")

    async def list_pages(
        self, method: str, field: str, max_entries: int, /, *, page_size: int = 200, **arguments: Any
    ) -> AsyncIterator[list[Json]]:
        """Yield the pages of a list by cursor, until its end or at least `max_entries` entries."""
        page_cursor: Json = {}
        received = 0
        while received < max_entries:
            page = await self(method, limit=min(page_size, max_entries), **page_cursor, **arguments)
            entries: list[Json] = page.get(field) or []
            yield entries
            received += len(entries)
            page_cursor = {"cursor": (page.get("response_metadata") or {}).get("next_cursor")}
            if not page_cursor["cursor"]:
                return

    async def post_to_response_url(self, url: str, body: Json) -> None:
        """Answer an interaction by its response URL. Raises Refused when that has expired."""
        async with self._http.request("POST", url, json=body) as answer:
            _check_status(answer, "the response URL has expired")

    async def upload(self, url: str, path: Path) -> None:
        """Upload a file to the URL that getUploadURLExternal gave. It is invisible until that upload is completed."""
        headers = {"Content-Type": "application/octet-stream"}
        async with (
            opened_file(path) as content,
            self._http.request("POST", url, repeatable=True, data=content, headers=headers) as answer,
        ):
            _check_status(answer, "Slack's file host rejected the file")

    def download(self, url: str, mime: str) -> AsyncGenerator[bytes, None]:
        """Return the bytes behind a file's URL. Without the scope Slack redirects to a login page instead."""

        async def check_login(answer: aiohttp.ClientResponse) -> None:
            if 300 <= answer.status < 400 or (answer.content_type == "text/html" and mime != "text/html"):
                raise Refused("Slack asks to log in instead of giving the file: the app needs the scope files:read")

        headers = {"Authorization": f"Bearer {self.web.token}"}
        return self._http.download(url, check_login, headers=headers, allow_redirects=False)


def _check_status(answer: aiohttp.ClientResponse, refusal: str) -> None:
    if answer.status == 429:
        raise RateLimited("Slack", retry_after_seconds(answer.headers))
    if answer.status >= 500:
        raise TryLater(f"Slack answered {answer.status}")
    if answer.status != 200:
        raise MayPass(f"{refusal} ({answer.status})")
