"""Call a homeserver's client-server API, with its errors as channel errors.

spec.matrix.org/latest/client-server-api. A transaction id makes the repeat of a call the same event; it belongs to the
device of the access token.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncGenerator, Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import aiohttp
import orjson

from catalogue import _
from channels.base import ChannelError, ChatGone, MayPass, OutcomeUnknown, Refused, TokenRejected, TryLater
from channels.matrix import MatrixSettings
from channels.shared import files
from channels.shared.http_client import (
    CALL_TIMEOUT,
    LONG_POLL,
    HttpClient,
    RateLimited,
    call_timeout,
    read_body,
    retry_after_seconds,
)
from channels.shared.visible_text import dict_of, text_of

CLIENT, MEDIA = "/_matrix/client/v3", "/_matrix/client/v1/media"
MAX_ANSWER_BYTES = 64 << 20  # of one answer, such as that of /sync after a long time
MAX_RETRY_SECONDS = 3600.0  # that we believe a server
_MXC = re.compile(r"mxc://([A-Za-z0-9.:\[\]_-]{1,255})/([A-Za-z0-9_-]{1,255})")
_UNKNOWN_EVENT = ("relation to unknown event", "must be in the same room")  # Synapse, handlers/message.py and events

Json = dict[str, Any]  # the platform defines the shape


class MatrixNotFound(Refused):
    """The server knows no such thing."""


class MatrixForbidden(Refused):
    """The account may not do that."""


class UnknownEvent(Refused):
    """The event to which a message relates is not in the room."""


class MatrixApi(HttpClient):
    """The calls of one access token."""

    def __init__(self, settings: MatrixSettings) -> None:
        super().__init__("Matrix", settings.proxy, settings.ca_file)
        self._url = settings.homeserver.rstrip("/")
        self._head = {"Authorization": f"Bearer {settings.token.reveal()}"}

    async def open(self) -> None:
        if not self._url.startswith(("http://", "https://")):
            raise Refused(_("`homeserver` has to be an address such as https://matrix.example.org"))
        await super().open()

    async def call(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        seconds: float = 0.0,
        repeatable: bool = False,
        query: Mapping[str, str] = MappingProxyType({}),
        **more: str,
    ) -> Json:
        """Make a call and return its answer. Raises ChannelError. `seconds` is how long the server may wait first."""
        options: Json = {"params": {**query, **more}, "headers": self._head}
        if body is not None:
            options["data"] = orjson.dumps(body)
            options["headers"] = {**self._head, "Content-Type": "application/json"}
        if seconds:
            options |= {"timeout": call_timeout(seconds), "trace_request_ctx": LONG_POLL}
        with self.token_state.watch():
            async with self.request(method, self._url + path, repeatable=repeatable, **options) as answer:
                return await _read_answer(answer)

    async def ask(self, path: str) -> Json:
        """Return an answer, or nothing where the server refuses it."""
        try:
            return await self.call("GET", path)
        except Refused:
            return {}

    async def send_event(self, room: str, kind: str, content: Json, transaction: str = "") -> str:
        """Send an event into a room and return its id. With the same transaction id, it is the same event."""
        path = f"{CLIENT}/rooms/{quote(room, safe='')}/send/{quote(kind, safe='')}/{quote(transaction or new_id())}"
        return str((await self.in_room(room, self.call("PUT", path, content)))["event_id"])

    async def redact(self, room: str, event: str) -> None:
        """Take an event back."""
        path = f"{CLIENT}/rooms/{quote(room, safe='')}/redact/{quote(event, safe='')}/{new_id()}"
        await self.in_room(room, self.call("PUT", path, {}, repeatable=True))

    async def in_room(self, room: str, call: Any) -> Json:
        """Await a call on a room. Raises ChatGone when the account is not in it any more."""
        try:
            return dict(await call)
        except MatrixForbidden as error:
            if room not in await self.joined_rooms():
                raise ChatGone(f"the bot is not in the room any more ({error})") from None
            raise

    async def joined_rooms(self) -> frozenset[str]:
        """Return the ids of the rooms in which the account is."""
        found = await self.call("GET", f"{CLIENT}/joined_rooms")
        return frozenset(map(str, found.get("joined_rooms") or ()))

    async def fetch_event(self, room: str, event: str) -> Json:
        """Return an event, with its latest edit as the server adds it."""
        return await self.call("GET", f"{CLIENT}/rooms/{quote(room, safe='')}/event/{quote(event, safe='')}")

    async def upload(self, data: Any, name: str, mime: str) -> str:
        """Upload a file and return its address."""
        head = {**self._head, "Content-Type": mime}
        url = f"{self._url}/_matrix/media/v3/upload"
        options: Json = {"headers": head, "params": {"filename": name} if name else {}}
        async with self.request("POST", url, repeatable=True, data=data, **options) as answer:
            return str((await _read_answer(answer))["content_uri"])

    def download_file(self, address: str) -> AsyncGenerator[bytes, None]:
        """Return the bytes behind an address, in chunks. Raises Refused and TryLater."""
        found = _MXC.fullmatch(address)
        if not found:
            raise Refused("has an address that is not one of Matrix")
        url = f"{self._url}{MEDIA}/download/{quote(found[1], safe='')}/{found[2]}"
        return self.download(url, _check_file, headers=self._head, timeout=CALL_TIMEOUT)


def new_id() -> str:
    """Return a transaction id for a call that may be repeated with another one."""
    return uuid.uuid4().hex


async def _read_answer(answer: aiohttp.ClientResponse) -> Json:
    raw = await read_body(answer, MAX_ANSWER_BYTES)
    try:
        found = dict_of(orjson.loads(raw))
    except orjson.JSONDecodeError:
        found = {}
    if answer.status < 300 and found is not None:
        return found
    raise error_of(answer.status, found, answer.headers)


def error_of(status: int, body: Json, headers: Mapping[str, str]) -> ChannelError:
    """Return the error of an answer (spec.matrix.org/latest/client-server-api/#standard-error-response)."""
    code, words = text_of(body.get("errcode")), text_of(body.get("error"))[:300]
    reason = f"Matrix answered {status} {code} {words}".rstrip()
    if status == 429 or code == "M_LIMIT_EXCEEDED":
        asked = body.get("retry_after_ms")
        seconds = asked / 1000 if isinstance(asked, int | float) else retry_after_seconds(headers)
        return RateLimited("Matrix", min(max(seconds, 0.1), MAX_RETRY_SECONDS))
    if status == 401 or code in ("M_UNKNOWN_TOKEN", "M_MISSING_TOKEN", "M_USER_DEACTIVATED"):
        return TokenRejected(reason)
    if status == 500 and code:  # the homeserver's own words, not those of a proxy before it
        return TryLater(reason)
    if status >= 500:
        return OutcomeUnknown(reason)
    if status == 403:
        return MatrixForbidden(reason)
    if status == 404 and code in ("M_NOT_FOUND", ""):
        return MatrixNotFound(reason)
    if any(phrase in words for phrase in _UNKNOWN_EVENT):
        return UnknownEvent(reason)
    return MayPass(reason)


async def _check_file(answer: aiohttp.ClientResponse) -> None:
    if answer.status == 404:
        raise files.no_longer_available("Matrix")
    if answer.status in (400, 403, 413):
        raise Refused(f"cannot be fetched: Matrix answered {answer.status}")
    if answer.status == 401:
        raise TokenRejected("Matrix rejects the token")
    if answer.status == 429:
        raise RateLimited("Matrix", retry_after_seconds(answer.headers))
