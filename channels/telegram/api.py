"""Call the Bot API: addressed by thread, with its errors as channel errors.

Fawn makes the calls itself: the SDK's objects of each answer cost more than the call, and its errors do not tell
whether the server may have processed it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any, BinaryIO
from urllib.parse import quote

import aiohttp
import orjson

from agent.messages import Thread
from channels.base import ChannelError, ChatGone, OutcomeUnknown, Refused, TokenRejected, TryLater
from channels.shared.http_client import HttpClient, RateLimited, call_timeout, retry_after_seconds
from channels.shared.reply_writer import MessageMissing
from channels.telegram import TelegramSettings


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


class TelegramApi(HttpClient):
    """The calls of one bot. Raises ChannelError; no error contains a URL, because the token is part of it."""

    def __init__(self, settings: TelegramSettings) -> None:
        super().__init__("Telegram", settings.proxy, settings.ca_file)
        base, token = settings.base_url.rstrip("/"), settings.token.reveal()
        self._method_url = f"{base}/bot{token}/"
        self._file_url = f"{base}/file/bot{token}/"
        self._supergroups: dict[str, str] = {}  # by the group that became one

    async def __call__(
        self,
        method: str,
        /,
        *,
        answer_seconds: float | None = None,
        file: tuple[str, str, BinaryIO] | None = None,
        **arguments: Any,
    ) -> Any:
        """Call a method; the server may be silent for `answer_seconds`. `file` is (field, name, content)."""
        options: dict[str, Any] = {"timeout": call_timeout(answer_seconds)} if answer_seconds is not None else {}
        if file:
            options["data"] = _make_form(file, arguments)
        elif arguments:
            options["data"], options["headers"] = orjson.dumps(arguments), {"Content-Type": "application/json"}
        async with self.request("POST", self._method_url + method, **options) as answer:
            return _parse_answer(answer.status, await answer.read(), answer.headers)

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


def _make_form(file: tuple[str, str, BinaryIO], arguments: Mapping[str, Any]) -> aiohttp.FormData:
    form = aiohttp.FormData(quote_fields=False)
    for key, value in arguments.items():
        form.add_field(key, value if isinstance(value, str) else orjson.dumps(value).decode())
    field, name, content = file
    form.add_field(field, content, filename=name, content_type="application/octet-stream")
    return form


def _parse_answer(status: int, payload: bytes, headers: Mapping[str, str]) -> Any:
    """Return the result of a call. Raises the channel error of any other answer."""
    answer = _parse_json(payload)
    parameters: Mapping[str, Any] = answer.get("parameters") or {}  # core.telegram.org/bots/api#responseparameters
    if status == 429:
        raise RateLimited("Telegram", float(parameters.get("retry_after") or retry_after_seconds(headers)))
    if status == 504:
        raise OutcomeUnknown("Telegram's gateway timed out (504)")
    if status >= 500:
        raise TryLater(f"Telegram answered {status}")
    if status < 300:
        if "result" not in answer:  # such as a proxy's page
            raise TryLater("the answer is not from Telegram")
        return answer["result"]
    raise _map_api_error(status, str(answer.get("description") or f"status {status}"), parameters)


def _map_api_error(status: int, reason: str, parameters: Mapping[str, Any]) -> ChannelError:
    if group := parameters.get("migrate_to_chat_id"):
        return GroupMoved(str(group))
    match status:
        case 401 | 404:
            return TokenRejected("Telegram rejects the bot's token", 60.0)
        case 403:
            return ChatGone(reason)
        case 409:
            return PollConflict(reason, 10.0)
    text = reason.lower()
    return next((kind for kind, known in _ERROR_TEXTS if any(part in text for part in known)), Refused)(reason)


def _parse_json(payload: bytes) -> Mapping[str, Any]:
    """Parse JSON, also with half a surrogate pair, which orjson rejects: it must not stop all updates."""
    try:
        try:
            parsed = orjson.loads(payload)
        except ValueError:
            parsed = orjson.loads(json.dumps(json.loads(payload), ensure_ascii=False).encode("utf-8", "replace"))
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
