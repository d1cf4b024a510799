"""Connect one robot of WeChat: messages, readiness, replies, files."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from functools import partial
from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit

from agent.messages import Attachment, Message, Thread
from catalogue import N_, _
from channels.base import (
    NO_CATCH_UP,
    CatchUpSource,
    ChannelError,
    ChannelLimits,
    Health,
    NotStored,
    OutgoingFile,
    Readiness,
    Receive,
    Refused,
    Reply,
    SentMessages,
    SignInCode,
    StateStore,
    TryLater,
    Unattended,
)
from channels.shared.caches import LatestDict, TypingActions
from channels.shared.code_sign_in import OfferedScreen, SignInState
from channels.shared.event_connection import ConnectionHealth
from channels.shared.http_client import opened_file
from channels.shared.inbound import InboundPipeline
from channels.shared.platform_channel import FilePost, PlatformChannel
from channels.shared.rate_limit import RateLimiter, RateLimits, RateLimitScope
from channels.shared.reply_window import LOOK_SECONDS, ReplyWindows
from channels.shared.reply_writer import ReplyWriter
from channels.shared.texts import REPEAT_MARK
from channels.shared.visible_text import dicts_in
from channels.wechat import NAME, WeChatSettings
from channels.wechat.api import LoggedOut, SendRefused, WeChatApi
from channels.wechat.events import WINDOW_SECONDS, parse_message
from channels.wechat.files import WeChatFiles, sealed_size
from channels.wechat.login import SOMEBODY_ELSE, Login, kept_name, sign_in
from channels.wechat.reply import MAX_TEXT_CHARS, WeChatRenderer

log = logging.getLogger(__name__)

BUDGET = 10  # openclaw-weixin#81
BLOCKED_SECONDS = 3600.0  # after a refusal that does not say why: too fast is over in about an hour
TYPING_SECONDS = 8.0
MAX_FILE_BYTES = 100 << 20
MAX_BACKOFF_SECONDS = 10.0
LOGIN_LOOK_SECONDS = 2.0  # between two looks whether somebody has signed in
MAX_TEXTS = 2_000  # messages whose text is kept for quotes
NOBODY = N_("nobody is signed in: run `fawn setup wechat`")
ASKING = N_("Asking WeChat for a code …")
SIGNED_IN = N_("Signed in as {person}.")
FAMILIES = {".png": "image", ".jpg": "image", ".jpeg": "image", ".mp4": "video"}
ITEMS = {"image": 2, "file": 4, "video": 5}


class WeChatChannel(PlatformChannel):
    """One robot, which one person talks with."""

    name = NAME
    posts_by_listening = True  # the login is its
    limits = ChannelLimits(MAX_TEXT_CHARS, MAX_FILE_BYTES, MAX_FILE_BYTES, mentions=False)

    def __init__(self, settings: WeChatSettings) -> None:
        self._settings = settings
        self._api = WeChatApi(settings.base_url, "", settings.proxy, settings.ca_file)
        super().__init__(self._api)
        self._files = WeChatFiles(self._api, settings.cdn_url)
        self.windows = ReplyWindows("WeChat", WINDOW_SECONDS, BUDGET)
        self._limiter = RateLimiter(RateLimits(settings.per_person, 1, overall=10.0))
        self._typing: TypingActions[tuple[str, str]] = TypingActions(TYPING_SECONDS, self._show_typing)
        self._texts: LatestDict[str, str] = LatestDict(MAX_TEXTS)
        self._language = ""  # of the person
        self._state: StateStore
        self._login: Login | None = None  # the one that counts
        self._kept, self._found = asyncio.Event(), asyncio.Event()  # a login was kept; one counts
        self._over = ""  # the token of a login that WeChat has ended
        self._signing: asyncio.Task[None] | None = None
        self._screen = OfferedScreen()
        self._health = ConnectionHealth(NAME, log)
        self._pipeline = InboundPipeline(
            NAME,
            self._background,
            apologize=lambda event, text: self._send_text(event.thread.chat, text, _context(event), event.key[-60:]),
            show_working=lambda event: self._typing.show((event.thread.chat, _context(event))),
        )

    # ------------------------------------------------------------ events

    async def listen(self, receive: Receive, catch_up: CatchUpSource = NO_CATCH_UP) -> None:
        """Poll until cancelled. After a login that WeChat ended, stay down until somebody signs in anew."""
        self._pipeline.receive = receive
        while True:
            login = self._login = await self._find_login()
            self._found.set()
            self._api.sign_in(login.url, login.token)
            self._language = "zh" if (urlsplit(login.url).hostname or "").endswith(".qq.com") else ""
            restore = partial(self.windows.restore, catch_up, NAME, login.bot)
            await self._pipeline.retry_until_stored(restore)
            try:
                await self._poll(login)
            except LoggedOut as error:
                self._login, self._over = None, login.token
                self._found.clear()
                self._health.set_health(Health.DOWN, str(error))

    async def _find_login(self) -> Login:
        """Return the login that is kept, as soon as there is one that counts."""
        while True:
            kept = await self._pipeline.retry_until_stored(self._state.load)
            login = Login.load(kept.get(kept_name(self._settings.person), ""))
            if login and login.token != self._over:
                return login
            if not self._over:
                self._health.set_health(Health.DOWN, _(NOBODY))
            with suppress(TimeoutError):
                async with asyncio.timeout(LOGIN_LOOK_SECONDS):
                    await self._kept.wait()
            self._kept.clear()

    async def _poll(self, login: Login) -> None:
        """Poll for good. Raises LoggedOut."""
        name = f"cursor {login.bot}"
        cursor = (await self._pipeline.retry_until_stored(self._state.load)).get(name, "")
        while True:
            try:
                found = await self._api.poll(cursor)
                self._health.set_health(Health.READY, login.bot)
                await self._store_all([*dicts_in(found.get("msgs"))], login.bot)
                after = str(found.get("get_updates_buf") or "") or cursor
                if after != cursor:
                    await self._state.save({name: after})
                cursor, self._health.failures = after, 0
            except LoggedOut:
                raise
            except NotStored:
                await asyncio.sleep(self._health.note_failure("", MAX_BACKOFF_SECONDS))
            except ChannelError as error:
                await asyncio.sleep(max(self._health.note_failure(f"{error}.", MAX_BACKOFF_SECONDS), error.after))

    def keep_state(self, state: StateStore) -> None:
        """Keep there the login, where to go on polling, and how many messages the person got since their last one."""
        self._state = self.windows.state = state

    async def begin_sign_in(self) -> None:
        """Ask for a code to scan, unless one is shown already."""
        if not self._is_signing:
            self._screen.show(_(ASKING))
            self._signing = self._background.start(self._sign_in(), "wechat sign-in")

    def sign_in_code(self) -> SignInCode:
        return self._screen.offered

    def sign_in_state(self) -> SignInState:
        is_out = self._login is None and self._health.now.health is Health.DOWN
        return SignInState(is_out, self._is_signing, self._screen.wants_number)

    def answer_sign_in(self, number: str) -> bool:
        return self._screen.answer(number)

    @property
    def _is_signing(self) -> bool:
        return self._signing is not None and not self._signing.done()

    async def _sign_in(self) -> None:
        settings = self._settings
        try:
            found = await sign_in(self._screen, settings)
            if found.value != settings.person:  # whoever sees the page could take the robot over
                raise Refused(_(SOMEBODY_ELSE, other=found.value, person=settings.person))
            await self._state.save(found.kept)
            self._kept.set()
            await self._found.wait()  # or somebody could begin once more before it counts
        except (ChannelError, NotStored) as error:
            self._screen.show(str(error))
        else:
            self._screen.show(_(SIGNED_IN, person=found.value))

    async def _store_all(self, raw: list[dict[str, Any]], bot: str) -> None:
        """Store the messages of a poll, before its cursor counts. Raises NotStored."""
        events = [event for each in raw if (event := parse_message(each, bot, self._texts, self._language))]
        for event in events:
            if isinstance(event, Message):
                self.windows.open(event.thread.chat, event.time)
        if events:
            await self._pipeline.store(events)

    def _connection_readiness(self) -> Readiness:
        return self._health.now

    async def _show_typing(self, place: tuple[str, str]) -> None:
        person, context = place
        asked = {"ilink_user_id": person, "context_token": context}
        ticket = (await self._api("getconfig", asked, repeatable=True)).get("typing_ticket")
        if ticket:
            body = {"ilink_user_id": person, "typing_ticket": ticket, "status": 1}
            await self._api("sendtyping", body, repeatable=True)

    # ------------------------------------------------------------ replies and files

    def reply(self, thread: Thread, posts: SentMessages, *, to: str = "", asker: str = "") -> Reply:
        person = thread.chat

        async def post(text: str, key: str) -> str:
            return await self._send_text(person, text, posts.reply_handle, key)

        async def type_() -> None:
            await self._typing.show((person, posts.reply_handle))

        renderer = WeChatRenderer(posts, lambda: self._check(person), post, type_)
        return self._add_reply(ReplyWriter(renderer, posts, self._rate_limit_scope(thread)))

    def _check(self, person: str) -> None:
        """Raise Unattended where nothing can be sent now: nobody is signed in, or the person has to write first."""
        if self._login is None:
            raise Unattended(self._health.now.detail or _(NOBODY), LOOK_SECONDS)
        self.windows.check(person)

    async def _send_text(self, person: str, text: str, context: str, key: str) -> str:
        return await self._send(person, {"type": 1, "text_item": {"text": text}}, context, key)

    async def _send(self, person: str, item: dict[str, Any], context: str, key: str) -> str:
        """Send one message. Raises WindowClosed, which is learned from the platform's refusal, too."""
        self._check(person)
        message = {
            "from_user_id": "",
            "to_user_id": person,
            "client_id": f"fawn-{key}",
            "message_type": 2,
            "message_state": 2,
            "context_token": context,
            "item_list": [item],
        }
        await self.windows.spend(person)
        try:
            answer = await self._api("sendmessage", {"msg": message})
        except SendRefused:
            raise await self.windows.close(person, BLOCKED_SECONDS) from None
        except (TryLater, Refused):
            self.windows.give_back(person)
            raise
        return str(answer.get("message_id") or f"{key}-{time.time():.0f}")

    def _rate_limit_scope(self, thread: Thread) -> RateLimitScope:
        return RateLimitScope(self._limiter, thread.chat)

    async def _upload(self, thread: Thread, file: OutgoingFile) -> tuple[str, dict[str, Any]]:
        """Upload a file, once the person may get it; return its kind and how a message names it."""
        self._check(thread.chat)
        kind = FAMILIES.get(PurePath(file.name).suffix.lower(), "file")
        async with opened_file(file.path) as content:
            return kind, await self._files.upload(thread.chat, kind, content, file.size)

    async def _post_files(self, thread: Thread, post: FilePost) -> str:
        """Post a file. It has no caption: that comes before it as text, as does the mark of a repeat."""
        [file], [(kind, media)] = post.files, post.uploads
        key = f"{post.key}-f{post.index}"
        caption = f"{_(REPEAT_MARK)}\n\n{file.caption}".strip() if post.is_repeat else file.caption
        if caption:
            await self._send_text(thread.chat, caption, post.reply_handle, f"{key}c")
            await asyncio.sleep(1.1)  # three in a second are blocked for an hour
        content: dict[str, Any] = {"media": media}
        match kind:
            case "file":
                content |= {"file_name": file.name, "len": str(file.size)}
            case "image":
                content["mid_size"] = sealed_size(file.size)
            case "video":
                content["video_size"] = sealed_size(file.size)
        return await self._send(thread.chat, {"type": ITEMS[kind], f"{kind}_item": content}, post.reply_handle, key)

    async def _open_download(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        return self._files.download(attachment)


def _context(message: Message) -> str:
    return message.reply_handle.token if message.reply_handle else ""
