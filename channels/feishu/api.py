"""REST calls of the open platform, with the app's tenant token kept fresh.

The SDK's own calls open a client each and fetch the token with blocking requests (docs/decisions/0015-feishu-sdk.md).

Feishu's numbers: calls of each API of an app, 50 a second and 1,000 a minute.

open.feishu.cn/document/ukTMukTMukTM/uUzN04SN3QjL1cDN. Each page of an API names its tier; this is that of all the ones
that Fawn calls.

Notice that another program uses the same app: the history has messages of the app that this process did not post.

Feishu gives each event to one of an app's connections at random, and tells none of the others
(open.feishu.cn/document/server-docs/event-subscription-guide/event-subscription-configure-/request-url-configuration-case).
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import aiohttp
import orjson

from channels.base import ChatGone, OutcomeUnknown, TokenRejected, TryLater
from channels.feishu import FeishuSettings
from channels.shared.access_token import TokenApi
from channels.shared.caches import LatestDict
from channels.shared.http_client import CodedRefusal, RateLimited
from channels.shared.rate_limit import SAFETY_FACTOR, CallRate

CALLS_A_SECOND, CALLS_A_MINUTE = 50, 1000
WINDOW_SECONDS, MINUTE_SECONDS = 1.06, 61.0  # calls may arrive closer together than they were sent
_ID = re.compile(r"(?<=/)(?:o[muc]_[^/]+|\d[^/]*|(?<=elements/)[^/]+|(?<=reactions/)[^/]+)")


def name_api(method: str, path: str) -> str:
    """Return the API of a call: its path without ids."""
    return f"{method} {_ID.sub('*', path)}"


class FeishuLimits:
    """What counts the calls of an API."""

    def limits_of(self, method: str, group: bool) -> Sequence[CallRate]:
        second, minute = float(CALLS_A_SECOND), CALLS_A_MINUTE * SAFETY_FACTOR
        return (  # the longer second is its margin
            CallRate(second, WINDOW_SECONDS, second, f"{method} a second", sliding=True),
            CallRate(minute, MINUTE_SECONDS, minute, f"{method} a minute", sliding=True),
        )


log = logging.getLogger(__name__)

MAX_POSTS = 10_000
SHARED_SECONDS = 3600.0  # for which one such message counts


class OwnPosts:
    """The messages that this process posted. `margin` seconds after its start, all of the app's are its own."""

    def __init__(self, margin: float) -> None:
        self._margin = margin
        self._began = self._unsure = time.time()  # …and when a post had no known outcome
        self._ids: LatestDict[str, bool] = LatestDict(MAX_POSTS)
        self._under_way = 0  # posts whose id is not known yet
        self._seen = -SHARED_SECONDS  # time.monotonic() when another one's was seen

    @property
    def is_shared(self) -> bool:
        """Whether another program posted lately."""
        return time.monotonic() - self._seen < SHARED_SECONDS

    @contextmanager
    def posting(self) -> Iterator[None]:
        """Post inside: until its id is noted, the history may show a message of this process."""
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    def note_post(self, id: str) -> None:
        self._ids[id] = True

    def note_unknown(self) -> None:
        """Note that a post may have become visible under an id that nobody knows."""
        self._unsure = time.time()

    def check(self, id: str, at: float) -> None:
        """Look at a message of the app in the history, posted at a unix time."""
        if not self._under_way and id not in self._ids and at > max(self._began, self._unsure) + self._margin:
            if not self.is_shared:
                log.warning("feishu.shared message=%s", id)
            self._seen = time.monotonic()


TOKEN_MARGIN_SECONDS = 600.0  # a token is replaced so long before it expires: both are valid meanwhile

# open.feishu.cn/document/server-docs/api-call-guide/generic-error-code, and each method's own page
_BUSY_CODES = frozenset({99991400, 230020, 230049, 11232, 11233, 11247, 200810, 2200})
_GONE_CODES = frozenset({230002, 230013, 230018, 230029, 230035, 230038, 230053, 232006, 232009, 232010, 232011})
_SCOPE_CODES = frozenset({99991672, 99991679, 230027, 230006, 41050, 40004, 40014})
_SECRET_CODES = frozenset({10003, 10012, 10014, 10015, 10019})


class ApiRefusal(CodedRefusal):
    """The platform refused a call."""

    platform = "Feishu"


class ScopeMissing(ApiRefusal):
    """The app lacks the permission for this call."""

    may_pass = False


class ChatGoneRefusal(ChatGone, ApiRefusal):
    """The chat is gone, or the bot may no longer write there."""


