"""Call the Bot API through python-telegram-bot: addressed by thread, with its errors as channel errors."""

from __future__ import annotations

import logging
import warnings
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import quote

import telegram
from telegram.error import BadRequest, ChatMigrated, Conflict, Forbidden, InvalidToken, TelegramError
from telegram.warnings import PTBUserWarning

from agent.messages import Thread
from channels.base import ChannelError, ChatGone, Refused, TokenRejected, TryLater
from channels.shared.http_client import HttpClient
from channels.shared.reply_writer import MessageMissing
from channels.telegram import TelegramSettings
from channels.telegram.transport import SdkTransport, TransportError

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
