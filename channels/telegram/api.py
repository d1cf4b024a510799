"""Call the Bot API through python-telegram-bot: addressed by thread, with its errors as channel errors.

Run python-telegram-bot over the channels' HTTP client, with errors by what the server received.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import AsyncGenerator, Mapping
from typing import Any
from urllib.parse import quote

import aiohttp
import orjson
import telegram
from telegram.error import BadRequest, ChatMigrated, Conflict, Forbidden, InvalidToken, NetworkError, TelegramError
from telegram.request import BaseRequest, RequestData
from telegram.warnings import PTBUserWarning

from agent.messages import Thread
from channels.base import ChannelError, ChatGone, MayPass, OutcomeUnknown, Refused, TokenRejected, TryLater
from channels.shared.http_client import (
    CALL_TIMEOUT,
    LONG_POLL,
    HttpClient,
    RateLimited,
    call_timeout,
    retry_after_seconds,
)
from channels.shared.reply_writer import MessageMissing
from channels.telegram import TelegramSettings

_REJECTED = "Telegram rejects the bot's token"


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
            with self._http.token_state.watch():
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
    if status == 401:  # a method that the server does not know is a 404, as is a token of another form
        raise TokenRejected(_REJECTED, 60.0)
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


logging.getLogger("telegram.Bot").setLevel(logging.WARNING)  # its debug lines contain the token and messages
# The SDK's typed methods build an object of each answer, which costs more than the call.
warnings.filterwarnings("ignore", r"Please use 'Bot\.", PTBUserWarning)


class NotModified(Refused):
    """The message shows this already."""


class GroupMoved(ChatGone):
    """The group became the supergroup `chat`."""

    def __init__(self, chat: str) -> None:
        super().__init__("the group became a supergroup")
        self.chat = chat


class PollConflict(TryLater):
    """Another program polls for the bot, or a webhook receives its updates."""


# Telegram distinguishes these only by their text (tdlib/telegram-bot-api, Client.cpp).
_ERROR_TEXTS: tuple[tuple[type[Refused], tuple[str, ...]], ...] = (
    (NotModified, ("message is not modified",)),
    (
        MessageMissing,
        ("message to edit not found", "message to delete not found", "message_id_invalid", "can't be edited"),
    ),
    (
        ChatGone,
        (
            "chat not found",
            "thread not found",
            "topic_deleted",
            "bot was blocked",
            "bot was kicked",
            "bot is not a member",
            "user is deactivated",
            "group chat was deactivated",
            "chat_write_forbidden",
            "not enough rights to send text",
            "have no rights to send a message",
            "peer_id_invalid",
        ),
    ),
)


def map_api_error(error: TelegramError) -> ChannelError:
    """Return the channel error of an SDK error."""
    match error:
        case TransportError():
            return error.reason
        case InvalidToken():
            return TokenRejected(_REJECTED, 60.0)
        case Conflict():
            return PollConflict(error.message, 10.0)
        case ChatMigrated():
            return GroupMoved(str(error.new_chat_id))
        case Forbidden():
            return ChatGone(error.message)
        case BadRequest():
            text = error.message.lower()
            kind = next((kind for kind, known in _ERROR_TEXTS if any(part in text for part in known)), MayPass)
            return kind(error.message)
    return MayPass(error.message)


class TelegramApi(HttpClient):
    """The calls of one bot. Raises ChannelError; no error contains a URL, because the token is part of it."""

    def __init__(self, settings: TelegramSettings) -> None:
        super().__init__("Telegram", settings.proxy, settings.ca_file)
        base, token = settings.base_url.rstrip("/"), settings.token.reveal()
        transport = SdkTransport(self)
        try:
            self._bot = telegram.Bot(token, base_url=f"{base}/bot", request=transport, get_updates_request=transport)
        except TelegramError as error:  # an empty token
            raise map_api_error(error) from None
        self._file_url = f"{base}/file/bot{token}/"
        self._supergroups: dict[str, str] = {}  # by the group that became one

    async def __call__(self, method: str, /, *, answer_seconds: float | None = None, **arguments: Any) -> Any:
        """Call a method; the server may be silent for `answer_seconds`."""
        timeout = SdkTransport.DEFAULT_NONE if answer_seconds is None else answer_seconds
        try:
            return await self._bot.do_api_request(method, arguments, read_timeout=timeout)
        except TelegramError as error:
            raise map_api_error(error) from None

    async def call_in_thread(self, thread: Thread, method: str, /, **arguments: Any) -> Any:
        """Call a method for a thread's chat and topic, or for the supergroup that the group became."""
        if thread.topic:
            arguments["message_thread_id"] = _numeric_id(thread.topic)
        for _ in range(2):
            arguments["chat_id"] = _numeric_id(self._supergroups.get(thread.chat, thread.chat))
            try:
                return await self(method, **arguments)
            except GroupMoved as error:
                self._supergroups[thread.chat] = error.chat
        raise ChatGone("the group moved twice")

    async def show_typing(self, thread: Thread) -> None:
        await self.call_in_thread(thread, "sendChatAction", action="typing")

    def download_file(self, file_path: str) -> AsyncGenerator[bytes, None]:
        """Return the chunks of a file by the path that getFile gave. Raises TryLater."""
        return self.download(self._file_url + quote(file_path))


def _numeric_id(text: str) -> int | str:
    """Return an id as Telegram writes it; Telegram rejects any other text."""
    return int(text) if text.removeprefix("-").isdecimal() else text
