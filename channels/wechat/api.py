"""Calls of iLink, WeChat's protocol of robots.

Source: @tencent-weixin/openclaw-weixin 2.4.9 (Tencent, MIT): docs/protocol.md, src/api. Refusals have HTTP 200.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import orjson

from catalogue import N_, _
from channels.base import MayPass, OutcomeUnknown, Refused, TokenRejected, TryLater
from channels.shared.http_client import LONG_POLL, HttpClient, call_timeout, read_body

VERSION = "2.4.9"  # of the client whose protocol this is
BASE_INFO = {"channel_version": VERSION, "bot_agent": "Fawn/1.0"}
MAX_ANSWER_BYTES = 8 << 20
POLL_SECONDS = 35.0
LOGGED_OUT, CLOSED = -14, -2
ENDED = N_(
    "WeChat ended this login, because another code was scanned or it is too old: sign in anew by `fawn setup wechat`."
)


class LoggedOut(TokenRejected):
    """The login is over for good; only scanning a code again begins another one."""


class SendRefused(Refused):
    """More than ten messages or 24 hours since the person wrote, or too fast: the answer does not say which."""


class WeChatRefusal(MayPass):
    """The platform refused a call, with a code."""


class WeChatApi(HttpClient):
    """The calls of one robot. Raises ChannelError."""

    def __init__(self, url: str, token: str, proxy: str, ca_file: str) -> None:
        super().__init__("WeChat", proxy, ca_file)
        self.sign_in(url, token)

    def sign_in(self, url: str, token: str) -> None:
        """Make all further calls there, with this token."""
        self.url, self._token = url.rstrip("/"), token
        self.token_state.fault = ""  # that was another token's

    async def __call__(self, verb: str, body: Mapping[str, Any], *, repeatable: bool = False) -> dict[str, Any]:
        """Make a call and return its answer. Raises LoggedOut, SendRefused, WeChatRefusal and what calls raise."""
        options: dict[str, Any] = {"data": orjson.dumps({**body, "base_info": BASE_INFO}), "headers": self._signed()}
        with self.token_state.watch():
            return await self._fetch("POST", f"{self.url}/ilink/bot/{verb}", repeatable=repeatable, **options)

    async def poll(self, cursor: str) -> dict[str, Any]:
        """Return what is after the cursor, or comes within the time of a poll; nothing for an ordinary timeout."""
        body = orjson.dumps({"get_updates_buf": cursor, "base_info": BASE_INFO})
        options = {"timeout": call_timeout(POLL_SECONDS + 10.0), "trace_request_ctx": LONG_POLL}
        url, headers = f"{self.url}/ilink/bot/getupdates", self._signed()
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_SECONDS + 5.0):
                return await self._fetch("POST", url, data=body, headers=headers, repeatable=True, **options)
        return {}

    async def ask_code(self, code: str, number: str = "") -> dict[str, Any]:
        """Return what became of a code to scan, now or when something happens; `number` is what the telephone shows."""
        asked = {"qrcode": code} | ({"verify_code": number} if number else {})
        options: dict[str, Any] = {"params": asked, "timeout": call_timeout(POLL_SECONDS + 10.0)}
        return await self._fetch("GET", f"{self.url}/ilink/bot/get_qrcode_status", headers=_app_headers(), **options)

    def _signed(self) -> dict[str, str]:
        headers = _app_headers() | {
            "Content-Type": "application/json",
            "AuthorizationType": "ilink_bot_token",
            "X-WECHAT-UIN": base64.b64encode(str(secrets.randbits(32)).encode()).decode(),
        }
        return headers | ({"Authorization": f"Bearer {self._token}"} if self._token else {})

    async def _fetch(self, method: str, url: str, **options: Any) -> dict[str, Any]:
        async with self.request(method, url, allow_redirects=False, **options) as answer:
            status = answer.status
            if status in (429, 502, 503):
                raise TryLater(f"WeChat answered {status}", 2.0)
            if status != 200:
                raise OutcomeUnknown(f"WeChat answered {status}")
            raw = await read_body(answer, MAX_ANSWER_BYTES)
            try:
                found = orjson.loads(raw)  # its ids are unsigned numbers of 64 bits
            except orjson.JSONDecodeError:
                raise OutcomeUnknown("WeChat answered no JSON") from None
        return _checked(found)


def _app_headers() -> dict[str, str]:
    major, minor, patch = map(int, VERSION.split("."))
    return {"iLink-App-Id": "bot", "iLink-App-ClientVersion": str(major << 16 | minor << 8 | patch)}


def _checked(answer: Any) -> dict[str, Any]:
    if not isinstance(answer, dict):
        raise OutcomeUnknown("WeChat answered no object")
    code = answer.get("errcode") or answer.get("ret") or 0
    if code == LOGGED_OUT:
        raise LoggedOut(_(ENDED))
    if code == CLOSED:
        raise SendRefused(f"WeChat refused a message ({code})")
    if code:
        raise WeChatRefusal(f"WeChat: {str(answer.get('errmsg', ''))[:300]} ({code})")
    return answer
