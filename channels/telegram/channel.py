"""The Telegram channel: polling, readiness, replies, files."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import PurePath

import telegram

from agent.messages import Attachment, Thread
from catalogue import _
from channels.base import (
    NO_CATCH_UP,
    CatchUpSource,
    ChannelLimits,
    CommandInfo,
    OutgoingFile,
    Readiness,
    Receive,
    Refused,
    Reply,
    SentMessages,
)
from channels.shared.caches import TypingActions
from channels.shared.files import multipart_file_name, no_longer_available, too_large
from channels.shared.http_client import opened_file
from channels.shared.markdown import cut_units
from channels.shared.platform_channel import FilePost, FileRules, PlatformChannel
from channels.shared.rate_limit import RateLimiter, RateLimits, RateLimitScope
from channels.shared.reply_writer import ReplyWriter
from channels.shared.texts import REPEAT_MARK
from channels.telegram import TelegramSettings
from channels.telegram.api import TelegramApi
from channels.telegram.events import NAME
from channels.telegram.polling import Poller
from channels.telegram.reply import MAX_MESSAGE_UNITS, TelegramRenderer

log = logging.getLogger(__name__)

MAX_UPLOAD_BYTES = 50_000_000  # core.telegram.org/bots/api#sending-files
MAX_DOWNLOAD_BYTES = 20 << 20  # …#getfile
MAX_PHOTO_BYTES = 10_000_000
MAX_ALBUM_FILES = 10  # …#sendmediagroup: photos, or documents
MAX_CAPTION_UNITS = 1024  # UTF-16 units
MAX_COMMANDS = 100
MAX_TOPIC_CHARS = 128  # core.telegram.org/bots/api#editforumtopic
TYPING_VISIBLE_SECONDS = 4.0  # at least, unless a message arrives (…#sendchataction: 5 or less)
PHOTO_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp"})


class TelegramChannel(PlatformChannel):
    """One bot."""

    name = NAME
    limits = ChannelLimits(text_limit=MAX_MESSAGE_UNITS, upload=MAX_UPLOAD_BYTES, download=MAX_DOWNLOAD_BYTES)

    def __init__(self, settings: TelegramSettings) -> None:
        self._api = TelegramApi(settings)
        super().__init__(self._api)
        self._drafts, self._rich = settings.drafts, settings.rich_messages
        self._rate_limiter = RateLimiter(
            RateLimits(settings.per_chat, settings.burst, group_minute=settings.per_group, overall=settings.overall)
        )
        self._typing = TypingActions(TYPING_VISIBLE_SECONDS, self._api.show_typing)
        self._poller = Poller(
            self._api, self._typing, settings.poll_seconds, self._background, settings.account_seconds
        )

    async def listen(self, receive: Receive, catch_up: CatchUpSource = NO_CATCH_UP) -> None:
        await self._poller.run(receive)

    def _connection_readiness(self) -> Readiness:
        return self._poller.health.now

    def reply(self, thread: Thread, posts: SentMessages, *, to: str = "", asker: str = "") -> Reply:
        renderer = TelegramRenderer(self._api, thread, posts.key, to, self._typing, rich=self._rich)
        drafts = self._drafts and not _is_group(thread)
        return self._add_reply(ReplyWriter(renderer, posts, self._rate_limit_scope(thread), drafts=drafts))

    def spell_command(self, thread: Thread, command: str) -> str:
        """In a group, a command without the bot's name may be for another bot, and is not always delivered."""
        name, space, words = command.partition(" ")
        at = f"@{self._poller.username}" if _is_group(thread) and self._poller.username else ""
        return f"/{name}{at}{space}{words}"

    async def announce(self, commands: Sequence[CommandInfo]) -> None:
        spelled = [replace(command, name=command.name.replace("-", "_")) for command in commands]
        accepted = {
            command.name: {"command": command.name, "description": _command_description(command)}
            for command in reversed(spelled)  # of two that are spelled alike, the first
            if re.fullmatch(r"[a-z0-9_]{1,32}", command.name)
        }
        await self._poller.set_commands([*reversed(accepted.values())][:MAX_COMMANDS])

    def message_link(self, thread: Thread, message: str) -> str:
        """Return the address of a message in a supergroup; other chats have none."""
        chat = thread.chat.removeprefix("-100")
        return f"https://t.me/c/{chat}/{message}" if chat != thread.chat else ""

    async def open_private_chat(self, person: str, near: Thread) -> Thread:
        """Return the private chat with a person: its id is theirs (core.telegram.org/bots/api#chat).

        Who never wrote to the bot there cannot be reached: posting is refused.
        """
        return Thread(NAME, near.workspace, person)

    async def set_title(self, thread: Thread, title: str) -> None:
        """Rename a topic of a private chat: people open these by writing, and Telegram names them by the text.

        Topics of groups were named by people.
        """
        if thread.topic and not _is_group(thread):
            await self._api.call_in_thread(thread, "editForumTopic", name=title[:MAX_TOPIC_CHARS])

    # ------------------------------------------------------------ files

    def _file_rules(self, thread: Thread) -> FileRules:
        return FileRules(MAX_UPLOAD_BYTES, MAX_ALBUM_FILES, _media_kind)

    async def _post_files(self, thread: Thread, post: FilePost) -> str:
        """Post an album, or one file: as a photo where Telegram accepts it, else as a document."""
        kind, mark = _media_kind(post.files[0]), f"{_(REPEAT_MARK)} " if post.is_repeat else ""
        if len(post.files) == 1 and kind == "photo":
            try:
                return await self._send_media(thread, post.files, kind, mark)
            except Refused as error:
                log.info("telegram.photo thread=%s reason=%s", thread, error)
                kind = "document"
        return await self._send_media(thread, post.files, kind, mark)

    async def _send_media(self, thread: Thread, files: Sequence[OutgoingFile], kind: str, mark: str) -> str:
        """Return the id of the first message. `mark` begins the first caption."""
        captions = [cut_units(file.caption, MAX_CAPTION_UNITS) for file in files]
        captions[0] = cut_units(mark + files[0].caption, MAX_CAPTION_UNITS)
        async with AsyncExitStack() as opened:
            parts = []
            for file in files:
                content = await opened.enter_async_context(opened_file(file.path))
                name = multipart_file_name(file)
                parts.append(telegram.InputFile(content, filename=name, attach=len(files) > 1, read_file_handle=False))
            if len(files) == 1:
                arguments = {kind: parts[0], **({"caption": captions[0]} if captions[0] else {})}
                sent = [await self._api.call_in_thread(thread, f"send{kind.title()}", **arguments)]
            else:
                make = telegram.InputMediaPhoto if kind == "photo" else telegram.InputMediaDocument
                media = [make(part, caption=text or None) for part, text in zip(parts, captions, strict=True)]
                sent = await self._api.call_in_thread(thread, "sendMediaGroup", media=media)
        self._typing.forget(thread)
        return str(sent[0]["message_id"])

    async def _open_download(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        try:
            path = str((await self._api("getFile", file_id=attachment.ref))["file_path"])
        except Refused as error:
            if "too big" in str(error).lower():
                raise too_large(MAX_DOWNLOAD_BYTES) from None
            raise no_longer_available("Telegram") from None
        return self._api.download_file(path)

    def _rate_limit_scope(self, thread: Thread) -> RateLimitScope:
        return RateLimitScope(self._rate_limiter, thread.chat, group=_is_group(thread))


def _command_description(command: CommandInfo) -> str:
    arguments = f" ({command.words})" if command.words else ""
    return f"{command.help}{arguments}"[:256] or "…"


def _media_kind(file: OutgoingFile) -> str:
    is_photo = PurePath(file.name).suffix.lower() in PHOTO_SUFFIXES and file.size <= MAX_PHOTO_BYTES
    return "photo" if is_photo else "document"


def _is_group(thread: Thread) -> bool:
    return thread.chat.startswith("-")
