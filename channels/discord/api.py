"""Calls of Discord's REST API, refused in the words of channels.base.

The SDK's own calls sleep inside when a bucket is used up or a 429 comes, whoever waits, and repeat posts by themselves.
Here a call is made once: a closed bucket is TryLater at once, so that the budget decides who goes next.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import deque
from collections.abc import AsyncGenerator
from typing import Any, BinaryIO

import aiohttp
import orjson

from channels.base import ChannelError, ChatGone, OutcomeUnknown, Refused, TryLater
from channels.discord import DiscordSettings
from channels.shared.file_limits import CHUNK
from channels.shared.http_client import (
    CALL_TIMEOUT,
    UPLOAD_TIMEOUT,
    RateLimited,
    create_session,
    mapped_network_errors,
)
from channels.shared.lifecycle import load_certificates
from channels.shared.rate_limit import RateLimiter
from channels.shared.reply_writer import MessageMissing

# The form is theirs: discord.com/developers/docs/reference#user-agent
USER_AGENT = "DiscordBot (https://github.com/fawn, 1)"
_ID = re.compile(r"\d{5,}")


class Forbidden(ChatGone):
    """The bot may not do this here (50001, 50013)."""


class ThreadArchived(Refused):
    """The thread is archived: it must be opened again first (50083)."""


class ThreadExists(Refused):
    """The message has a thread already (160004)."""


class InteractionExpired(Refused):
    """The interaction was answered already, or too late (10062, 10015, 50027)."""


class InteractionAnswered(InteractionExpired):
    """…answered already (40060)."""


# Codes of discord.com/developers/docs/topics/opcodes-and-status-codes#json
_CODES: dict[int, type[Refused]] = {
    10003: ChatGone,
    10004: ChatGone,
    10008: MessageMissing,
    50001: Forbidden,
    50013: Forbidden,
    50007: ChatGone,
    50083: ThreadArchived,
    160004: ThreadExists,
    40060: InteractionAnswered,
    10062: InteractionExpired,
    10015: InteractionExpired,
    50027: InteractionExpired,
}


_SLOWLY = (20016, 20028, 20029, 30046)  # limits of a channel, a server, and of edits to messages older than an hour


class DiscordApi:
    """The calls of one bot. Raises ChannelError; no error carries a token."""

    def __init__(self, settings: DiscordSettings, budget: RateLimiter | None = None) -> None:
        self._base = settings.base_url.rstrip("/")
        self._token = settings.token
        self._budget = budget
        self._most = settings.overall + 2  # in any second; 50 may be (…/docs/topics/rate-limits#global-rate-limit)
        self._proxy = settings.proxy or None
        self._ca_file = settings.ca_file
        self._session: aiohttp.ClientSession | None = None
        self._closed: dict[str, float] = {}  # bucket → until when it is used up (loop time)
        self._made: deque[float] = deque()  # the calls of the last second (loop time)
        self.trust: ssl.SSLContext | None = None

    async def open(self) -> None:
        """Get ready to make calls. Raises Refused."""
        if self._proxy and not self._proxy.startswith("http"):
            raise Refused("proxy: Discord can be reached through an http proxy only.")
        self.trust = await load_certificates(self._ca_file)
        self._session = create_session(self.trust, {"User-Agent": USER_AGENT})

    async def close(self) -> None:
        """Hang up."""
        if self._session:
            await self._session.close()
            self._session = None

    async def __call__(
        self, method: str, path: str, body: Any = None, *, file: tuple[str, BinaryIO] | None = None, free: bool = False
    ) -> Any:
        """One call; gives the JSON of the answer. `free`: the path carries its own token (interactions)."""
        try:
            return await self._request(method, path, body, file, free)
        except OutcomeUnknown as error:
            if method == "GET":
                raise TryLater(str(error)) from None
            raise

    async def _request(self, method: str, path: str, body: Any, file: tuple[str, BinaryIO] | None, free: bool) -> Any:
        bucket = _bucket_key(method, path)
        loop = asyncio.get_running_loop()
        if (left := max(self._closed.get(bucket, 0.0), self._closed.get("", 0.0)) - loop.time()) > 0:
            raise TryLater("Discord's limit for this channel is used up", left)
        if not free:
            await self._wait_for_second()
        headers = {} if free else {"Authorization": f"Bot {self._token.reveal()}"}
        data: Any = None
        if file:
            data = aiohttp.FormData(quote_fields=False)
            data.add_field("payload_json", orjson.dumps(body).decode(), content_type="application/json")
            data.add_field("files[0]", file[1], filename=file[0], content_type="application/octet-stream")
        elif body is not None:
            data, headers["Content-Type"] = orjson.dumps(body), "application/json"
        timeout = UPLOAD_TIMEOUT if file else CALL_TIMEOUT
        with mapped_network_errors("Discord"):
            async with self._open_session.request(
                method, self._base + path, data=data, headers=headers, timeout=timeout, proxy=self._proxy
            ) as answer:
                payload = await answer.read()
        self._note_bucket(bucket, path, answer.headers)
        if answer.status < 300:
            try:
                return orjson.loads(payload) if payload else None
            except ValueError:  # the page of a proxy, or of a network that wants a login
                raise TryLater("what answers there is not Discord", 10.0) from None
        raise self._map_api_error(answer.status, answer.headers, payload, bucket)

    async def download(self, url: str) -> AsyncGenerator[bytes, None]:
        """The bytes behind a URL, in chunks. Raises TryLater; Missing when the link has run out."""
        with mapped_network_errors("Discord", repeatable=True):
            async with self._open_session.get(url, proxy=self._proxy) as answer:
                if answer.status in (401, 403, 404):
                    raise MessageMissing("the file's link has run out")
                if answer.status != 200:
                    raise TryLater(f"the file server answered {answer.status}")
                async for chunk in answer.content.iter_chunked(CHUNK):
                    yield chunk

    # ------------------------------------------------------------ parts

    @property
    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            raise TryLater("the channel is closed")
        return self._session

    async def _wait_for_second(self) -> None:
        """Wait until this call is not one too many for the second: a 429 for all of them costs everybody more."""
        loop = asyncio.get_running_loop()
        while True:
            while self._made and self._made[0] <= loop.time() - 1:
                self._made.popleft()
            if len(self._made) < self._most:
                break
            await asyncio.sleep(self._made[0] + 1 - loop.time())
        self._made.append(loop.time())

    def _note_bucket(self, bucket: str, path: str, headers: Any) -> None:
        """Remember a bucket that is used up: the next call there would be a 429."""
        if headers.get("X-RateLimit-Remaining") != "0":
            return
        after = float(headers.get("X-RateLimit-Reset-After") or 0.0)
        self._close_bucket(bucket, after)
        if self._budget and (channel := re.match(r"/channels/(\d+)/messages", path)):
            self._budget.pause_chat(channel[1], after)

    def _close_bucket(self, bucket: str, seconds: float) -> None:
        now = asyncio.get_running_loop().time()
        if len(self._closed) > 1000:
            self._closed = {key: until for key, until in self._closed.items() if until > now}
        self._closed[bucket] = now + seconds

    def _map_api_error(self, status: int, headers: Any, payload: bytes, bucket: str) -> ChannelError:
        """An answer that is none, in our words."""
        try:
            told = orjson.loads(payload)
            code, words = int(told.get("code") or 0), str(told.get("message") or "")
        except (ValueError, AttributeError, TypeError):
            told, code, words = {}, 0, ""
        if status == 429 or code in _SLOWLY:
            after = float(told.get("retry_after") or headers.get("Retry-After") or 60.0)
            # Without `Via` it is not Discord itself but what stands before it, which bans the whole address.
            everywhere = status == 429 and (told.get("global") or "Via" not in headers)
            self._close_bucket("" if everywhere else bucket, after)
            return RateLimited("Discord", after)
        if status == 504:
            return OutcomeUnknown("a gateway gave up waiting (504)")
        if status >= 500 or not told:
            return TryLater(f"Discord answered {status}", 1.0)
        if status == 401 and code not in _CODES:
            return TryLater("Discord rejects the bot's token", 60.0)
        if status == 413 or code == 40005:
            return Refused("Discord says it is too large")
        kind = _CODES.get(code, Forbidden if status == 403 else Refused)
        return kind(f"Discord: {words} ({code or status}){_refused_fields(told)}")


def _bucket_key(method: str, path: str) -> str:
    """Discord counts by method, route and channel (or webhook): other ids in the path do not matter."""
    kept, _, rest = path.partition("?")[0].removeprefix("/").partition("/")
    major, _, route = rest.partition("/")
    return f"{method} {kept}/{major}/{_ID.sub('*', route)}"


def _refused_fields(told: dict[str, Any]) -> str:
    """Which field of a form was wrong: their names only, values may be a person's words."""
    errors = told.get("errors")
    return f" in {', '.join(map(str, errors))}" if isinstance(errors, dict) else ""
