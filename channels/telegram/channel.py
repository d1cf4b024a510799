"""The Telegram channel itself: polling, readiness, replies, files."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import PurePath
from typing import Any, BinaryIO
from urllib.parse import quote
from weakref import WeakSet

import telegram
from telegram.error import TelegramError

from agent.messages import Attachment, Message, Thread
from channels.base import (
    NO_CATCH_UP,
    CatchUpSource,
    ChannelLimits,
    CommandInfo,
    OutcomeUnknown,
    OutgoingFile,
    Readiness,
    Receive,
    Refused,
    Reply,
    SentMessages,
    TryLater,
    first_sent_message,
)
from channels.shared import file_limits
from channels.shared.markdown_split import utf16_length
from channels.shared.rate_limit import Priority, RateLimiter, RateLimits, RateLimitScope
from channels.shared.reply_writer import ReplyWriter, post_once
from channels.shared.texts import REPEAT_MARK
from channels.telegram import TelegramSettings
from channels.telegram.api import RawBot, TelegramApi, TypingActions, map_api_error
from channels.telegram.events import NAME
from channels.telegram.polling import Poller
from channels.telegram.reply import MAX_MESSAGE_UNITS, TelegramMessage, TelegramRenderer
from channels.telegram.transport import AiohttpRequest

log = logging.getLogger(__name__)

MAX_UPLOAD_BYTES = 50_000_000  # bytes (core.telegram.org/bots/api#sending-files)
MAX_DOWNLOAD_BYTES = 20 << 20  # bytes (…#getfile)
MAX_PHOTO_BYTES = 10_000_000  # bytes
MAX_CAPTION_UNITS = 1024  # UTF-16 units
PICTURE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp"})


class TelegramChannel:
    """One bot."""

    name = NAME
    limits = ChannelLimits(text_limit=MAX_MESSAGE_UNITS, upload=MAX_UPLOAD_BYTES, download=MAX_DOWNLOAD_BYTES)
    window = 0.2

    def __init__(self, settings: TelegramSettings) -> None:
        logging.getLogger("telegram").setLevel(logging.INFO)  # its debug lines carry the token
        base, token = settings.base_url.rstrip("/"), settings.token.reveal()
        self._files = f"{base}/file/bot{token}/"
        self._request = AiohttpRequest(proxy=settings.proxy, ca_file=settings.ca_file)
        self._api = RawBot(
            token,
            base_url=f"{base}/bot",
            base_file_url=f"{base}/file/bot",
            request=self._request,
            get_updates_request=self._request,
        )
        self._calls = TelegramApi(self._api)
        self._drafts = settings.drafts
        self._budget = RateLimiter(
            RateLimits(settings.per_chat, settings.burst, group_minute=settings.per_group, overall=settings.overall)
        )
        self._typing = TypingActions(self._calls)
        self._poll = Poller(self._api, self._calls, self._typing, settings.poll_seconds)
        self._writers: WeakSet[ReplyWriter[TelegramMessage]] = WeakSet()

    async def open(self) -> None:
        """Get ready to make calls."""
        await self._request.initialize()

    async def close(self) -> None:
        """Stop every reply and hang up."""
        await asyncio.gather(*(writer.close() for writer in list(self._writers)))
        await self._request.shutdown()

    async def identify(self) -> dict[str, Any]:
        """The bot's own account. Raises TelegramError."""
        user: dict[str, Any] = await self._api.call("getMe", {})
        return user

    async def listen(self, receive: Receive, past: CatchUpSource = NO_CATCH_UP) -> None:
        await self._poll.run(receive)

    def readiness(self) -> Readiness:
        return self._poll.readiness()

    def reply(self, thread: Thread, posts: SentMessages, *, to: str = "", asker: str = "") -> Reply:
        surface = TelegramRenderer(self._calls, thread, posts.key, to, self._typing)
        drafts = self._drafts and not _is_group(thread)
        writer = ReplyWriter(surface, posts, self._rate_limit_scope(thread), drafts=drafts)
        self._writers.add(writer)
        return writer

    async def enrich(self, message: Message, earlier: int) -> Message:
        return message

    async def announce(self, commands: Sequence[CommandInfo]) -> None:
        usable = [command for command in commands if re.fullmatch(r"[a-z0-9_]{1,32}", command.name)][:100]
        await self._poll.set_commands(
            [{"command": command.name, "description": _command_description(command)} for command in usable]
        )

    # ------------------------------------------------------------ files

    async def send_file(self, thread: Thread, file: OutgoingFile, posts: SentMessages) -> None:
        known = first_sent_message(posts)
        if known and known.id:
            return
        file_limits.check_outgoing_file(file, MAX_UPLOAD_BYTES, "Telegram")
        caption = (f"{REPEAT_MARK} " if known else "") + file.caption
        while utf16_length(caption) > MAX_CAPTION_UNITS:
            caption = caption[: MAX_CAPTION_UNITS - 1 - max(0, utf16_length(caption) - len(caption))].rstrip() + "…"
        place = self._rate_limit_scope(thread)
        await place.acquire(Priority.FINAL)
        try:
            await post_once(posts, lambda: self._upload_file(thread, file, caption))
        except TryLater as error:
            place.pause(error.after)
            raise

    async def _upload_file(self, thread: Thread, file: OutgoingFile, caption: str) -> str:
        """As a picture where it is one, else (or if Telegram does not like it) as a document."""
        name = file_limits.multipart_file_name(file)
        if PurePath(name).suffix.lower() in PICTURE_SUFFIXES and file.size <= MAX_PHOTO_BYTES:
            try:
                return await self._send_media(thread, file, "sendPhoto", "photo", name, caption)
            except TryLater:
                raise
            except Refused as error:
                log.info("telegram.photo thread=%s reason=%s", thread, error)
        return await self._send_media(thread, file, "sendDocument", "document", name, caption)

    async def _send_media(
        self, thread: Thread, file: OutgoingFile, method: str, field: str, name: str, caption: str
    ) -> str:
        handle: BinaryIO = await asyncio.to_thread(file.path.open, "rb")
        try:
            upload = telegram.InputFile(handle, filename=name, read_file_handle=False)
            more = {"caption": caption} if caption else {}
            message = await self._calls.call_in_thread(thread, method, **{field: upload}, **more)
        finally:
            await asyncio.to_thread(handle.close)
        self._typing.clear(thread)
        return str(message["message_id"])

    def fetch(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        return file_limits.limit_chunks(MAX_DOWNLOAD_BYTES, attachment, self._download_chunks(attachment))

    async def _download_chunks(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        try:
            path = str((await self._calls("getFile", file_id=attachment.ref))["file_path"])
        except Refused as error:
            if "too big" in str(error).lower():
                raise file_limits.too_large(MAX_DOWNLOAD_BYTES) from None
            raise Refused("is no longer available on Telegram") from None
        try:
            async with aclosing(self._request.download(self._files + quote(path))) as chunks:
                async for chunk in chunks:
                    yield chunk
        except TelegramError as error:
            told = map_api_error(error)
            raise (TryLater(str(told)) if isinstance(told, OutcomeUnknown) else told) from None

    # ------------------------------------------------------------ parts

    def _rate_limit_scope(self, thread: Thread) -> RateLimitScope:
        return RateLimitScope(self._budget, thread.chat, group=_is_group(thread))


def _command_description(command: CommandInfo) -> str:
    words = f" ({command.words})" if command.words else ""
    return f"{command.help}{words}"[:256] or "…"


def _is_group(thread: Thread) -> bool:
    return thread.chat.startswith("-")
