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

from agent.conversation import Attachment, Message, Thread
from channels.base import (
    NO_PAST,
    CommandInfo,
    Limits,
    OutFile,
    Past,
    Posts,
    Readiness,
    Receive,
    Refused,
    Reply,
    TryLater,
    Unknown,
    first_post,
)
from channels.shared import file_limits
from channels.shared.markdown_split import utf16
from channels.shared.rate_limit import Budget, Place, Priority, Rates
from channels.shared.reply_writer import Writer, post_once
from channels.shared.texts import REPEAT
from channels.telegram import Settings
from channels.telegram.api import Api, Calls, Typing, translated
from channels.telegram.events import NAME
from channels.telegram.polling import Poll
from channels.telegram.reply import LIMIT, Part, Surface
from channels.telegram.transport import AiohttpRequest

log = logging.getLogger(__name__)

UPLOAD = 50_000_000  # bytes (core.telegram.org/bots/api#sending-files)
DOWNLOAD = 20 << 20  # bytes (…#getfile)
PHOTO = 10_000_000  # bytes
CAPTION = 1024  # UTF-16 units
PICTURES = frozenset({".png", ".jpg", ".jpeg", ".webp"})


class Telegram:
    """One bot."""

    name = NAME
    limits = Limits(text=LIMIT, upload=UPLOAD, download=DOWNLOAD)
    window = 0.2

    def __init__(self, settings: Settings) -> None:
        logging.getLogger("telegram").setLevel(logging.INFO)  # its debug lines carry the token
        base, token = settings.base_url.rstrip("/"), settings.token.reveal()
        self._files = f"{base}/file/bot{token}/"
        self._request = AiohttpRequest(proxy=settings.proxy, ca_file=settings.ca_file)
        self._api = Api(
            token,
            base_url=f"{base}/bot",
            base_file_url=f"{base}/file/bot",
            request=self._request,
            get_updates_request=self._request,
        )
        self._calls = Calls(self._api)
        self._drafts = settings.drafts
        self._budget = Budget(
            Rates(settings.per_chat, settings.burst, group_minute=settings.per_group, overall=settings.overall)
        )
        self._typing = Typing(self._calls)
        self._poll = Poll(self._api, self._calls, self._typing, settings.poll_seconds)
        self._writers: WeakSet[Writer[Part]] = WeakSet()

    async def open(self) -> None:
        """Get ready to make calls."""
        await self._request.initialize()

    async def close(self) -> None:
        """Stop every reply and hang up."""
        await asyncio.gather(*(writer.close() for writer in list(self._writers)))
        await self._request.shutdown()

    async def whoami(self) -> dict[str, Any]:
        """The bot's own account. Raises TelegramError."""
        user: dict[str, Any] = await self._api.call("getMe", {})
        return user

    async def listen(self, receive: Receive, past: Past = NO_PAST) -> None:
        await self._poll.run(receive)

    def readiness(self) -> Readiness:
        return self._poll.readiness()

    def reply(self, thread: Thread, posts: Posts, *, to: str = "", asker: str = "") -> Reply:
        surface = Surface(self._calls, thread, posts.key, to, self._typing)
        drafts = self._drafts and not _group(thread)
        writer = Writer(surface, posts, self._place(thread), drafts=drafts)
        self._writers.add(writer)
        return writer

    async def enrich(self, message: Message, earlier: int) -> Message:
        return message

    async def announce(self, commands: Sequence[CommandInfo]) -> None:
        usable = [command for command in commands if re.fullmatch(r"[a-z0-9_]{1,32}", command.name)][:100]
        await self._poll.announce(
            [{"command": command.name, "description": _description(command)} for command in usable]
        )

    # ------------------------------------------------------------ files

    async def send_file(self, thread: Thread, file: OutFile, posts: Posts) -> None:
        known = first_post(posts)
        if known and known.id:
            return
        file_limits.check(file, UPLOAD, "Telegram")
        caption = (f"{REPEAT} " if known else "") + file.caption
        while utf16(caption) > CAPTION:
            caption = caption[: CAPTION - 1 - max(0, utf16(caption) - len(caption))].rstrip() + "…"
        place = self._place(thread)
        await place.take(Priority.FINAL)
        try:
            await post_once(posts, lambda: self._upload(thread, file, caption))
        except TryLater as error:
            place.close(error.after)
            raise

    async def _upload(self, thread: Thread, file: OutFile, caption: str) -> str:
        """As a picture where it is one, else (or if Telegram does not like it) as a document."""
        name = file_limits.plain_name(file)
        if PurePath(name).suffix.lower() in PICTURES and file.size <= PHOTO:
            try:
                return await self._send(thread, file, "sendPhoto", "photo", name, caption)
            except TryLater:
                raise
            except Refused as error:
                log.info("telegram.photo thread=%s reason=%s", thread, error)
        return await self._send(thread, file, "sendDocument", "document", name, caption)

    async def _send(self, thread: Thread, file: OutFile, method: str, field: str, name: str, caption: str) -> str:
        handle: BinaryIO = await asyncio.to_thread(file.path.open, "rb")
        try:
            upload = telegram.InputFile(handle, filename=name, read_file_handle=False)
            more = {"caption": caption} if caption else {}
            message = await self._calls.into(thread, method, **{field: upload}, **more)
        finally:
            await asyncio.to_thread(handle.close)
        self._typing.ended(thread)
        return str(message["message_id"])

    def fetch(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        return file_limits.within(DOWNLOAD, attachment, self._download(attachment))

    async def _download(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        try:
            path = str((await self._calls("getFile", file_id=attachment.ref))["file_path"])
        except Refused as error:
            if "too big" in str(error).lower():
                raise file_limits.over(DOWNLOAD) from None
            raise Refused("is no longer available on Telegram") from None
        try:
            async with aclosing(self._request.download(self._files + quote(path))) as chunks:
                async for chunk in chunks:
                    yield chunk
        except TelegramError as error:
            told = translated(error)
            raise (TryLater(str(told)) if isinstance(told, Unknown) else told) from None

    # ------------------------------------------------------------ parts

    def _place(self, thread: Thread) -> Place:
        return Place(self._budget, thread.chat, group=_group(thread))


def _description(command: CommandInfo) -> str:
    words = f" ({command.words})" if command.words else ""
    return f"{command.help}{words}"[:256] or "…"


def _group(thread: Thread) -> bool:
    return thread.chat.startswith("-")
