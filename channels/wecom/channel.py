"""Connect one robot of WeCom: events, readiness, replies, files."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import math
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from agent.messages import Attachment, Kind, Message, Thread
from catalogue import _
from channels.base import (
    NO_CATCH_UP,
    CatchUpSource,
    ChannelLimits,
    OutgoingFile,
    Receipt,
    Receive,
    Refused,
    Reply,
    SentMessages,
    StateStore,
)
from channels.shared import files
from channels.shared.early_files import EarlyFiles, name_of
from channels.shared.http_client import HttpClient, opened_file
from channels.shared.platform_channel import FilePost
from channels.shared.posts import IDEMPOTENT_POSTS
from channels.shared.rate_limit import MethodLimits, RateLimiter, RateLimits
from channels.shared.reply_writer import ReplyWriter
from channels.shared.robot_chats import RobotAccount, RobotChannel
from channels.shared.texts import ANSWERED, REPEAT_MARK, choice_line, text_for
from channels.wecom import NAME, PUBLIC_URL, WeComSettings
from channels.wecom.connection import UPDATE_CARD, WeComConnection
from channels.wecom.events import parse_callback
from channels.wecom.files import EncryptedFiles
from channels.wecom.reply import (
    MAX_TEXT_BYTES,
    POST,
    POST_LIMITS,
    SEAL_SECONDS,
    PacedScope,
    WeComRenderer,
    answered_card,
)

MAX_UPLOAD_BYTES = 20 << 20  # developer.work.weixin.qq.com/document/path/101463
MAX_IMAGE_BYTES = 10 << 20
MIN_UPLOAD_BYTES = 5
MAX_DOWNLOAD_BYTES = 100 << 20  # ours: WeCom names 100 chunks of 512 KB for uploads, and none for files of people
CHUNK_BYTES = 512 << 10
FILE_SECONDS = 300.0  # for which WeCom keeps a file of a person (…/100719)
FRAME_BURST = 3
IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg"})


class WeComChannel(RobotChannel):
    """One robot."""

    name = NAME
    seal_seconds = SEAL_SECONDS
    early_seconds = 20.0  # for which a turn may wait until its files are fetched early
    posts_by_listening = True
    limits = ChannelLimits(MAX_TEXT_BYTES, MAX_UPLOAD_BYTES, MAX_DOWNLOAD_BYTES, mentions=False)

    def __init__(self, settings: WeComSettings) -> None:
        self._settings = settings
        http = HttpClient("WeCom", settings.proxy, settings.ca_file)
        self._line = WeComConnection(settings, http)
        language = "zh" if settings.gateway_url == PUBLIC_URL else ""
        super().__init__(http, self._line, RobotAccount(NAME, settings.bot_id, settings.name, language))
        self._files = EncryptedFiles(http)
        self._early = EarlyFiles(self._files.download, MAX_DOWNLOAD_BYTES, FILE_SECONDS, self._files.names)
        frames = RateLimits(settings.per_reply, FRAME_BURST, overall=settings.overall).limits_of("", group=False)
        self._rate_limiter = RateLimiter(MethodLimits({"": frames, POST: POST_LIMITS}))

    async def close(self) -> None:
        await self._early.close()
        await super().close()

    def keep_state(self, state: StateStore) -> None:
        """Keep there the files that wait for their turn."""
        self._early.state = state

    async def listen(self, receive: Receive, catch_up: CatchUpSource = NO_CATCH_UP) -> None:
        """Listen until cancelled, after the files that an earlier process was about to fetch are being fetched."""
        left = await self._pipeline.retry_until_stored(self._early.restore)
        for file in left:
            self._background.start_best_effort(self._early.fetch_early(file), f"wecom file {name_of(file)}")
        await super().listen(receive, catch_up)

    # ------------------------------------------------------------ events

    async def _store_event(self, command: str, req_id: str, raw: bytes) -> None:
        """Store one event until it is stored, because WeCom has no history. Answer a click in its five seconds."""
        event = parse_callback(command, req_id, raw, self._me)
        if event is None:
            return
        [receipt] = await self._pipeline.store_with_retries([event])
        is_press = isinstance(event, Message) and event.kind is Kind.CLICK and receipt is not Receipt.IGNORED
        if isinstance(event, Message) and is_press and self._pipeline.is_answered(event, receipt):
            name = event.author.name
            shown = choice_line(event.text, name) if receipt is Receipt.ACCEPTED else text_for(event, ANSWERED)
            self._background.start_best_effort(self._show_choice(event, req_id, shown), f"wecom click {event.id}")

    async def _show_choice(self, click: Message, req_id: str, shown: str) -> None:
        body = {"response_type": "update_template_card", "template_card": answered_card(click.id, shown)}
        await self._line.call(UPDATE_CARD, body, req_id)

    async def _show_working(self, message: Message) -> None:
        """Fetch the files of a message that waits for its turn: WeCom keeps them for five minutes."""
        if message.attachments:
            await self._early.expect(message.attachments, message.author.id)
            await asyncio.sleep(self.early_seconds)
        for attachment in message.attachments:
            if attachment.ref not in self._files.names:
                await self._early.fetch_early(attachment)

    async def _apologize(self, message: Message, text: str) -> None:
        await self._line.send_markdown(message.thread, text)

    # ------------------------------------------------------------ replies and files

    def reply(self, thread: Thread, posts: SentMessages, *, to: str = "", asker: str = "") -> Reply:
        req_id = posts.reply_handle
        scope = PacedScope(self._rate_limiter, thread.chat, idempotent_posts=IDEMPOTENT_POSTS if req_id else 0)
        options: dict[str, Any] = {"req_id": req_id, "seal_seconds": self.seal_seconds}
        renderer = WeComRenderer(self._line, thread, posts, scope, self._background, **options)
        return self._add_reply(ReplyWriter(renderer, posts, scope))

    def named(self, attachment: Attachment) -> Attachment:
        """Return the file with the name that came when it was fetched."""
        return replace(attachment, name=self._files.names.get(attachment.ref) or attachment.name)

    async def _open_download(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        return await self._early.open_file(attachment)

    async def _upload(self, thread: Thread, file: OutgoingFile) -> tuple[str, str]:
        """Upload a file in pieces; return its kind and its id."""
        if file.size < MIN_UPLOAD_BYTES:
            raise Refused(f"it has {file.size} bytes; WeCom takes at least {MIN_UPLOAD_BYTES}")
        name = files.multipart_file_name(file)
        is_image = PurePath(name).suffix.lower() in IMAGE_SUFFIXES and file.size <= MAX_IMAGE_BYTES
        kind, count = "image" if is_image else "file", max(1, math.ceil(file.size / CHUNK_BYTES))
        async with opened_file(file.path) as content:
            digest = await asyncio.to_thread(_md5, file.path)
            begin = {"type": kind, "filename": name, "total_size": file.size, "total_chunks": count, "md5": digest}
            upload = (await self._line.call("aibot_upload_media_init", begin))["upload_id"]
            for index in range(count):
                piece = base64.b64encode(await asyncio.to_thread(content.read, CHUNK_BYTES)).decode()
                body = {"upload_id": upload, "chunk_index": index, "base64_data": piece}
                await self._line.call("aibot_upload_media_chunk", body)
        media = (await self._line.call("aibot_upload_media_finish", {"upload_id": upload}))["media_id"]
        return kind, str(media)

    async def _post_files(self, thread: Thread, post: FilePost) -> str:
        """Post an image or file. It has no caption: that comes before it as text, as the mark of a repeat does."""
        [file], [(kind, media)] = post.files, post.uploads
        scope = PacedScope(self._rate_limiter, thread.chat)
        caption = f"{_(REPEAT_MARK)}\n\n{file.caption}".strip() if post.is_repeat else file.caption
        if caption:
            await scope.acquire_post()
            await self._line.send_markdown(thread, caption)
        await scope.acquire_post()
        await self._line.send(thread, kind, {"media_id": media})
        return f"file-{media}"


def _md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
