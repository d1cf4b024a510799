"""REST calls of Discord; refusals are raised as the errors of `channels.base`.

The SDK's own calls sleep while a bucket is empty or a 429 lasts, and repeat posts. Here each call is made once, and an
empty bucket raises TryLater at once, so that the rate limiter decides which call goes next.

Discord's numbers: calls a second of a bot (discord.com/developers/docs/topics/rate-limits#global-rate-limit).

Error texts of the probe and the readiness.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import nullcontext
from typing import Any, BinaryIO

import aiohttp
import orjson

from catalogue import N_
from channels.base import ChannelError, ChatGone, MayPass, OutcomeUnknown, Refused, TokenRejected, TryLater
from channels.discord import DiscordSettings
from channels.shared.caches import ExpiringDict
from channels.shared.http_client import HttpClient, RateLimited
from channels.shared.rate_limit import CallRate, Priority, RateLimiter
from channels.shared.reply_writer import MessageMissing

WINDOW_SECONDS = 1.06  # calls may arrive closer together than they were sent
BURST_MARGIN = 5.0  # over the setting `overall` in one window: 50 of 45, which is 47 a second in the long run


def account_window(overall: float) -> CallRate:
    """Return the limit of all calls with the token, scheduled or not."""
    calls = overall + BURST_MARGIN
    return CallRate(calls, WINDOW_SECONDS, calls, "all", sliding=True, checked=True)


TOKEN_REJECTED = N_("Discord rejects the bot's token: copy the right one from discord.com/developers, page Bot.")
INTENT_REFUSED = N_(
    "Discord refuses the Message Content Intent: switch it on at discord.com/developers, "
    "page Bot, Privileged Gateway Intents."
)
TOKEN_SHARED = N_("Another program is using this bot's token. Stop one of the two, then restart Fawn.")


log = logging.getLogger(__name__)

USER_AGENT = "DiscordBot (https://github.com/fawn, 1)"  # form: discord.com/developers/docs/reference#user-agent
NO_MENTIONS: dict[str, list[str]] = {"parse": []}  # `allowed_mentions` that notify nobody
NONCE_MARK = "f-"  # begins the nonces of every Fawn
_ID = re.compile(r"\d{5,}")


class Forbidden(ChatGone):
    """The bot lacks the permission for this call here (50001, 50013)."""


class ThreadArchived(Refused):
    """The thread is archived and must be reopened first (50083)."""


class ThreadExists(Refused):
    """The message already has a thread (160004)."""


class InteractionExpired(Refused):
    """The interaction can no longer be answered (10062, 10015, 50027)."""


class MemberUnknown(Refused):
    """The account is no member of the server (10007)."""


class AccountUnknown(Refused):
    """Discord has no account with this id (10013)."""


class ComponentsOnly(Refused):
    """The message consists of components, and so can have no `content` (50035)."""


class InteractionAnswered(InteractionExpired):
    """The interaction already has a response (40060)."""


# Codes of discord.com/developers/docs/topics/opcodes-and-status-codes#json
_CODES: dict[int, type[Refused]] = {
    10003: ChatGone,
    10004: ChatGone,
    10007: MemberUnknown,
    10008: MessageMissing,
    10013: AccountUnknown,
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
# Reasons of the code 50035 (…/docs/reference#error-messages): an edit would take the flag IS_COMPONENTS_V2 away
_COMPONENT_REASONS = ("MESSAGE_CANNOT_REMOVE_COMPONENTS_V2_FLAG", "MESSAGE_CANNOT_USE_LEGACY_FIELDS_WITH_COMPONENTS_V2")
_LIMIT_CODES = (
    20016,
    20028,
    20029,
    30046,
)  # limits of a channel, a server, and of edits to messages older than an hour


class DiscordApi(HttpClient):
    """The REST calls of one bot. Raises ChannelError; no error contains a token.

    `token_shared`: a second Fawn uses the token. Discord sends every event to both, and both would answer, so this
    process ignores all events from then on. Only certain signs count, because an operator's script may post with the
    token: a new interaction already has a response; or a message with a Fawn's nonce that is not in `nonces` is in the
    thread of a new mention, and this bot's account has opened that thread although this process has not.
    """

    def __init__(self, settings: DiscordSettings, rate_limiter: RateLimiter | None = None) -> None:
        super().__init__("Discord", settings.proxy, settings.ca_file, {"User-Agent": USER_AGENT})
        self._token = settings.token
        self._base_url = settings.base_url.rstrip("/")
        self._rate_limiter = rate_limiter
        self._closed_until: ExpiringDict[str, float] = ExpiringDict()  # bucket ("": all) → loop time of its reset
        self.token_shared = False
        self.nonces: deque[str] = deque(maxlen=2000)  # of the posts of this process

    async def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        files: Sequence[tuple[str, BinaryIO]] = (),
        interaction: bool = False,
    ) -> Any:
        """Make one call and return the JSON of the response. The path of an `interaction` contains its own token."""
        bucket = _bucket_key(method, path)
        closed_until = max(self._closed_until.get(bucket) or 0.0, self._closed_until.get("") or 0.0)
        if (left := closed_until - asyncio.get_running_loop().time()) > 0:
            raise TryLater("Discord's limit for this channel is used up", left)
        if self._rate_limiter and not interaction:
            await self._rate_limiter.count_call(priority=Priority.READ if method == "GET" else Priority.FINAL)
        headers = {} if interaction else {"Authorization": f"Bot {self._token.reveal()}"}
        if isinstance(body, dict) and "nonce" in body:
            self.nonces.append(body["nonce"])
        data: Any = None
        if files:
            data = aiohttp.FormData(quote_fields=False)
            data.add_field("payload_json", orjson.dumps(body).decode(), content_type="application/json")
            for number, (name, content) in enumerate(files):
                data.add_field(f"files[{number}]", content, filename=name, content_type="application/octet-stream")
        elif body is not None:
            data, headers["Content-Type"] = orjson.dumps(body), "application/json"
        with nullcontext() if interaction else self.token_state.watch():
            async with self.request(method, self._base_url + path, data=data, headers=headers) as answer:
                payload = await answer.read()
                self._note_bucket(bucket, path, answer.headers)
                if answer.status >= 300:
                    raise self._map_api_error(answer.status, answer.headers, payload, bucket)
        if self._rate_limiter and not interaction:
            self._rate_limiter.note_account_accepted()
        try:
            return orjson.loads(payload) if payload else None
        except ValueError:  # a proxy's page, or the login page of a network
            raise TryLater("the response is not Discord's", 10.0) from None

    async def edit_response(self, token: str, body: Any) -> Any:
        """Edit the response of an interaction; `token` is "application/token"."""
        return await self("PATCH", f"/webhooks/{token}/messages/@original", body, interaction=True)

    async def find_response(self, token: str) -> str:
        """Return the id of the message that is the response of an interaction. Raises InteractionExpired."""
        try:
            return str((await self("GET", f"/webhooks/{token}/messages/@original", interaction=True))["id"])
        except MessageMissing as error:
            raise InteractionExpired(str(error)) from None

    def download_file(self, url: str) -> AsyncGenerator[bytes, None]:
        """Return the bytes behind a link in chunks. Raises TryLater, and MessageMissing when the link has expired."""
        return self.download(url, _check_link)

    def report_shared_token(self, sign: str) -> None:
        """Note that a second program uses the token; `sign` is for the log."""
        if not self.token_shared:
            log.error("discord.second_instance sign=%s", sign)
        self.token_shared = True

    def _note_bucket(self, bucket: str, path: str, headers: Any) -> None:
        """Close an empty bucket: the next call in it would be a 429."""
        if headers.get("X-RateLimit-Remaining") != "0":
            return
        after = float(headers.get("X-RateLimit-Reset-After") or 0.0)
        self._close_bucket(bucket, after)
        if self._rate_limiter and (channel := re.match(r"/channels/(\d+)/messages", path)):
            self._rate_limiter.pause_chat(channel[1], after)

    def _close_bucket(self, bucket: str, seconds: float) -> None:
        self._closed_until.set(bucket, asyncio.get_running_loop().time() + seconds, seconds)

    def _map_api_error(self, status: int, headers: Any, payload: bytes, bucket: str) -> ChannelError:
        try:
            error = orjson.loads(payload)
            code, reason = int(error.get("code") or 0), str(error.get("message") or "")
        except (ValueError, AttributeError, TypeError):
            error, code, reason = {}, 0, ""
        if status == 429 or code in _LIMIT_CODES:
            after = float(error.get("retry_after") or headers.get("Retry-After") or 60.0)
            # A 429 without `Via` comes from Cloudflare in front of Discord, which bans the whole address.
            everywhere = status == 429 and (error.get("global") or "Via" not in headers)
            self._close_bucket("" if everywhere else bucket, after)
            if everywhere and self._rate_limiter:
                self._rate_limiter.note_account_refused(after)
            return RateLimited("Discord", after)
        if status == 504:
            return OutcomeUnknown("a gateway gave up waiting (504)")
        if status >= 500 or not error:
            return TryLater(f"Discord answered {status}", 1.0)
        if status == 401 and code not in _CODES:
            return TokenRejected("Discord rejects the bot's token", 60.0)
        if status == 413 or code == 40005:
            return Refused("Discord says it is too large")
        kind = _CODES.get(code, Forbidden if status == 403 else MayPass)
        if any(reason.encode() in payload for reason in _COMPONENT_REASONS):
            kind = ComponentsOnly
        return kind(f"Discord: {reason} ({code or status}){_refused_fields(error)}")


async def _check_link(answer: aiohttp.ClientResponse) -> None:
    if answer.status in (401, 403, 404):
        raise MessageMissing("the link of the file has expired")


def _bucket_key(method: str, path: str) -> str:
    """Return the rate limit bucket of a call: Discord counts by method, route and channel (or webhook)."""
    kind, _, rest = path.partition("?")[0].removeprefix("/").partition("/")
    major_id, _, route = rest.partition("/")
    return f"{method} {kind}/{major_id}/{_ID.sub('*', route)}"


def _refused_fields(error: dict[str, Any]) -> str:
    """Name the invalid fields of a form, without their values, which may be private."""
    errors = error.get("errors")
    return f" in {', '.join(map(str, errors))}" if isinstance(errors, dict) else ""
