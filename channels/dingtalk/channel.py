"""The DingTalk channel: events, readiness, replies, files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from pathlib import Path, PurePath
from typing import Any, BinaryIO
from weakref import WeakSet

import aiohttp
import orjson

from agent.backoff import backoff_seconds
from agent.blocks import Final
from agent.messages import Attachment, Kind, Message, Thread, Unreadable
from catalogue import _
from channels.base import (
    NO_CATCH_UP,
    CatchUpSource,
    ChannelError,
    ChannelLimits,
    CommandInfo,
    NotStored,
    OutgoingFile,
    Readiness,
    Receipt,
    Receive,
    Reply,
    SentMessages,
)
from channels.dingtalk import DingTalkSettings
from channels.dingtalk.api import DingTalkApi, DingTalkRefusal
from channels.dingtalk.connection import StreamConnection
from channels.dingtalk.events import NAME, DingTalkAccount, is_group, parse_event
from channels.dingtalk.reply import (
    MAX_CARD_BYTES,
    MAX_TEXT_BYTES,
    DingTalkMessage,
    DingTalkRenderer,
    RobotMessenger,
    clicked_card,
)
from channels.shared import file_limits
from channels.shared.background import BackgroundTasks
from channels.shared.outage_notices import OutageNotices
from channels.shared.rate_limit import RateLimiter, RateLimits, RateLimitScope
from channels.shared.reply_writer import ReplyWriter, post_once
from channels.shared.texts import NOT_STORED, REPEAT_MARK

log = logging.getLogger(__name__)

MAX_UPLOAD_BYTES = 20 << 20  # open.dingtalk.com/document/development/upload-media-files
MAX_DOWNLOAD_BYTES = 100 << 20  # ours: DingTalk names no limit
MAX_BACKOFF_SECONDS = 30.0  # between two attempts to store an event
MAX_WORKING = 1_000  # messages with the sign of work
MAX_NAMES = 10_000
CALL_BURST = 3
PHOTO_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".gif", ".bmp"})
THINKING = "🤔思考中"  # the only reaction that robots have, with the ids of DingTalk's own clients
THINKING_EMOTION = {"emotionId": "2659900", "emotionName": THINKING, "text": THINKING, "backgroundId": "im_bg_1"}


class DingTalkWriter(ReplyWriter[DingTalkMessage]):
    """A reply writer that takes the sign of work off the question when the reply is complete."""

    def __init__(
        self, renderer: DingTalkRenderer, posts: SentMessages, scope: RateLimitScope, done: Callable[[], None]
    ) -> None:
        super().__init__(renderer, posts, scope)
        self._done = done

    async def finish(self, final: Final) -> None:
        await super().finish(final)
        self._done()


class DingTalkChannel:
    """One app and its robot."""

    name = NAME
    window = 0.2

    def __init__(self, settings: DingTalkSettings) -> None:
        text_limit = MAX_CARD_BYTES if settings.card_template_id else MAX_TEXT_BYTES
        self.limits = ChannelLimits(text_limit=text_limit, upload=MAX_UPLOAD_BYTES, download=MAX_DOWNLOAD_BYTES)
        self._settings = settings
        self._api = DingTalkApi(settings)
        self._connection = StreamConnection(self._api)
        self._me = DingTalkAccount(settings.client_id, settings.name)
        self._rate_limiter = RateLimiter(RateLimits(settings.per_reply, CALL_BURST, overall=settings.overall))
        self._names: dict[str, str] = {}  # person → name, as last seen
        self._working: dict[str, dict[str, object]] = {}  # message → the reaction on it
        self._outage = OutageNotices()
        self._writers: WeakSet[DingTalkWriter] = WeakSet()
        self._background = BackgroundTasks()

    async def open(self) -> None:
        """Open the session for API calls."""
        await self._api.open()

    async def close(self) -> None:
        """Stop every reply and close the session."""
        await asyncio.gather(*(writer.close() for writer in list(self._writers)))
        await self._background.cancel()
        await self._api.close()

    # ------------------------------------------------------------ events

    async def listen(self, receive: Receive, catch_up: CatchUpSource = NO_CATCH_UP) -> None:
        async def handle_event(topic: str, raw: bytes) -> object:
            return await self._store_event(topic, raw, receive)

        await self._connection.run(handle_event)

    async def _store_event(self, topic: str, raw: bytes, receive: Receive) -> object:
        """Store one event. Robots cannot read a history, so it is offered again until it is stored."""
        event = parse_event(topic, raw, self._me)
        if event is None:
            return None
        failures = 0
        while True:
            try:
                [receipt] = await receive([event])
                break
            except NotStored as error:
                log.error("dingtalk.not_stored reason=%s", error)  # noqa: TRY400 — the reason is enough
                for affected in self._outage.take_due([event]):
                    notice = RobotMessenger(self._api, self._settings, affected.thread).send_text(_(NOT_STORED))
                    self._background.start_best_effort(notice, f"dingtalk not stored {affected.thread}")
                failures += 1
                await asyncio.sleep(backoff_seconds(failures, MAX_BACKOFF_SECONDS))
        self._outage.end()
        if isinstance(event, Unreadable):
            log.error("dingtalk.unreadable key=%s reason=%s", event.key, event.error)
            return None
        return self._acknowledge(event, raw, receipt)

    def _acknowledge(self, event: Message, raw: bytes, receipt: Receipt) -> object:
        """Show the sign of work on a message. Returns the answer to a click; a click without effect keeps the card."""
        if event.kind is Kind.CLICK:
            chosen = event.text if receipt is Receipt.ACCEPTED else ""
            return None if receipt is Receipt.IGNORED else clicked_card(chosen)
        self._names.pop(event.author.id, None)
        self._names[event.author.id] = event.author.name
        _drop_oldest(self._names, MAX_NAMES)
        if self._settings.reaction and event.kind is Kind.CHAT and receipt is Receipt.ACCEPTED:
            reaction = self._working[event.id] = {
                "robotCode": self._settings.robot,
                "openMsgId": event.id,
                "openConversationId": orjson.loads(raw)["conversationId"],
                "emotionType": 2,
                "emotionName": THINKING,
                "textEmotion": THINKING_EMOTION,
            }
            _drop_oldest(self._working, MAX_WORKING)
            self._start_emotion("reply", reaction)
        return None

    def _start_emotion(self, method: str, reaction: dict[str, object]) -> None:
        call = self._api("POST", f"/v1.0/robot/emotion/{method}", reaction)
        self._background.start_best_effort(call, f"dingtalk emotion {reaction['openMsgId']}")

    def readiness(self) -> Readiness:
        return self._connection.readiness()

    async def enrich(self, message: Message, earlier: int) -> Message:
        return message  # events have names and quotes; robots cannot read more

    def spell_command(self, thread: Thread, command: str) -> str:
        """In groups, a robot receives only messages that mention it."""
        return f"@{self._settings.name} /{command}" if is_group(thread) else f"/{command}"

    async def announce(self, commands: Sequence[CommandInfo]) -> None:
        """Do nothing: DingTalk lists no commands."""

    # ------------------------------------------------------------ replies and files

    def reply(self, thread: Thread, posts: SentMessages, *, to: str = "", asker: str = "") -> Reply:
        renderer = DingTalkRenderer(self._api, self._settings, thread, posts, self._names)

        def done() -> None:
            if reaction := self._working.pop(to, None):
                self._start_emotion("recall", reaction)

        idempotent = bool(self._settings.card_template_id)
        writer = DingTalkWriter(renderer, posts, self._rate_limit_scope(thread, idempotent=idempotent), done)
        self._writers.add(writer)
        return writer

    async def send_file(self, thread: Thread, file: OutgoingFile, posts: SentMessages) -> None:
        """Send an image or a file. It has no caption: that follows as text, as does the mark of a possible repeat."""
        file_limits.check_outgoing_file(file, MAX_UPLOAD_BYTES, "DingTalk")
        sender = RobotMessenger(self._api, self._settings, thread)
        caption = f"{_(REPEAT_MARK)} {file.name}\n\n{file.caption}".strip() if posts.known else file.caption

        async def post() -> str:
            key = await sender.send_message(*await self._upload_file(file))
            with suppress(ChannelError):  # the file is visible, and must not be sent again
                if caption:
                    await sender.send_text(caption)
            return f"/{key}"

        await post_once(posts, post, self._rate_limit_scope(thread, idempotent=False))

    async def _upload_file(self, file: OutgoingFile) -> tuple[str, dict[str, str]]:
        """Upload a file. Returns the type and content of its message."""
        name = file_limits.multipart_file_name(file)
        if PurePath(name).suffix.lower() in PHOTO_SUFFIXES:
            return "sampleImageMsg", {"photoURL": await self._upload(file.path, name, "image")}
        media = await self._upload(file.path, name, "file")
        suffix = PurePath(name).suffix[1:].lower() or "file"
        return "sampleFile", {"mediaId": media, "fileName": name, "fileType": suffix}

    async def _upload(self, path: Path, name: str, kind: str) -> str:
        handle: BinaryIO = await asyncio.to_thread(path.open, "rb")
        try:
            form = aiohttp.FormData(quote_fields=False)
            form.add_field("media", handle, filename=name, content_type="application/octet-stream")
            return await self._api.upload(form, kind)
        finally:
            await asyncio.to_thread(handle.close)

    def fetch(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        return file_limits.limit_chunks(MAX_DOWNLOAD_BYTES, attachment, self._download_chunks(attachment))

    async def _download_chunks(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        try:
            async with aclosing(self._api.download(attachment.ref)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except DingTalkRefusal:
            raise file_limits.no_longer_available("DingTalk") from None

    def _rate_limit_scope(self, thread: Thread, *, idempotent: bool) -> RateLimitScope:
        return RateLimitScope(self._rate_limiter, thread.chat, idempotent=idempotent)


def _drop_oldest(known: dict[str, Any], most: int) -> None:
    if len(known) > most:
        del known[next(iter(known))]
