"""Calls of WhatsApp's Cloud API for one number.

Messages: developers.facebook.com/docs/whatsapp/cloud-api/reference/messages; media: …/reference/media; codes of
errors: …/support/error-codes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import aiohttp
import orjson

from catalogue import N_, _
from channels.base import ChatGone, OutcomeUnknown, Refused, TokenRejected, TryLater
from channels.shared.files import no_longer_available
from channels.shared.http_client import CodedRefusal, HttpClient, RateLimited, read_body
from channels.shared.visible_text import dict_of
from channels.whatsapp import WhatsAppSettings

API_VERSION = "v23.0"
MAX_ANSWER_BYTES = 1 << 20

WINDOW_OVER = 131047  # more than 24 hours since the person's last message
_TOKEN = frozenset({0, 3, 10, 190, *range(200, 300)})
_LIMITED: Mapping[int, float] = {4: 60.0, 80007: 60.0, 130429: 2.0, 131048: 600.0, 131056: 10.0}  # code → seconds
_LATER: Mapping[int, float] = {1: 5.0, 2: 5.0, 131016: 30.0, 131057: 60.0, 133004: 60.0}
_LOCKED = frozenset({368, 131031, 131042, 131045})  # the account is restricted, or its bill is not paid
_GONE = frozenset({131026, 131050})  # the person cannot be reached, or wants nothing more
LOCKED_SECONDS = 600.0
REJECTED = N_("WhatsApp rejects the token ({code}): make another one for the system user, and give it the number.")


class WhatsAppRefusal(CodedRefusal):
    """The platform refused a call."""

    platform = "WhatsApp"


class WhatsAppChatGone(ChatGone, WhatsAppRefusal):
    """The person cannot be reached by WhatsApp any more."""


class WhatsAppApi(HttpClient):
    """The calls of one number. Raises ChannelError."""

    def __init__(self, settings: WhatsAppSettings) -> None:
        super().__init__("WhatsApp", settings.proxy, settings.ca_file)
        self._base = f"{settings.base_url}/{API_VERSION}"
        self._number = settings.phone_number_id
        self._token = settings.token

    @property
    def _authorized(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token.reveal()}"}

    async def account(self) -> Mapping[str, Any]:
        """Return the number and the name that people see."""
        url = f"{self._base}/{self._number}?fields=display_phone_number,verified_name,quality_rating"
        return await self._call("GET", url)

    async def send(self, to: str, content: Mapping[str, Any], *, mark: str = "") -> str:
        """Send a message and return its id. `mark` comes back with what Meta says about it later."""
        body = {"messaging_product": "whatsapp", "recipient_type": "individual", "to": to, **content}
        body |= {"biz_opaque_callback_data": mark} if mark else {}
        return str((await self._post(body))["messages"][0]["id"])

    async def mark_read(self, message: str, *, typing: bool) -> None:
        """Mark a message as read, and show that the bot types: until it answers, at most 25 seconds."""
        body: dict[str, Any] = {"messaging_product": "whatsapp", "status": "read", "message_id": message}
        await self._post(body | ({"typing_indicator": {"type": "text"}} if typing else {}), repeatable=True)

    async def upload(self, form: aiohttp.FormData) -> str:
        """Upload a file and return its id. An upload shows nothing, so that it can be repeated."""
        return str((await self._call("POST", f"{self._base}/{self._number}/media", data=form, repeatable=True))["id"])

    async def download_media(self, media: str) -> AsyncGenerator[bytes, None]:
        """Return the chunks of a file that a person sent. Its address lives for five minutes, its id for a month."""
        try:
            found = await self._call("GET", f"{self._base}/{media}?phone_number_id={self._number}")
        except WhatsAppRefusal:
            raise no_longer_available("WhatsApp") from None
        return self.download(str(found["url"]), allow_redirects=False, headers=self._authorized)

    async def _post(self, body: Mapping[str, Any], *, repeatable: bool = False) -> Mapping[str, Any]:
        return await self._call("POST", f"{self._base}/{self._number}/messages", json=body, repeatable=repeatable)

    async def _call(self, method: str, url: str, **options: Any) -> Mapping[str, Any]:
        with self.token_state.watch():
            async with self.request(method, url, headers=self._authorized, allow_redirects=False, **options) as answer:
                return _parse_answer(answer.status, await read_body(answer, MAX_ANSWER_BYTES))


def _parse_answer(status: int, payload: bytes) -> Mapping[str, Any]:
    """Return the JSON of an answer. Raises the ChannelError for its status and code."""
    try:
        answer = dict_of(orjson.loads(payload))
    except orjson.JSONDecodeError:
        answer = {}
    if status == 200 and answer and "error" not in answer:
        return answer
    error = dict_of(answer.get("error"))
    code = error["code"] if isinstance(error.get("code"), int) else -1
    details = dict_of(error.get("error_data")).get("details")
    raise _error_for(status, code, str(details or error.get("message") or f"status {status}"))


def _error_for(status: int, code: int, message: str) -> TryLater | OutcomeUnknown | Refused:
    what = f"WhatsApp: {message[:300]} ({code})"
    if code in _LIMITED or status == 429:
        return RateLimited("WhatsApp", _LIMITED.get(code, 2.0))
    if status in (502, 503):  # the gateway did not reach the service
        return TryLater(what)
    if code in _LATER:
        return TryLater(what, _LATER[code])
    if code in _TOKEN or (code == -1 and status == 401):
        return TokenRejected(_(REJECTED, code=code), 60.0)
    if code in _LOCKED:
        return TryLater(what, LOCKED_SECONDS)
    if status >= 500 or code == -1:
        return OutcomeUnknown(what)
    return WhatsAppChatGone(code, message) if code in _GONE else WhatsAppRefusal(code, message)
