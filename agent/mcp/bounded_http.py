"""The HTTP client for authorization servers, whose answers are small: more than 1 MB is refused before it is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx2

MAX_BYTES = 1 << 20


class TooLarge(httpx2.HTTPError):
    """The answer is larger than what this client reads."""

    def __init__(self, url: httpx2.URL) -> None:
        super().__init__(f"{url.host} answers with more than {MAX_BYTES >> 20} MB, or compressed")


class _BoundedStream(httpx2.AsyncByteStream):
    """The body of a response, up to the limit."""

    def __init__(self, stream: httpx2.AsyncByteStream, url: httpx2.URL) -> None:
        self._stream = stream
        self._url = url

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MAX_BYTES:
                raise TooLarge(self._url)
            yield chunk

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()


def bound_responses(unbounded_url: str = "") -> Callable[[httpx2.Response], Awaitable[None]]:
    """Return a hook that bounds each response, except those of `unbounded_url`."""

    async def bound(response: httpx2.Response) -> None:
        url = response.request.url
        if unbounded_url and url == httpx2.URL(unbounded_url):
            return
        if response.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
            raise TooLarge(url)  # nobody asked for it, and it may be a bomb
        if isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _BoundedStream(response.stream, url)

    return bound


def bounded_client(seconds: float, *, headers: Any = None, auth: httpx2.Auth | None = None) -> httpx2.AsyncClient:
    """Return a client for an authorization server."""
    client = httpx2.AsyncClient(
        headers=headers, timeout=seconds, auth=auth, event_hooks={"response": [bound_responses()]}
    )
    client.headers["Accept-Encoding"] = "identity"
    return client
