"""Calls of the open platform over one keep-alive session, with the app's token kept fresh.

The SDK's own calls open a client each and fetch the token with blocking requests (docs/decisions/0015-feishu-sdk.md).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import aiohttp
import orjson

from channels.base import ChatGone, OutcomeUnknown, Refused, TryLater
from channels.feishu import FeishuSettings
from channels.shared.file_limits import CHUNK
from channels.shared.http_client import (
    CALL_TIMEOUT,
    UPLOAD_TIMEOUT,
    RateLimited,
    create_session,
    mapped_network_errors,
)
from channels.shared.lifecycle import load_certificates

TOKEN_MARGIN_SECONDS = (
    600.0  # seconds before its end that a token is replaced: so long an old one stays valid beside the new one
)

# open.feishu.cn/document/server-docs/api-call-guide/generic-error-code, and each method's own page
_TOKEN_CODES = frozenset({99991661, 99991663, 99991664, 99991668, 99991671})  # missing, expired or invalid
_BUSY_CODES = frozenset({99991400, 230020, 230049, 11232, 11233, 11247, 200810, 2200})
_GONE_CODES = frozenset({230002, 230013, 230018, 230029, 230035, 230038, 230053, 232006, 232009, 232010, 232011})
_SCOPE_CODES = frozenset({99991672, 99991679, 230027, 230006, 41050, 40004, 40014})
_SECRET_CODES = frozenset({10003, 10012, 10014, 10015, 10019})


class ApiRefusal(Refused):
    """The platform's refusal, with its code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"Feishu: {message[:300]} ({code})")
        self.code = code


class CredentialsRejected(TryLater):
    """The app's id or secret is wrong. It may be put right in the console, so it is tried again after a while."""


class ScopeMissing(ApiRefusal):
    """The app has not been given the permission for this call."""


class ChatGoneRefusal(ApiRefusal, ChatGone):
    """The chat is gone, or the bot may not write there any more."""


