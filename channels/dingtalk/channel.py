"""The DingTalk channel: events, readiness, replies, files."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePath

import aiohttp

from agent.blocks import Final
from agent.messages import Attachment, Kind, Message, Thread
from catalogue import _
from channels.base import (
    NO_CATCH_UP,
    CatchUpSource,
    ChannelError,
    ChannelLimits,
    OutgoingFile,
    Receipt,
    Receive,
    Reply,
    SentMessages,
    StateStore,
)
from channels.dingtalk import PUBLIC_URL, DingTalkSettings
from channels.dingtalk.api import CARD_TOPIC, DingTalkApi, DingTalkRefusal
from channels.dingtalk.connection import StreamConnection
from channels.dingtalk.events import NAME, Company, parse_event
from channels.dingtalk.reply import (
    MAX_CARD_CHARS,
    MAX_TEXT_BYTES,
    DingTalkRenderer,
    RobotMessenger,
    clicked_card,
)
from channels.shared import files
from channels.shared.caches import LatestDict
from channels.shared.http_client import opened_file
from channels.shared.platform_channel import FilePost
from channels.shared.posts import IDEMPOTENT_POSTS
from channels.shared.rate_limit import RateLimiter, RateLimits, RateLimitScope
from channels.shared.reply_writer import ReplyWriter
from channels.shared.robot_chats import RobotAccount, RobotChannel
from channels.shared.texts import REPEAT_MARK, choice_line

MAX_UPLOAD_BYTES = 20 << 20  # open.dingtalk.com/document/development/upload-media-files
MAX_DOWNLOAD_BYTES = 100 << 20  # ours: DingTalk names no limit
MAX_NAMES = 10_000
COMPANY = "company"  # of the robot, in its state
CALL_BURST = 3
PHOTO_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".gif", ".bmp"})
THINKING = "🤔思考中"  # the only reaction that robots have, in the shape of DingTalk's own connector
THINKING_EMOTION = {"emotionId": "2659900", "emotionName": THINKING, "text": THINKING, "backgroundId": "im_bg_1"}
THINKING_REACTION = {"emotionType": 2, "emotionName": THINKING, "textEmotion": THINKING_EMOTION}


class DingTalkChannel(RobotChannel):
    """One app and its robot."""

    name = NAME

    def __init__(self, settings: DingTalkSettings) -> None:
        text_limit = MAX_CARD_CHARS if settings.card_template_id else MAX_TEXT_BYTES
        cards = bool(settings.card_template_id)  # messages of the robot cannot mention
        self.limits = ChannelLimits(text_limit, MAX_UPLOAD_BYTES, MAX_DOWNLOAD_BYTES, mentions=cards)
        self._settings = settings
        self._api = DingTalkApi(settings)
        language = "zh" if settings.base_url == PUBLIC_URL else ""
        me = RobotAccount(NAME, settings.client_id, settings.name, language)
        super().__init__(self._api, StreamConnection(self._api), me)
        self._rate_limiter = RateLimiter(RateLimits(settings.per_reply, CALL_BURST, overall=settings.overall))
        self._names: LatestDict[str, str] = LatestDict(MAX_NAMES)  # person → name, as last seen
        self._company = Company()
        self._state: StateStore

    def keep_state(self, state: StateStore) -> None:
        """Keep there the id of the robot's company, which only messages name."""
        self._state = state

    async def listen(self, receive: Receive, catch_up: CatchUpSource = NO_CATCH_UP) -> None:
        """Listen until cancelled, with the company that an earlier process has seen."""
        kept = await self._pipeline.retry_until_stored(self._state.load)
        self._company.id = kept.get(COMPANY, "")
        await super().listen(receive, catch_up)

    # ------------------------------------------------------------ events

    async def _store_event(self, topic: str, raw: bytes) -> object:
        """Store one event until it is stored. Returns the answer to a click."""
        known = self._company.id
        event = parse_event(topic, raw, self._me, self._company)
        if self._company.id != known:
            await self._pipeline.retry_until_stored(partial(self._state.save, {COMPANY: self._company.id}))
        if event is None:
            return None
        if isinstance(event, Message) and topic != CARD_TOPIC:
            self._names[event.author.id] = event.author.name
        [receipt] = await self._pipeline.store_with_retries([event])
        if isinstance(event, Message) and topic == CARD_TOPIC and receipt is not Receipt.IGNORED:
            is_choice = event.kind is Kind.CLICK and receipt is Receipt.ACCEPTED
            name = self._names.get(event.author.id, event.author.id)
            return clicked_card(choice_line(event.text, name) if is_choice else "")
        return None

    async def _apologize(self, message: Message, text: str) -> None:
        await self._messenger(message.thread).send_text(text)

    async def _show_working(self, message: Message) -> None:
        await self._set_reaction("reply", message.id, message.reply_handle.current if message.reply_handle else "")

    async def _set_reaction(self, method: str, message_id: str, conversation: str) -> None:
        """Put the sign of work on a message ("reply"), or take it off ("recall")."""
        if self._settings.reaction and conversation:
            target = {"robotCode": self._settings.robot, "openMsgId": message_id, "openConversationId": conversation}
            await self._api("POST", f"/v1.0/robot/emotion/{method}", {**target, **THINKING_REACTION})

    async def open_private_chat(self, person: str, near: Thread) -> Thread:
        """Return the private chat with a person: robots write to staff ids (`oToMessages/batchSend`)."""
        return Thread(NAME, near.workspace, f"@{person}")

    # ------------------------------------------------------------ replies and files

    def reply(self, thread: Thread, posts: SentMessages, *, to: str = "", asker: str = "") -> Reply:
        renderer = DingTalkRenderer(self._messenger(thread), posts, self._names)

        def take_off_reaction(final: Final) -> None:
            self._background.start_best_effort(
                self._set_reaction("recall", to, posts.reply_handle), f"dingtalk finished {to}"
            )

        posts_again = IDEMPOTENT_POSTS if self._settings.card_template_id else 0
        scope = RateLimitScope(self._rate_limiter, thread.chat, idempotent_posts=posts_again)
        return self._add_reply(ReplyWriter(renderer, posts, scope, on_finished=take_off_reaction))

    async def _post_files(self, thread: Thread, post: FilePost) -> str:
        """Post an image or file. It has no caption: that follows as text, as does the mark of a possible repeat."""
        sender, [file], [(kind, content)] = self._messenger(thread), post.files, post.uploads
        caption = f"{_(REPEAT_MARK)} {file.name}\n\n{file.caption}".strip() if post.is_repeat else file.caption
        key = await sender.send_message(kind, content)
        with suppress(ChannelError):  # the file is visible, and must not be sent again
            if caption:
                await sender.send_text(caption)
        return f"/{key}"

    async def _upload(self, thread: Thread, file: OutgoingFile) -> tuple[str, dict[str, str]]:
        """Return the type and content of a file's message."""
        name = files.multipart_file_name(file)
        if PurePath(name).suffix.lower() in PHOTO_SUFFIXES:
            return "sampleImageMsg", {"photoURL": await self._upload_as(file.path, name, "image")}
        media = await self._upload_as(file.path, name, "file")
        suffix = PurePath(name).suffix[1:].lower() or "file"
        return "sampleFile", {"mediaId": media, "fileName": name, "fileType": suffix}

    async def _upload_as(self, path: Path, name: str, kind: str) -> str:
        async with opened_file(path) as content:
            form = aiohttp.FormData(quote_fields=False)
            form.add_field("media", content, filename=name, content_type="application/octet-stream")
            return await self._api.upload(form, kind)

    async def _open_download(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        try:
            return await self._api.download_file(attachment.ref)
        except DingTalkRefusal:
            raise files.no_longer_available("DingTalk") from None

    def _messenger(self, thread: Thread) -> RobotMessenger:
        return RobotMessenger(self._api, self._settings, thread)

    def _rate_limit_scope(self, thread: Thread) -> RateLimitScope:
        return RateLimitScope(self._rate_limiter, thread.chat)
