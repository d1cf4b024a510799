"""Calls of the Bot API: addressed by thread, refused in the words of channels.base."""

from __future__ import annotations

import time
from typing import Any

import telegram
from telegram.error import BadRequest, ChatMigrated, Conflict, Forbidden, InvalidToken, TelegramError

from agent.messages import Thread
from channels.base import ChannelError, ChatGone, OutcomeUnknown, Refused, TryLater
from channels.shared.reply_writer import MessageMissing
from channels.telegram.transport import Flood, NoAnswer, NotSent, ServerFault


class NotModified(Refused):
    """The message shows this already."""


class EntitiesRefused(Refused):
    """The entities are not to Telegram's taste: the text alone would be."""


# Telegram tells these apart by words only (tdlib/telegram-bot-api, Client.cpp).
_WORDS: tuple[tuple[type[Refused], tuple[str, ...]], ...] = (
    (NotModified, ("message is not modified",)),
    (
        MessageMissing,
        ("message to edit not found", "message to delete not found", "message_id_invalid", "can't be edited"),
    ),
    (EntitiesRefused, ("can't parse", "entity", "entities", "wrong http url")),
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
    """The SDK's error in our words."""
    match error:
        case Flood():
            return TryLater("Telegram asked to wait", error.seconds)
        case NotSent() | ServerFault():
            return TryLater(f"Telegram: {error.message}", 1.0)
        case NoAnswer():
            return OutcomeUnknown(f"Telegram: {error.message}")
        case InvalidToken():
            return TryLater("Telegram rejects the bot's token", 60.0)
        case Conflict():
            return TryLater("another program uses the bot's token", 10.0)
        case Forbidden():
            return ChatGone(error.message)
        case BadRequest():
            words = error.message.lower()
            kind = next((kind for kind, known in _WORDS if any(text in words for text in known)), Refused)
            return kind(error.message)
    return Refused(error.message)


class RawBot(telegram.Bot):
    """The SDK's bot, with answers as the server gave them: building an object of each costs more than the call."""

    async def call(self, method: str, arguments: dict[str, Any], *, silence: float | None = None) -> Any:
        """One method. `silence` is how many seconds the server may say nothing. Raises TelegramError."""
        if silence is None:
            return await self._post(method, arguments)
        return await self._post(method, arguments, read_timeout=silence)


class TelegramApi:
    """The calls of one bot. Raises ChannelError."""

    def __init__(self, api: RawBot) -> None:
        self._api = api
        self._moved: dict[str, str] = {}  # group → the supergroup it became

    async def __call__(self, method: str, /, **arguments: Any) -> Any:
        """A method that concerns no chat."""
        try:
            return await self._api.call(method, arguments)
        except TelegramError as error:
            raise map_api_error(error) from None

    async def call_in_thread(self, thread: Thread, method: str, /, **arguments: Any) -> Any:
        """A method on a thread's chat and topic; goes on in the supergroup when the group became one."""
        address: dict[str, Any] = {"message_thread_id": _numeric_id(thread.topic)} if thread.topic else {}
        for _ in range(2):
            address["chat_id"] = _numeric_id(self._moved.get(thread.chat, thread.chat))
            try:
                return await self._api.call(method, address | arguments)
            except ChatMigrated as error:
                self._moved[thread.chat] = str(error.new_chat_id)
            except TelegramError as error:
                raise map_api_error(error) from None
        raise ChatGone("the group keeps moving")


def _numeric_id(text: str) -> int | str:
    """An id as Telegram writes it; what is none is left for Telegram to refuse."""
    return int(text) if text.removeprefix("-").isdecimal() else text


class TypingActions:
    """The typing action of each thread, sent only where it does not show any more."""

    LASTS = 4.0  # seconds at least, unless a message comes (core.telegram.org/bots/api#sendchataction: 5 or less)

    def __init__(self, calls: TelegramApi) -> None:
        self._calls = calls
        self._shows: dict[Thread, float] = {}  # until when

    async def show(self, thread: Thread) -> None:
        now = time.monotonic()
        if self._shows.get(thread, 0.0) > now:
            return
        if len(self._shows) > 1000:
            self._shows = {known: until for known, until in self._shows.items() if until > now}
        self._shows[thread] = now + self.LASTS
        try:
            await self._calls.call_in_thread(thread, "sendChatAction", action="typing")
        except ChannelError:
            self.clear(thread)
            raise

    def clear(self, thread: Thread) -> None:
        """A message of the bot takes the action away."""
        self._shows.pop(thread, None)
