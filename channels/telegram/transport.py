"""Run python-telegram-bot over aiohttp: less CPU than its default, and errors by what the server received."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import aiohttp
import orjson
from telegram.error import NetworkError
from telegram.request import BaseRequest, RequestData

from channels.base import ChannelError, OutcomeUnknown, TryLater
from channels.shared.file_limits import CHUNK
from channels.shared.http_client import (
    CALL_TIMEOUT,
    UPLOAD_TIMEOUT,
    RateLimited,
    call_timeout,
    create_session,
    mapped_network_errors,
    retry_after_seconds,
)
from channels.shared.lifecycle import load_certificates


class TransportError(NetworkError):
    """Carry a channel error through the SDK, which passes on only its own errors."""

    def __init__(self, reason: ChannelError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class AiohttpRequest(BaseRequest):
    """One session for all calls. No error text contains a URL, because the token is part of it."""

    def __init__(self, *, proxy: str = "", ca_file: str = "") -> None:
        self._proxy = proxy or None
        self._ca_file = ca_file
        self._session: aiohttp.ClientSession | None = None

    @property
    def read_timeout(self) -> float:
        return CALL_TIMEOUT.sock_read or 0.0

    @property
    def session(self) -> aiohttp.ClientSession:
        """The open session. Raises TryLater before initialize() and after shutdown()."""
        if self._session is None or self._session.closed:
            raise TryLater("the session is closed")
        return self._session

    async def initialize(self) -> None:
        if self._session is None:
            self._session = create_session(await load_certificates(self._ca_file))

    async def shutdown(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:  # the shape is the method's
        """Parse an answer. Raises TransportError if it is not a JSON object, such as a proxy's page."""
        try:
            parsed = orjson.loads(payload)
        except ValueError:
            parsed = _parse_lenient_json(payload)
        if not isinstance(parsed, dict):
            raise TransportError(TryLater("the answer is not from Telegram"))
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
        """Make one call. Raises TransportError for a lost call, 429 and 5xx; the SDK reads other statuses."""
        body, headers = _request_body(request_data)
        timeout = UPLOAD_TIMEOUT if isinstance(body, aiohttp.FormData) else CALL_TIMEOUT
        if isinstance(read_timeout, (int, float)):
            timeout = call_timeout(read_timeout)
        try:
            with mapped_network_errors("Telegram"):
                async with self.session.request(
                    method, url, data=body, headers=headers, timeout=timeout, proxy=self._proxy
                ) as answer:
                    payload = await answer.read()
            _check_status(answer.status, payload, answer.headers)
        except ChannelError as error:
            raise TransportError(error) from None
        return answer.status, payload

    async def download(self, url: str) -> AsyncGenerator[bytes, None]:
        """Yield the bytes behind a URL in chunks. Raises TryLater."""
        with mapped_network_errors("Telegram", repeatable=True):
            async with self.session.get(url, proxy=self._proxy) as answer:
                if answer.status != 200:
                    raise TryLater(f"Telegram's file server answered {answer.status}")
                async for chunk in answer.content.iter_chunked(CHUNK):
                    yield chunk


def _parse_lenient_json(payload: bytes) -> object:
    """Parse JSON with half a surrogate pair, which orjson rejects: one such character must not stop all updates."""
    try:
        text = json.dumps(json.loads(payload), ensure_ascii=False)
    except ValueError:
        return None
    return orjson.loads(text.encode("utf-8", "replace"))


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


def _check_status(status: int, payload: bytes, headers: Mapping[str, str]) -> None:
    """Raise the channel error of an answer that is not the Bot API's own."""
    if status == 429:
        try:  # core.telegram.org/bots/api#responseparameters
            seconds = float(orjson.loads(payload)["parameters"]["retry_after"])
        except (ValueError, KeyError, TypeError):
            seconds = retry_after_seconds(headers)
        raise RateLimited("Telegram", seconds)
    if status == 504:
        raise OutcomeUnknown("Telegram's gateway timed out (504)")
    if status >= 500:
        raise TryLater(f"Telegram answered {status}")
