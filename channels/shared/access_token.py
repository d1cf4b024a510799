"""An app's access token, replaced before it expires."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


class AccessToken:
    """A token that all calls of an app share. `fetch` returns a new one and its lifetime in seconds."""

    def __init__(self, fetch: Callable[[], Awaitable[tuple[str, float]]], margin_seconds: float) -> None:
        self._fetch = fetch
        self._margin_seconds = margin_seconds
        self._lock = asyncio.Lock()
        self._token = ""
        self._due = 0.0  # time.monotonic() when the token has to be replaced

    async def get(self) -> str:
        """Return the token, fetched if necessary. Raises what `fetch` raises."""
        async with self._lock:
            if time.monotonic() >= self._due:
                self._token, lifetime = await self._fetch()
                self._due = time.monotonic() + max(lifetime - self._margin_seconds, lifetime / 2)
            return self._token

    def reject(self, token: str) -> None:
        """Note that the platform no longer accepts this token; another call may have replaced it already."""
        if self._token == token:
            self._due = 0.0
