"""Connect one number of WhatsApp: events through the relay, readiness, replies, files."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import Any

import aiohttp

from agent.messages import Attachment, Kind, Message, Thread
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
    Receipt,
    Receive,
    Refused,
    Reply,
    SentMessages,
    StateStore,
)
from channels.shared import files
from channels.shared.caches import LatestDict, TypingActions
from channels.shared.event_connection import ConnectionHealth
from channels.shared.http_client import opened_file
from channels.shared.inbound import InboundPipeline
from channels.shared.platform_channel import FilePost, PlatformChannel
from channels.shared.rate_limit import RateLimiter, RateLimits, RateLimitScope
from channels.shared.relay_client import WAIT_SECONDS, Delivery, NotYet, RelayClient
from channels.shared.reply_window import ReplyWindows, WindowClosed
from channels.shared.reply_writer import ReplyWriter
from channels.shared.texts import ANSWERED, REPEAT_MARK, text_for
from channels.whatsapp import NAME, WhatsAppSettings
from channels.whatsapp.api import WINDOW_OVER, WhatsAppApi, WhatsAppRefusal
from channels.whatsapp.events import Status, is_signed, parse_webhook, undelivered
from channels.whatsapp.files import DOCUMENT_BYTES, kind_of
from channels.whatsapp.reply import MAX_CHUNK_CHARS, WhatsAppRenderer

log = logging.getLogger(__name__)

WINDOW_SECONDS = 86_400.0  # …/cloud-api/guides/send-messages#customer-service-windows
TYPING_SECONDS = 20.0  # of 25 that a typing action shows
MAX_BACKOFF_SECONDS = 10.0
ASKED = "asked "  # begins the name of what is kept, before the person
MAX_REPORTED = 10_000  # messages whose fate is remembered
UNSIGNED = N_("The relay handed over something that WhatsApp did not sign: compare the App secret in both places.")


class WhatsAppChannel(PlatformChannel):
    """One number."""

    name = NAME
    account_seconds = 600.0  # between two questions whether the platform answers
    record_seconds = 2.0  # for so long reports of failures wait
    limits = ChannelLimits(MAX_CHUNK_CHARS, DOCUMENT_BYTES, DOCUMENT_BYTES, mentions=False)

    def __init__(self, settings: WhatsAppSettings) -> None:
        self._settings = settings
        self._api = WhatsAppApi(settings)
        super().__init__(self._api)
        self._relay = RelayClient(self._api, settings.relay_url, settings.relay_key.reveal())
        self.windows = ReplyWindows("WhatsApp", WINDOW_SECONDS)
        self._limiter = RateLimiter(RateLimits(settings.per_person, settings.burst, overall=settings.overall))
        self._typing: TypingActions[tuple[str, str]] = TypingActions(TYPING_SECONDS, self._mark_read)
        self._failures: LatestDict[int, float] = LatestDict(MAX_REPORTED)  # delivery → when it came, time.monotonic()
        self._reported: LatestDict[str, str] = LatestDict(MAX_REPORTED)  # mark of a post → its message
        self._state: StateStore
        self._asking = asyncio.Lock()
        self._account = ""
        self._asked_account = 0.0  # time.monotonic()
        self._unsigned = False  # the latest delivery was not signed with the app's secret
        self._health = ConnectionHealth(NAME, log)
        self._pipeline = InboundPipeline(
            NAME,
            self._background,
            apologize=lambda event, text: self._send_text(event.thread, text),
            show_working=lambda event: self._typing.show((event.thread.chat, event.id)),
        )

    # ------------------------------------------------------------ events

    async def listen(self, receive: Receive, catch_up: CatchUpSource = NO_CATCH_UP) -> None:
        """Fetch what the relay keeps, until cancelled. It keeps what comes while Fawn is away, so there is no gap."""
        self._pipeline.receive = receive
        await self._pipeline.retry_until_stored(
            lambda: self.windows.restore(catch_up, NAME, self._settings.phone_number_id)
        )
        while True:
            try:
                account = await self._current_account()
                wait = min(WAIT_SECONDS, self.account_seconds) if self._health.is_ready else 0.0
                await self._relay.fetch([self._settings.source], self._store, wait=wait)
                if not self._unsigned:
                    self._health.set_health(Health.READY, account)
                self._health.failures = 0
            except NotStored:
                await asyncio.sleep(self._health.note_failure("", MAX_BACKOFF_SECONDS))
            except ChannelError as error:
                await asyncio.sleep(max(self._health.note_failure(f"{error}.", MAX_BACKOFF_SECONDS), error.after))

    async def _current_account(self) -> str:
        """Return the number and its name, asked for now and then: that says whether the platform answers."""
        if not self._account or time.monotonic() - self._asked_account > self.account_seconds:
            found = await self._api.account()
            self._account = f"{found.get('verified_name')} ({found.get('display_phone_number')})"
            self._asked_account = time.monotonic()
        return self._account

    async def _store(self, delivery: Delivery) -> None:
        """Store the events of one delivery. Raises NotStored and NotYet: then it comes again."""
        if not is_signed(self._settings.app_secret.reveal(), delivery.headers, delivery.body):
            log.error("whatsapp.unsigned id=%d", delivery.id)
            self._unsigned = True
            self._health.set_health(Health.DOWN, _(UNSIGNED))
            return
        self._unsigned = False
        found = parse_webhook(delivery.body, self._settings.phone_number_id)
        if any(isinstance(each, Status) and each.state == "failed" for each in found):
            self._wait_for_posts(delivery.id)
        read = [await self._note_status(each) if isinstance(each, Status) else each for each in found]
        events = [event for event in read if event is not None]
        for event in events:
            if isinstance(event, Message) and event.kind is not Kind.UNDELIVERED:
                self.windows.open(event.thread.chat, event.time)
        if not events:
            return
        for event, receipt in zip(events, await self._pipeline.store(events), strict=True):
            is_again = isinstance(event, Message) and event.kind is Kind.CLICK and receipt is Receipt.DUPLICATE
            if isinstance(event, Message) and is_again and self._pipeline.is_answered(event, receipt):
                self._background.start_best_effort(
                    self._send_text(event.thread, text_for(event, ANSWERED)), f"whatsapp click {event.id}"
                )

    def _wait_for_posts(self, delivery: int) -> None:
        """Raises NotYet for a report of failures that came a moment ago: the posts may not be recorded yet."""
        came = self._failures.get(delivery)
        if came is None:
            came = self._failures[delivery] = time.monotonic()
        if time.monotonic() - came < self.record_seconds:
            raise NotYet

    async def _note_status(self, status: Status) -> Message | None:
        """Note what became of a message of the bot; return the event that says so of one that was not delivered."""
        if status.state != "failed":
            if status.mark:
                self._reported[status.mark] = status.message
            return None
        log.error("whatsapp.failed message=%s code=%d reason=%s", status.message, status.code, status.reason)
        if status.code == WINDOW_OVER:
            await self.windows.close(status.person)
        return undelivered(status, self._settings.phone_number_id)

    def _connection_readiness(self) -> Readiness:
        return self._health.now

    async def _mark_read(self, place: tuple[str, str]) -> None:
        if self._settings.read_marks:
            await self._api.mark_read(place[1], typing=True)

    # ------------------------------------------------------------ replies and files

    def reply(self, thread: Thread, posts: SentMessages, *, to: str = "", asker: str = "") -> Reply:
        async def type_() -> None:
            if to:
                await self._typing.show((thread.chat, to))

        check, post = partial(self._check_window, thread), partial(self._send, thread)
        renderer = WhatsAppRenderer(posts, check, post, lambda mark: self._reported.get(mark, ""), type_)
        return self._add_reply(ReplyWriter(renderer, posts, self._rate_limit_scope(thread)))

    async def _check_window(self, thread: Thread) -> None:
        """Raise WindowClosed where the person has to write first, and ask them to by the template."""
        try:
            self.windows.check(thread.chat)
        except WindowClosed:
            await self._ask_to_write(thread.chat)
            raise

    async def _send(self, thread: Thread, content: Mapping[str, Any], mark: str = "") -> str:
        """Send a message. Raises WindowClosed, which is learned from the platform's refusal, too."""
        await self._check_window(thread)
        try:
            return await self._api.send(thread.chat, content, mark=mark)
        except WhatsAppRefusal as error:
            if error.code != WINDOW_OVER:
                raise
            closed = await self.windows.close(thread.chat)
        await self._ask_to_write(thread.chat)
        raise closed

    def keep_state(self, state: StateStore) -> None:
        """Keep there when each person was last asked to write, which costs money, and whose window is closed."""
        self._state = self.windows.state = state

    async def _ask_to_write(self, person: str) -> None:
        """Send the template, once in a window's time, also over restarts."""
        if not self._settings.template:
            return
        async with self._asking:
            try:
                if not await self._note_asking(person):
                    return
            except NotStored:
                return  # or it would be sent again and again
        language = {"code": self._settings.template_language}
        content = {"type": "template", "template": {"name": self._settings.template, "language": language}}
        try:
            await self._api.send(person, content)
        except ChannelError as error:
            log.error("whatsapp.template_failed reason=%s", error)  # noqa: TRY400 — the reason is enough

    async def _note_asking(self, person: str) -> bool:
        """Return whether to ask a person now, and note that, so that a crash asks nobody twice. Raises NotStored."""
        now = time.time()
        asked = {name: float(at) for name, at in (await self._state.load()).items() if name.startswith(ASKED)}
        name = f"{ASKED}{person}"
        if now - asked.get(name, 0.0) < WINDOW_SECONDS:
            return False
        over = {each: None for each, at in asked.items() if now - at >= WINDOW_SECONDS}
        await self._state.save({**over, name: f"{now}"}, of=person, until=now + WINDOW_SECONDS)
        return True

    async def _send_text(self, thread: Thread, text: str) -> str:
        return await self._send(thread, {"type": "text", "text": {"preview_url": False, "body": text}})

    def _rate_limit_scope(self, thread: Thread) -> RateLimitScope:
        return RateLimitScope(self._limiter, thread.chat)

    async def _upload(self, thread: Thread, file: OutgoingFile) -> tuple[str, str]:
        """Upload a file, once the person may get it; return its kind and its id."""
        kind, mime = kind_of(file)
        await self._check_window(thread)
        name = files.multipart_file_name(file)
        async with opened_file(file.path) as content:
            form = aiohttp.FormData(quote_fields=False)
            form.add_field("messaging_product", "whatsapp")
            form.add_field("type", mime)
            form.add_field("file", content, filename=name, content_type=mime)
            return kind, await self._api.upload(form)

    def _handle_of(self, post: FilePost) -> str:
        return f"{post.key}-f{post.index}"

    async def _find_posted(self, thread: Thread, handle: str) -> str:
        return self._reported.get(handle, "")

    async def _post_files(self, thread: Thread, post: FilePost) -> str:
        """Post a file with its caption; sound has none, which comes before it."""
        [file], [(kind, media)] = post.files, post.uploads
        caption = f"{_(REPEAT_MARK)}\n\n{file.caption}".strip() if post.is_repeat else file.caption
        content: dict[str, Any] = {"id": media}
        if kind == "document":
            content["filename"] = file.name
        if caption and kind == "audio":
            await self._send_text(thread, caption)
        elif caption:
            content["caption"] = caption[:1_024]
        return await self._send(thread, {"type": kind, kind: content}, self._handle_of(post))

    async def _open_download(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        try:
            return await self._api.download_media(attachment.ref)
        except WhatsAppRefusal as error:
            raise Refused(str(error)) from None