class FeishuApi(TokenApi):
    """The REST calls of one app. Raises ChannelError."""

    token_codes = frozenset({99991661, 99991663, 99991664, 99991668, 99991671})  # missing, expired or invalid

    def __init__(self, settings: FeishuSettings) -> None:
        super().__init__("Feishu", settings.proxy, settings.ca_file, FeishuLimits(), TOKEN_MARGIN_SECONDS)
        self._settings = settings
        self.own_posts = OwnPosts(settings.shared_check_seconds)

    async def __call__(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str | int] | None = None,
        form: aiohttp.FormData | None = None,
        repeatable: bool = False,
    ) -> dict[str, Any]:
        """Make one call and return the response's `data`. `path` follows /open-apis/.

        The call is repeated with a new token if the token has expired. A `repeatable` one raises no OutcomeUnknown.
        """
        raw = orjson.dumps(body) if body is not None else form
        send = partial(self._request, method, path, raw, query, repeatable=repeatable)
        answer = await self._call_api(name_api(method, path), send, again=form is None)  # a form can be sent only once
        data = answer.get("data")
        return data if isinstance(data, dict) else answer

    async def post_message(
        self, path: str, body: Mapping[str, Any], query: Mapping[str, str | int] | None = None
    ) -> dict[str, Any]:
        """Post a message, the only way to do so, and return it. It counts as one of this process from its begin."""
        with self.own_posts.posting():
            try:
                posted = await self("POST", path, body, query=query)
            except (OutcomeUnknown, asyncio.CancelledError):
                self.own_posts.note_unknown()
                raise
            self.own_posts.note_post(str(posted["message_id"]))
        return posted

    async def _fetch_token(self) -> tuple[str, float]:
        settings = self._settings
        body = orjson.dumps({"app_id": settings.app_id, "app_secret": settings.app_secret.reveal()})
        try:
            answer = await self._request("POST", "auth/v3/tenant_access_token/internal", body, repeatable=True)
        except ApiRefusal as error:
            if error.code not in _SECRET_CODES:
                raise TryLater(str(error), 10.0) from None
            reason = f"Feishu rejects the app's id or secret ({error.code}): take both from the developer console."
            raise TokenRejected(reason, 60.0) from None
        return str(answer["tenant_access_token"]), float(answer.get("expire", 7200))

    async def probe_connection(self) -> None:
        """Ask for an endpoint of the long connection. Raises ApiRefusal when the app may not have one."""
        settings = self._settings
        body = orjson.dumps({"AppID": settings.app_id, "AppSecret": settings.app_secret.reveal()})
        await self._request("POST", "/callback/ws/endpoint", body)

    def _url(self, path: str) -> str:
        return self._settings.base_url + (path if path.startswith("/") else f"/open-apis/{path}")

    async def _request(
        self, method: str, path: str, raw: Any, query: Any = None, token: str = "", *, repeatable: bool = False
    ) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if isinstance(raw, bytes):
            headers["Content-Type"] = "application/json; charset=utf-8"
        options: dict[str, Any] = {"data": raw, "params": query, "headers": headers, "allow_redirects": False}
        async with self.request(method, self._url(path), repeatable=repeatable, **options) as answer:
            return _parse_answer(answer.status, await answer.read(), answer.headers)

    async def download_resource(
        self, path: str, query: Mapping[str, str], check: Callable[[aiohttp.ClientResponse], Awaitable[None]]
    ) -> AsyncGenerator[bytes, None]:
        headers = {"Authorization": f"Bearer {await self._token.get()}"}
        return self.download(self._url(path), check, params=query, headers=headers)


async def check_answer(answer: aiohttp.ClientResponse) -> None:
    """Raise the ChannelError of an answer that is no file."""
    if answer.status != 200:
        _parse_answer(answer.status, await answer.read(), answer.headers)


def _parse_answer(status: int, payload: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the JSON of a response. Raises the ChannelError for its status and code."""
    if status == 429:
        raise RateLimited("Feishu", _retry_after_seconds(headers))
    try:
        answer = orjson.loads(payload)
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or "code" not in answer:
        kind = OutcomeUnknown if status >= 500 else TryLater
        raise kind(f"the response is not Feishu's (status {status})")
    code, reason = int(answer["code"]), str(answer.get("msg", ""))
    if code == 0:
        return answer
    if code in _BUSY_CODES:
        raise TryLater(f"Feishu: {reason[:300]} ({code})", _retry_after_seconds(headers))
    if status >= 500:
        raise OutcomeUnknown(f"Feishu answered {status}: {reason[:300]} ({code})")
    refusal = ScopeMissing if code in _SCOPE_CODES else ChatGoneRefusal if code in _GONE_CODES else ApiRefusal
    raise refusal(code, reason)


def _retry_after_seconds(headers: Mapping[str, str]) -> float:
    """Return how long to wait (open.feishu.cn/document/server-docs/api-call-guide/frequency-control)."""
    after = str(headers.get("x-ogw-ratelimit-reset") or headers.get("Retry-After") or "")
    return max(float(after), 0.2) if after.replace(".", "", 1).isdigit() else 1.0
