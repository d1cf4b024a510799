"""Call the Bot API: addressed by thread, with its errors as channel errors."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import quote

import telegram
from telegram.error import BadRequest, ChatMigrated, Conflict, Forbidden, InvalidToken, TelegramError

from agent.messages import Thread
from channels.base import ChannelError, ChatGone, Refused, TokenRejected, TryLater
from channels.shared.reply_writer import MessageMissing
from channels.telegram import TelegramSettings
from channels.telegram.transport import AiohttpRequest, TransportError


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
            return TokenRejected("Telegram rejects the bot's token", 60.0)
        case Conflict():
            return PollConflict(error.message, 10.0)
        case ChatMigrated():
            return GroupMoved(str(error.new_chat_id))
        case Forbidden():
            return ChatGone(error.message)
        case BadRequest():
            text = error.message.lower()
            kind = next((kind for kind, known in _ERROR_TEXTS if any(part in text for part in known)), Refused)
            return kind(error.message)
    return Refused(error.message)


class _RawBot(telegram.Bot):
    """The SDK's bot with raw answers: building an object of each costs more than the call."""

    async def call(self, method: str, arguments: dict[str, Any], answer_seconds: float | None) -> Any:
        if answer_seconds is None:
            return await self._post(method, arguments)
        return await self._post(method, arguments, read_timeout=answer_seconds)


class TelegramApi:
    """The calls of one bot. Raises ChannelError."""

    def __init__(self, settings: TelegramSettings) -> None:
        base, token = settings.base_url.rstrip("/"), settings.token.reveal()
        self._file_url = f"{base}/file/bot{token}/"
        self._request = AiohttpRequest(proxy=settings.proxy, ca_file=settings.ca_file)
        try:
            self._bot = _RawBot(token, base_url=f"{base}/bot", request=self._request, get_updates_request=self._request)
        except TelegramError as error:  # an empty token
            raise map_api_error(error) from None
        self._supergroups: dict[str, str] = {}  # by the group that became one

    async def open(self) -> None:
        """Open the session. Raises Refused."""
        await self._request.initialize()

    async def close(self) -> None:
        """Close the session."""
        await self._request.shutdown()

    async def __call__(self, method: str, /, *, answer_seconds: float | None = None, **arguments: Any) -> Any:
        """Call a method; the server may be silent for `answer_seconds`."""
        try:
            return await self._bot.call(method, arguments, answer_seconds)
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

    def download(self, file_path: str) -> AsyncGenerator[bytes, None]:
        """Return the chunks of a file by the path that getFile gave. Raises TryLater."""
        return self._request.download(self._file_url + quote(file_path))


def _numeric_id(text: str) -> int | str:
    """Return an id as Telegram writes it; Telegram rejects any other text."""
    return int(text) if text.removeprefix("-").isdecimal() else text


class TypingActions:
    """The typing action of each thread, sent only when it does not show any more."""

    VISIBLE_SECONDS = 4.0  # at least, unless a message arrives (core.telegram.org/bots/api#sendchataction: 5 or less)

    def __init__(self, api: TelegramApi) -> None:
        self._api = api
        self._visible_until: dict[Thread, float] = {}

    async def show(self, thread: Thread) -> None:
        now = time.monotonic()
        if self._visible_until.get(thread, 0.0) > now:
            return
        if len(self._visible_until) > 1000:
            self._visible_until = {known: until for known, until in self._visible_until.items() if until > now}
        self._visible_until[thread] = now + self.VISIBLE_SECONDS
        try:
            await self._api.call_in_thread(thread, "sendChatAction", action="typing")
        except ChannelError:
            self.forget(thread)
            raise

    def forget(self, thread: Thread) -> None:
        """Note that a message of the bot ended the action."""
        self._visible_until.pop(thread, None)
