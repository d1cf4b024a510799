"""An httpx2 transport over aiohttp for the models' SDKs, which reads streams in batches.

Each chunk that wakes the process passes ten layers, and a stream sends fifty chunks a second. So a reader may set a
pause between two reads (`ReadPace`): data waits in aiohttp's buffer, but the end of the stream ends the pause at once.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
import httpx2

from agent.settings.network import choose_proxy, make_trust
from agent.spans import trace_parent

if TYPE_CHECKING:
    from agent.settings.models import ModelSettings


@dataclass(slots=True)
class ReadPace:
    """The pause between two reads of a stream; 0 reads each chunk as it arrives. May change while it runs."""

    seconds: float = 0.0


READ_PACE: ContextVar[ReadPace | None] = ContextVar("pace", default=None)
"""The pace for the response to the request that runs in this context."""


def open_http_client(settings: ModelSettings) -> httpx2.AsyncClient:
    """Return a client with the timeouts, the proxy and the certificates of a model."""
    transport = AiohttpTransport(
        proxy=settings.proxy,
        verify=make_trust(settings.ca_file),
    )
    seconds = settings.connect_seconds
    return httpx2.AsyncClient(
        transport=transport, timeout=httpx2.Timeout(settings.read_seconds, connect=seconds, pool=seconds)
    )


class AiohttpTransport(httpx2.AsyncBaseTransport):
    """One aiohttp session without a connection limit, opened by the first request on its event loop."""

    def __init__(self, *, proxy: str = "", verify: ssl.SSLContext | None = None) -> None:
        self._proxy = proxy
        self._verify = verify
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request. Raises aiohttp.ClientError; `agent.models.errors` classifies it."""
        session = self._session = self._session or self._open_session()
        timeout = request.extensions.get("timeout", {})
        headers = list(request.headers.items())
        if parent := trace_parent():
            headers.append(("traceparent", parent))
        response = await session.request(
            request.method,
            str(request.url),
            headers=headers,
            data=await request.aread() or None,
            allow_redirects=False,
            proxy=choose_proxy(str(request.url), self._proxy),
            timeout=aiohttp.ClientTimeout(
                connect=timeout.get("pool"), sock_connect=timeout.get("connect"), sock_read=timeout.get("read")
            ),
        )
        stream = ResponseBody(response)
        return httpx2.Response(response.status, headers=response.raw_headers, stream=stream, request=request)

    def _open_session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._verify or True)
        return aiohttp.ClientSession(connector=connector, auto_decompress=False)

    async def aclose(self) -> None:
        if self._session:
            await self._session.close()


class StreamBroke(ConnectionError):
    """The server had begun to answer."""


class ResponseBody(httpx2.AsyncByteStream):
    """The bytes of a response, as they arrive or in batches at the reader's pace."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._pace = READ_PACE.get() or ReadPace()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        content = self._response.content
        ended = asyncio.Event()
        content.on_eof(ended.set)
        begun = False
        while data := await self._read(begun):
            begun = True
            yield data
            if self._pace.seconds and not ended.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._pace.seconds):
                        await ended.wait()

    async def _read(self, begun: bool) -> bytes:
        try:
            return await self._response.content.readany()
        except TimeoutError:
            raise
        except (aiohttp.ClientError, OSError) as error:
            if not begun:
                raise
            raise StreamBroke("The stream broke in the middle.") from error

    async def aclose(self) -> None:
        if self._response.content.is_eof():
            self._response.release()
        else:
            self._response.close()