class FeishuApi:
    """The calls of one app. Raises ChannelError."""

    def __init__(self, settings: FeishuSettings) -> None:
        self._base = settings.base_url
        self._app, self._secret = settings.app_id, settings.app_secret
        self._proxy = settings.proxy or None
        self._ca_file = settings.ca_file
        self._session: aiohttp.ClientSession | None = None
        self._token = ""
        self._until = 0.0  # time.monotonic() when the token is due for replacement
        self._fetching = asyncio.Lock()
        self.rejected = ""  # why the app's credentials do not work, "" while they do

    async def open(self) -> None:
        """Get ready to make calls."""
        self._session = create_session(await load_certificates(self._ca_file))

    async def close(self) -> None:
        """Hang up."""
        if self._session:
            await self._session.close()
            self._session = None

    async def __call__(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str | int] | None = None,
        form: aiohttp.FormData | None = None,
    ) -> dict[str, Any]:
        """One call; gives the answer's `data`. `path` is what follows /open-apis/."""
        raw = orjson.dumps(body) if body is not None else form
        answer = await self._with_token(method, path, raw, query)
        data = answer.get("data")
        return data if isinstance(data, dict) else answer

    async def _with_token(self, method: str, path: str, raw: Any, query: Any) -> dict[str, Any]:
        token = await self.tenant_token()
        try:
            return await self._request(method, path, raw, query, token)
        except ApiRefusal as error:
            if error.code not in _TOKEN_CODES:
                raise
            if self._token == token:  # nobody else replaced it meanwhile
                self._until = 0.0
            if isinstance(raw, aiohttp.FormData):  # it can be sent once only
                raise TryLater(str(error)) from None
        return await self._request(method, path, raw, query, await self.tenant_token())

    async def tenant_token(self) -> str:
        """The app's tenant token. Raises Rejected when the credentials are wrong."""
        async with self._fetching:
            if time.monotonic() < self._until:
                return self._token
            body = orjson.dumps({"app_id": self._app, "app_secret": self._secret.reveal()})
            try:
                answer = await self._request("POST", "auth/v3/tenant_access_token/internal", body, None, "")
            except OutcomeUnknown as error:  # asking twice does no harm
                raise TryLater(str(error)) from None
            except ApiRefusal as error:
                if error.code not in _SECRET_CODES:
                    raise TryLater(str(error), 10.0) from None
                self.rejected = (
                    f"Feishu rejects the app's id or secret ({error.code}): take both from the developer console."
                )
                raise CredentialsRejected(self.rejected, 60.0) from None
            self.rejected = ""
            self._token = str(answer["tenant_access_token"])
            life = float(answer.get("expire", 7200))
            self._until = time.monotonic() + max(life - TOKEN_MARGIN_SECONDS, life / 2)
            return self._token

    async def connection_endpoint(self) -> None:
        """Ask for a long connection as the SDK does, without making it. Raises Said when the app may not have one."""
        body = orjson.dumps({"AppID": self._app, "AppSecret": self._secret.reveal()})
        await self._request("POST", "/callback/ws/endpoint", body, None, "")

    def _url(self, path: str) -> str:
        return self._base + (path if path.startswith("/") else f"/open-apis/{path}")

    async def _request(self, method: str, path: str, raw: Any, query: Any, token: str) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if isinstance(raw, bytes):
            headers["Content-Type"] = "application/json; charset=utf-8"
        timeout = UPLOAD_TIMEOUT if isinstance(raw, aiohttp.FormData) else CALL_TIMEOUT
        with mapped_network_errors("Feishu"):
            async with self.session.request(
                method,
                self._url(path),
                data=raw,
                params=query,
                headers=headers,
                timeout=timeout,
                proxy=self._proxy,
                allow_redirects=False,
            ) as answer:
                status, payload = answer.status, await answer.read()
                return _parse_answer(status, payload, answer.headers)

    async def download(self, path: str, query: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """The bytes of a resource, in chunks."""
        headers = {"Authorization": f"Bearer {await self.tenant_token()}"}
        with mapped_network_errors("Feishu", repeatable=True):
            async with self.session.get(self._url(path), params=query, headers=headers, proxy=self._proxy) as answer:
                if answer.status != 200:
                    _parse_answer(answer.status, await answer.read(), answer.headers)
                    raise TryLater(f"Feishu answered {answer.status}")
                async for chunk in answer.content.iter_chunked(CHUNK):
                    yield chunk

    @property
    def session(self) -> aiohttp.ClientSession:
        """The open session. Raises TryLater outside of open() … close()."""
        if self._session is None or self._session.closed:
            raise TryLater("the session is closed")
        return self._session


def _parse_answer(status: int, payload: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
    """The JSON of an answer. Raises what its status and code say."""
    if status == 504:
        raise OutcomeUnknown("a gateway gave up waiting (504)")
    try:
        answer = orjson.loads(payload)
    except ValueError:
        answer = None
    if status == 429:
        raise RateLimited("Feishu", _retry_after_seconds(headers))
    if not isinstance(answer, dict) or "code" not in answer:
        raise TryLater(f"the answer is not Feishu's (status {status})")
    code, words = int(answer["code"]), str(answer.get("msg", ""))
    if code == 0:
        return answer
    if code in _BUSY_CODES:
        raise TryLater(f"Feishu: {words[:300]} ({code})", _retry_after_seconds(headers))
    if status >= 500:
        raise TryLater(f"Feishu answered {status}: {words[:300]} ({code})")
    kind = ScopeMissing if code in _SCOPE_CODES else ChatGoneRefusal if code in _GONE_CODES else ApiRefusal
    raise kind(code, words)


def _retry_after_seconds(headers: Mapping[str, str]) -> float:
    """Seconds that the platform asks to wait (open.feishu.cn/document/server-docs/api-call-guide/frequency-control)."""
    after = str(headers.get("x-ogw-ratelimit-reset") or headers.get("Retry-After") or "")
    return max(float(after), 0.2) if after.replace(".", "", 1).isdigit() else 1.0
