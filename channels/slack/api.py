"""Calls of the Web API with one token: paced as Slack asks, refused in the words of channels.base."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any, BinaryIO

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from agent.messages import ANYWHERE, Thread
from agent.secret import Secret
from channels.base import ChannelError, ChatGone, OutcomeUnknown, Refused, TryLater
from channels.shared.file_limits import CHUNK
from channels.shared.reply_writer import MessageMissing
from channels.slack import SlackSettings
from channels.slack.method_limits import MethodLimits

Json = dict[str, Any]  # an object of Slack's: its shape is the method's

SDK = logging.getLogger(f"{__name__}.sdk")
SDK.setLevel(logging.CRITICAL)  # what matters is in our errors; its debug lines carry texts, its errors tickets

READ_METHODS = re.compile(r"(conversations|users|files)\.(history|replies|conversations|info)")  # take no JSON
OCTETS = {"Content-Type": "application/octet-stream"}
QUERY_METHODS = frozenset({"files.getUploadURLExternal"})

WRONG_KIND = "{0} is the wrong kind of token: bot_token begins with xoxb-, app_token with xapp-"
REJECTIONS = {
    "invalid_auth": "Slack rejects {0}: copy it again from the app's settings",
    "not_authed": "Slack got no {0}: set it",
    "account_inactive": "{0} belongs to a workspace or a bot that was removed: install the app again",
    "token_revoked": "{0} was revoked: install the app again",
    "token_expired": "{0} has expired: turn token rotation off and install the app again",
    "not_allowed_token_type": WRONG_KIND,
}
_OTHER = {"bot_token": "xapp-", "app_token": "xoxb-"}  # how what does not belong there begins
_GONE = frozenset(
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
_MISSING = frozenset({"message_not_found", "edit_window_closed", "cant_update_message", "cant_delete_message"})
_ENDED = frozenset({"message_not_in_streaming_state", "streaming_state_conflict"})
_BUSY = frozenset({"ratelimited", "rate_limited", "service_unavailable"})
_PERHAPS = frozenset({"internal_error", "fatal_error", "request_timeout"})  # "some aspect may have succeeded"


class TokenRejected(TryLater):
    """The token is not accepted: nothing works until somebody mends it."""


class StreamEnded(Refused):
    """The stream has ended: Slack closes one after some minutes, or a person stopped it."""


def thread_arguments(thread: Thread) -> Json:
    """Where a message belongs."""
    topic = "" if thread.topic == ANYWHERE else thread.topic
    return {"channel": thread.chat} | ({"thread_ts": topic} if topic else {})


class SlackApi:
    """The calls with one token, which is `name` in the configuration. Raises ChannelError.

    A 429 closes its method (a tier counts calls of a method in a workspace), or the method in that channel, for as
    long as Slack says; everything else goes on (see Gates).
    """

    def __init__(
        self, name: str, token: Secret, settings: SlackSettings, session: aiohttp.ClientSession, trust: ssl.SSLContext
    ) -> None:
        self._name = name
        self._session = session
        self._proxy = settings.proxy or None
        self.web = AsyncWebClient(
            token=token.reveal(),
            base_url=settings.base_url,
            session=session,
            ssl=trust,
            logger=SDK,
            retry_handlers=[],  # the default one repeats a post whose answer was lost
        )
        self.web.proxy = self._proxy  # it took HTTPS_PROXY from the environment, which has no NO_PROXY
        self._gates = MethodLimits()

    async def __call__(self, method: str, /, **arguments: Any) -> Json:
        answer = await self._call(method, arguments)
        return dict(answer.data) if isinstance(answer.data, dict) else {}

    async def live_call(self, method: str, /, **arguments: Any) -> None:
        """A call that only shows how work goes on: where limits were hit, others go first."""
        await self._call(method, arguments, live=True)

    async def scopes(self) -> set[str]:
        """What the token may do, as far as Slack says."""
        granted = (await self._call("auth.test", {})).headers.get("x-oauth-scopes") or ""
        return {scope.strip() for scope in granted.split(",") if scope.strip()}

    async def _call(self, method: str, arguments: Json, *, live: bool = False) -> AsyncSlackResponse:
        channel = str(arguments.get("channel") or arguments.get("channel_id") or "")
        self._gates.raise_if_closed(method, channel, live=live)
        if READ_METHODS.fullmatch(method):
            how: Json = {"http_verb": "GET", "params": arguments}
        else:
            how = {"params": arguments} if method in QUERY_METHODS else {"json": arguments}
        try:
            return await self.web.api_call(method, **how)
        except SlackApiError as error:
            told = self._map_api_error(error)
            if isinstance(told, TryLater) and not isinstance(told, TokenRejected):
                self._gates.close(method, channel, told.after)
            raise told from None
        except (aiohttp.ClientError, OSError) as error:
            raise classify_transport_error(error) from None

    def _map_api_error(self, error: SlackApiError) -> ChannelError:
        """The SDK's error in our words."""
        answer = error.response
        status = getattr(answer, "status_code", getattr(answer, "status", 0))  # ours, or aiohttp's when it was no JSON
        data = getattr(answer, "data", None)
        word = str(data.get("error", "")) if isinstance(data, dict) else ""
        if status == 429 or word in _BUSY:
            return TryLater("Slack asked to wait", _retry_after_seconds(answer.headers))
        if word in REJECTIONS:
            words = WRONG_KIND if str(self.web.token).startswith(_OTHER[self._name]) else REJECTIONS[word]
            return TokenRejected(words.format(self._name), 60.0)
        if status >= 500 or word in _PERHAPS:
            return OutcomeUnknown(f"Slack answered {word or status}")
        if not word:
            return TryLater(f"what answered is not Slack (status {status})")
        if word == "missing_scope":
            needed = data.get("needed", "?") if isinstance(data, dict) else "?"
            return Refused(f"the app lacks the scope {needed}: add it and install the app again")
        known: tuple[tuple[frozenset[str], type[Refused]], ...] = (
            (_GONE, ChatGone),
            (_MISSING, MessageMissing),
            (_ENDED, StreamEnded),
        )
        return next((kind for words, kind in known if word in words), Refused)(f"Slack: {word}")

    async def list_all(self, method: str, field: str, most: int, /, **arguments: Any) -> AsyncIterator[list[Json]]:
        """The pages of a list by cursor, until there are `most` entries or no more."""
        cursor, got = "", 0
        while got < most:
            page = await self(method, limit=min(200, most), **({"cursor": cursor} if cursor else {}), **arguments)
            entries: list[Json] = page.get(field) or []
            yield entries
            got += len(entries)
            cursor = (page.get("response_metadata") or {}).get("next_cursor") or ""
            if not cursor:
                return

    async def post_to_response_url(self, url: str, body: Json) -> None:
        """Answer an interaction by its response URL. Raises Refused when that has expired."""
        try:
            async with self._session.post(url, json=body, proxy=self._proxy) as answer:
                if answer.status == 429:
                    raise TryLater("Slack asked to wait", _retry_after_seconds(answer.headers))
                if answer.status >= 500:
                    raise TryLater(f"Slack answered {answer.status}")
                if answer.status != 200:
                    raise Refused("the response URL is not good any more")
        except (aiohttp.ClientError, OSError) as error:
            raise classify_transport_error(error) from None

    async def upload(self, url: str, path: Path) -> None:
        """The bytes of a file to the URL that getUploadURLExternal gave."""

        handle: BinaryIO = await asyncio.to_thread(path.open, "rb")
        try:
            async with self._session.post(url, data=handle, headers=OCTETS, proxy=self._proxy) as answer:
                if answer.status == 429 or answer.status >= 500:
                    raise TryLater(f"Slack's file host answered {answer.status}", _retry_after_seconds(answer.headers))
                if answer.status != 200:
                    raise Refused(f"Slack's file host refused the file ({answer.status})")
        except (aiohttp.ClientError, OSError) as error:
            raise TryLater(str(classify_transport_error(error))) from None  # nobody sees it before it is completed
        finally:
            await asyncio.to_thread(handle.close)

    async def download(self, url: str, mime: str) -> AsyncGenerator[bytes, None]:
        """The bytes behind a file's URL. Who may not have it is sent to a page to log in: that page is not the file."""
        headers = {"Authorization": f"Bearer {self.web.token}"}
        try:
            async with self._session.get(url, headers=headers, allow_redirects=False, proxy=self._proxy) as answer:
                if 300 <= answer.status < 400 or (answer.content_type == "text/html" and mime != "text/html"):
                    raise Refused("Slack asks to log in instead of giving the file: the app needs the scope files:read")
                if answer.status != 200:
                    raise TryLater(f"Slack's file host answered {answer.status}", _retry_after_seconds(answer.headers))
                async for chunk in answer.content.iter_chunked(CHUNK):
                    yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise TryLater(str(classify_transport_error(error))) from None


def classify_transport_error(error: Exception) -> ChannelError:
    """Whether a failed call can have reached Slack; only the kind of the error is named."""
    kind = type(error).__name__
    if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError)):
        return TryLater(f"Slack cannot be reached ({kind})")
    return OutcomeUnknown(f"Slack gave no answer ({kind})")


def _retry_after_seconds(headers: Any) -> float:
    after = str(headers.get("Retry-After", ""))
    return float(after) if after.isdigit() else 1.0
