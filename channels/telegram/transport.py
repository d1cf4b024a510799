"""python-telegram-bot over aiohttp: a fraction of the CPU of its default, and errors told apart by what was sent."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import orjson
from telegram.error import NetworkError, TelegramError
from telegram.request import BaseRequest, RequestData

from channels.shared.file_limits import CHUNK
from channels.shared.lifecycle import load_certificates

CONNECT_TIMEOUT_SECONDS = 10.0  # seconds to reach the server
ANSWER_TIMEOUT_SECONDS = 20.0  # seconds it may be silent
UPLOAD_TIMEOUT_SECONDS = 120.0  # …after an upload, which it first passes on
IDLE_SECONDS = 15.0  # seconds an idle connection is kept: shorter than servers do, so that none dies under a call


class NotSent(NetworkError):
    """The server could not be reached: nothing happened there."""


class NoAnswer(NetworkError):
    """The call went out and no answer came: it may have had its effect."""


class ServerFault(NetworkError):
    """The server answered 5xx: it did not do it."""


class Flood(TelegramError):
    """429: too many calls."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"too many calls: retry after {seconds:g} s")
        self.seconds = seconds


class AiohttpRequest(BaseRequest):
    """One session for every call. No error text carries a URL: the token is in it."""

    def __init__(self, *, proxy: str = "", ca_file: str = "") -> None:
        self._proxy = proxy or None
        self._ca_file = ca_file
        self._session: aiohttp.ClientSession | None = None

    @property
    def read_timeout(self) -> float:
        return ANSWER_TIMEOUT_SECONDS

    @property
    def session(self) -> aiohttp.ClientSession:
        """The open session. Raises NotSent outside of initialize() … shutdown()."""
        if self._session is None or self._session.closed:
            raise NotSent("the session is closed")
        return self._session

    async def initialize(self) -> None:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=0, keepalive_timeout=IDLE_SECONDS, ssl=await load_certificates(self._ca_file)
            )
            self._session = aiohttp.ClientSession(connector=connector, auto_decompress=True)

    async def shutdown(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:  # the shape is the method's
        """The JSON of an answer. Raises ServerFault when it is none (a proxy's page)."""
        try:
            parsed = orjson.loads(payload)
        except ValueError:
            parsed = _parse_lenient_json(payload)
        if not isinstance(parsed, dict):
            raise ServerFault("the answer is not the Bot API's")
        return parsed

    async def do_request(  # the signature is the SDK's
        self,
        url: str,
        method: str,
        request_data: RequestData | None = None,
        read_timeout: object = BaseRequest.DEFAULT_NONE,
        write_timeout: object = BaseRequest.DEFAULT_NONE,
        connect_timeout: object = BaseRequest.DEFAULT_NONE,
        pool_timeout: object = BaseRequest.DEFAULT_NONE,
    ) -> tuple[int, bytes]:
        """One call. Raises NotSent, NoAnswer, ServerFault or Flood; other statuses are the SDK's to read."""
        body, headers = _request_body(request_data)
        silence = read_timeout if isinstance(read_timeout, (int, float)) else ANSWER_TIMEOUT_SECONDS
        if isinstance(body, aiohttp.FormData):
            silence = UPLOAD_TIMEOUT_SECONDS
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_SECONDS, sock_read=silence)
        try:
            async with self.session.request(
                method, url, data=body, headers=headers, timeout=timeout, proxy=self._proxy
            ) as answer:
                status, payload = answer.status, await answer.read()
        except (aiohttp.ClientError, OSError) as error:
            raise classify_transport_error(error) from None
        if status == 429:
            raise Flood(_retry_after_seconds(payload, answer.headers))
        if status == 504:
            raise NoAnswer("a gateway gave up waiting (504)")
        if status >= 500:
            raise ServerFault(f"the server answered {status}")
        return status, payload

    async def download(self, url: str) -> AsyncGenerator[bytes, None]:
        """The bytes behind a URL, in chunks. Raises NotSent, NoAnswer, ServerFault."""
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT_SECONDS, sock_read=ANSWER_TIMEOUT_SECONDS
        )
        try:
            async with self.session.get(url, timeout=timeout, proxy=self._proxy) as answer:
                if answer.status != 200:
                    raise ServerFault(f"the file server answered {answer.status}")
                async for chunk in answer.content.iter_chunked(CHUNK):
                    yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise classify_transport_error(error) from None


def _parse_lenient_json(payload: bytes) -> object:
    """JSON with half a surrogate pair in it, which orjson refuses: one such character must not stop all updates."""
    try:
        text = json.dumps(json.loads(payload), ensure_ascii=False)
    except ValueError:
        return None
    return orjson.loads(text.encode("utf-8", "replace"))


def classify_transport_error(error: Exception) -> NetworkError:
    """Whether a failed call can have reached the server; only the kind of the error is named."""
    kind = type(error).__name__
    if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError)):
        return NotSent(f"cannot reach the server ({kind})")
    return NoAnswer(f"no answer ({kind})")


def _request_body(data: RequestData | None) -> tuple[bytes | aiohttp.FormData | None, dict[str, str]]:
    if data is None:
        return None, {}
    if not data.contains_files:
        parameters = data.parameters
        return (orjson.dumps(parameters), {"Content-Type": "application/json"}) if parameters else (None, {})
    form = aiohttp.FormData(quote_fields=False)
    for name, value in data.json_parameters.items():
        form.add_field(name, value)
    for name, (filename, content, mime) in data.multipart_data.items():
        form.add_field(name, content, filename=filename, content_type=mime)
    return form, {}


def _retry_after_seconds(payload: bytes, headers: Any) -> float:
    """Seconds, from the body (core.telegram.org/bots/api#responseparameters) or the header."""
    try:
        return float(orjson.loads(payload)["parameters"]["retry_after"])
    except (ValueError, KeyError, TypeError):
        after = str(headers.get("Retry-After", ""))
        return float(after) if after.isdigit() else 1.0
