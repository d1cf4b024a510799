"""Run python-telegram-bot over the channels' HTTP client, with errors by what the server received."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import aiohttp
import orjson
from telegram.error import NetworkError
from telegram.request import BaseRequest, RequestData

from channels.base import ChannelError, OutcomeUnknown, TryLater
from channels.shared.http_client import (
    CALL_TIMEOUT,
    LONG_POLL,
    HttpClient,
    RateLimited,
    call_timeout,
    retry_after_seconds,
)


class TransportError(NetworkError):
    """Carry a channel error through the SDK, which passes on only its own errors."""

    def __init__(self, reason: ChannelError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class SdkTransport(BaseRequest):
    """Make the SDK's calls with `http`, which its owner opens and closes."""

    def __init__(self, http: HttpClient) -> None:
        self._http = http

    @property
    def read_timeout(self) -> float:
        return CALL_TIMEOUT.sock_read or 0.0

    async def initialize(self) -> None: ...

    async def shutdown(self) -> None: ...

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:  # the shape is the method's
        """Parse an answer. Raises TransportError if it is not the Bot API's, such as a proxy's page."""
        try:
            parsed = orjson.loads(payload)
        except ValueError:
            parsed = _parse_lenient_json(payload)
        if not isinstance(parsed, dict) or not {"result", "description"} & parsed.keys():
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
        options = _request_body(request_data)
        if isinstance(read_timeout, (int, float)):
            options |= {"timeout": call_timeout(read_timeout), "trace_request_ctx": LONG_POLL}
        try:
            async with self._http.request(method, url, **options) as answer:
                payload = await answer.read()
                _check_status(answer.status, payload, answer.headers)
        except ChannelError as error:
            raise TransportError(error) from None
        return answer.status, payload


def _parse_lenient_json(payload: bytes) -> object:
    """Parse JSON with half a surrogate pair, which orjson rejects: one such character must not stop all updates."""
    try:
        text = json.dumps(json.loads(payload), ensure_ascii=False)
    except ValueError:
        return None
    return orjson.loads(text.encode("utf-8", "replace"))


def _request_body(data: RequestData | None) -> dict[str, Any]:
    """Return the body of a call as options of `HttpClient.request`."""
    if data is None or not data.parameters:
        return {}
    if not data.contains_files:
        return {"data": orjson.dumps(data.parameters), "headers": {"Content-Type": "application/json"}}
    form = aiohttp.FormData(quote_fields=False)
    for name, value in data.json_parameters.items():
        form.add_field(name, value)
    for name, (filename, content, mime) in data.multipart_data.items():
        form.add_field(name, content, filename=filename, content_type=mime)
    return {"data": form}


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
