"""Calls of DingTalk's open platform, with the app's access token kept fresh.

Error codes: open.dingtalk.com/document/development/server-api-error-codes-1, and each method's own page.

DingTalk's numbers: calls of each API of an app in a second.

The refusal `QpsLimitForAppkeyAndApi` names no number (open.dingtalk.com/document/orgapp/call-frequency-limit);
integrators report 20 to 40.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlencode

import aiohttp
import orjson

from channels.base import ChatGone, OutcomeUnknown, TokenRejected, TryLater
from channels.dingtalk import DingTalkSettings
from channels.shared.access_token import TokenApi
from channels.shared.http_client import CodedRefusal, RateLimited, mapped_network_errors, retry_after_seconds
from channels.shared.rate_limit import SAFETY_FACTOR, CallRate, MethodLimits

CALLS_IN_WINDOW = 20 * SAFETY_FACTOR
WINDOW_SECONDS = 1.06  # calls may arrive closer together than they were sent
LIMITS = MethodLimits({"": [CallRate(CALLS_IN_WINDOW, WINDOW_SECONDS, CALLS_IN_WINDOW, sliding=True)]})


TOKEN_MARGIN_SECONDS = 300.0  # a token is replaced so long before it expires
HEARTBEAT_SECONDS = 8.0  # between two pings, as the platform's own client sends them
BUSY_SECONDS = 2.0  # after a rejection by a rate limit, which names no time
QUOTA_SECONDS = 600.0  # after the monthly quota is used up, or the IP address is blocked for five minutes
TOPICS = (MESSAGE_TOPIC, CARD_TOPIC) = ("/v1.0/im/bot/messages/get", "/v1.0/card/instances/callback")

_BUSY_CODES = frozenset({"send.too.fast", "send.byToken.tooFast", "too.many.people", "too.many.group", "system.busy"})
_GONE_CODES = frozenset(
    {
        "group.disbanded",
        "invalid.openConversationId",
        "staffId.notExisted",
        "robot.oto.notExist",
        "param.userIdNotExist",
    }
)
_QUOTA_CODES = ("Forbidden.AccessDenied.ApiCountLimit", "90020")  # calls of the organization per month


class DingTalkRefusal(CodedRefusal):
    """The platform refused a call."""

    platform = "DingTalk"


class DingTalkChatGone(ChatGone, DingTalkRefusal):
    """The group was dissolved, the robot removed, or the person left."""


class DingTalkApi(TokenApi):
    """The calls of one app. Raises ChannelError."""

    token_codes = frozenset({"InvalidAuthentication", "invalidAccessToken", "40014", "42001"})

    def __init__(self, settings: DingTalkSettings) -> None:
        super().__init__("DingTalk", settings.proxy, settings.ca_file, LIMITS, TOKEN_MARGIN_SECONDS)
        self._settings = settings

    async def __call__(self, method: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Make one call, and repeat it with a new token if the token has expired. Waits for the limit of its API."""
        return await self._call_api(f"{method} {path}", partial(self._call, method, path, body))

    async def upload(self, form: aiohttp.FormData, kind: str) -> str:
        """Upload a file and return its media id. An upload is invisible, so that it can be repeated."""

        async def send(token: str) -> dict[str, Any]:
            url = f"{self._settings.upload_url}/media/upload?{urlencode({'access_token': token, 'type': kind})}"
            return await self._fetch_json("POST", url, data=form, repeatable=True)

        return str((await self._call_with_token(send, again=False))["media_id"])  # a form can be sent only once

    async def download_file(self, code: str) -> AsyncGenerator[bytes, None]:
        """Return the chunks of a file that a person sent, by its download code."""
        body = {"downloadCode": code, "robotCode": self._settings.robot}
        with mapped_network_errors("DingTalk", repeatable=True):
            url = (await self("POST", "/v1.0/robot/messageFiles/download", body))["downloadUrl"]
        return self.download(url)

    async def open_stream(self) -> aiohttp.ClientWebSocketResponse:
        """Open a connection on which the platform sends events. Raises ChannelError."""
        settings = self._settings
        body = {
            "clientId": settings.client_id,
            "clientSecret": settings.client_secret.reveal(),
            "subscriptions": [{"type": "CALLBACK", "topic": topic} for topic in TOPICS],
            "ua": "fawn",
        }
        answer = await self._call("POST", "/v1.0/gateway/connections/open", body)
        url = f"{answer['endpoint']}?{urlencode({'ticket': answer['ticket']})}"
        with mapped_network_errors("DingTalk", repeatable=True):
            return await self.session.ws_connect(
                url, heartbeat=HEARTBEAT_SECONDS, proxy=self.proxy_for(url), max_msg_size=0
            )

    async def _fetch_token(self) -> tuple[str, float]:
        settings = self._settings
        body = {"appKey": settings.client_id, "appSecret": settings.client_secret.reveal()}
        try:
            answer = await self._call("POST", "/v1.0/oauth2/accessToken", body, repeatable=True)
        except DingTalkRefusal as error:
            reason = f"DingTalk rejects the app's Client ID or secret ({error.code}): copy both again."
            raise TokenRejected(reason, 60.0) from None
        return str(answer["accessToken"]), float(answer.get("expireIn", 7200))

    async def _call(
        self, method: str, path: str, body: Mapping[str, Any], token: str = "", *, repeatable: bool = False
    ) -> dict[str, Any]:
        # Without `Accept`, the gateway answers with XML.
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if token:
            headers["x-acs-dingtalk-access-token"] = token
        url = self._settings.base_url + path
        return await self._fetch_json(method, url, data=orjson.dumps(body), headers=headers, repeatable=repeatable)

    async def _fetch_json(self, method: str, url: str, **options: Any) -> dict[str, Any]:
        async with self.request(method, url, allow_redirects=False, **options) as answer:
            return _parse_answer(answer.status, await answer.read(), answer.headers)


def _parse_answer(status: int, payload: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the JSON of a response. Raises the ChannelError for its status and code."""
    try:
        answer = orjson.loads(payload)
    except ValueError:
        answer = {}
    code, reason = str(answer.get("code") or answer.get("errcode") or ""), answer.get("message") or answer.get("errmsg")
    if status == 200 and not code and answer.get("success", bool(answer)):
        return answer  # type: ignore[no-any-return] # the platform's shape
    what = f"DingTalk answered {status}: {str(reason)[:300]} ({code})"
    if status == 429:
        raise RateLimited("DingTalk", max(retry_after_seconds(headers), BUSY_SECONDS))
    if code.startswith(_QUOTA_CODES) or answer.get("status") == 1111:  # …/call-frequency-limit
        raise TryLater(f"{what}. The organization's API quota is used up", QUOTA_SECONDS)
    if "QpsLimit" in code:
        raise RateLimited("DingTalk", BUSY_SECONDS)
    if code in _BUSY_CODES:
        raise TryLater(what, BUSY_SECONDS)
    if status in (502, 503):  # the gateway did not reach the service
        raise TryLater(what)
    if status >= 500 or code == "unknown.send.result" or not answer:
        raise OutcomeUnknown(what)
    if scopes := (answer.get("accessdenieddetail") or {}).get("requiredScopes"):
        reason = f"the app lacks the permission {', '.join(map(str, scopes))}"
    raise (DingTalkChatGone if code in _GONE_CODES else DingTalkRefusal)(code, str(reason or "refused"))
