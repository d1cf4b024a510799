"""Call an API with the access token of an app, which is replaced before it expires."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

from channels.base import TryLater
from channels.shared.http_client import CodedRefusal, HttpClient, RateLimited, TokenState
from channels.shared.rate_limit import PlatformLimits, Priority, RateLimiter


class AccessToken:
    """A token that all calls of an app share. `fetch` returns a new one and its lifetime in seconds."""

    def __init__(self, fetch: Callable[[], Awaitable[tuple[str, float]]], margin_seconds: float) -> None:
        self._fetch = fetch
        self._margin_seconds = margin_seconds
        self._lock = asyncio.Lock()
        self._token = ""
        self._due = 0.0  # time.monotonic() when the token has to be replaced
        self.state = TokenState()  # of the app's credentials

    async def get(self) -> str:
        """Return the token, fetched if necessary. Raises what `fetch` raises."""
        async with self._lock:
            if time.monotonic() >= self._due:
                with self.state.watch():
                    self._token, lifetime = await self._fetch()
                self._due = time.monotonic() + max(lifetime - self._margin_seconds, lifetime / 2)
            return self._token

    def reject(self, token: str) -> None:
        """Note that the platform no longer accepts this token; another call may have replaced it already."""
        if self._token == token:
            self._due = 0.0


class TokenApi(HttpClient):
    """The API of an app: each call with its token, and within the limit of what it calls. Raises ChannelError."""

    token_codes: ClassVar[frozenset[str | int]]  # of calls with a token that is not valid any more

    def __init__(self, platform: str, proxy: str, ca_file: str, limits: PlatformLimits, margin_seconds: float) -> None:
        super().__init__(platform, proxy, ca_file)
        self._token = AccessToken(self._fetch_token, margin_seconds)
        self.token_state = self._token.state
        self._limiter = RateLimiter(limits)

    @abstractmethod
    async def _fetch_token(self) -> tuple[str, float]:
        """Return a new token and its lifetime in seconds. Raises TokenRejected when the credentials are wrong."""

    async def _call_api(
        self, api: str, call: Callable[[str], Awaitable[dict[str, Any]]], *, again: bool = True
    ) -> dict[str, Any]:
        """Make a call with a token, once its API allows it; if the token has expired, `again` with a new one."""
        await self._limiter.acquire("", Priority.FINAL, method=api)
        try:
            answer = await self._call_with_token(call, again=again)
        except RateLimited as error:
            self._limiter.note_refused("", error.after, api)
            raise
        self._limiter.note_accepted("", api)
        return answer

    async def _call_with_token(
        self, call: Callable[[str], Awaitable[dict[str, Any]]], *, again: bool = True
    ) -> dict[str, Any]:
        token = await self._token.get()
        try:
            return await call(token)
        except CodedRefusal as error:
            if error.code not in self.token_codes:
                raise
            self._token.reject(token)
            if not again:
                raise TryLater(str(error)) from None
            return await call(await self._token.get())
