"""The Feishu channel itself: events, readiness, replies, files."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import orjson

from agent.blocks import Final
from agent.messages import Attachment, Message, Thread, Unreadable
from catalogue import N_
from channels.base import (
    NO_CATCH_UP,
    CatchUpSource,
    ChannelError,
    ChannelLimits,
    CommandInfo,
    Gap,
    NotStored,
    OutgoingFile,
    Readiness,
    Receipt,
    Receive,
    Reply,
    SentMessages,
)
from channels.feishu import DOMAINS, FeishuSettings
from channels.feishu import files as feishu_files
from channels.feishu.api import FeishuApi
from channels.feishu.card_api import CardApi, dump_json
from channels.feishu.card_renderer import (
    CHOICES,
    MAX_CARD_BYTES,
    answered_card,
    choice_element,
    without_mentions,
)
from channels.feishu.connection import PROGRAM, FeishuConnection
from channels.feishu.events import NAME, FeishuAccount, parse_event, parse_menu, tenant_of
from channels.feishu.history import FeishuHistory
from channels.feishu.reply import IDEMPOTENT_POSTS, FeishuRenderer, MessageSender
from channels.shared.caches import LatestDict
from channels.shared.inbound import InboundPipeline
from channels.shared.platform_channel import FilePost, FileRules, PlatformChannel
from channels.shared.rate_limit import RateLimiter, RateLimits, RateLimitScope
from channels.shared.reply_layout import is_stop, press_refusal, press_toast
from channels.shared.reply_writer import ReplyWriter

log = logging.getLogger(__name__)

# open.feishu.cn/document/server-docs/im-v1/message-reaction/emojis-introduce
WORKING_EMOJI, DONE_EMOJI = "OnIt", "DONE"
CALL_BURST = 3
APP_SHARED = N_(
    "Another program answers with the same Feishu app, and Feishu gives each of them a part of the messages. Stop one"
    " of the two, or give it an app of its own."
)
REDELIVERY_SECONDS = 60.0  # after a shorter absence the platform redelivers all events
MAX_BACKOFF_SECONDS = 30.0
MAX_WORKING = 1_000  # messages with the sign of work
MAX_TOAST_CHARS = 100
CLICK_ANSWER_SECONDS = 1.0  # after the answer to a click: Feishu undoes earlier changes of its card


class FeishuChannel(PlatformChannel):
    """One app."""

    name = NAME
    limits = ChannelLimits(
        text_limit=MAX_CARD_BYTES, upload=feishu_files.MAX_UPLOAD_BYTES, download=feishu_files.MAX_DOWNLOAD_BYTES
    )

    def __init__(self, settings: FeishuSettings, program: Sequence[str] = PROGRAM) -> None:
        self._app_id = settings.app_id
        self._language = "zh" if settings.base_url == DOMAINS["feishu"] else ""  # Lark is for everywhere else
        self._api = FeishuApi(settings)
        super().__init__(self._api)
        self._cards = CardApi(self._api)
        self._history = FeishuHistory(self._api)
        self._rate_limiter = RateLimiter(RateLimits(settings.per_reply, CALL_BURST, overall=settings.overall))
        self._connection = FeishuConnection(settings, self._note_connection, program)
        self._history_due = asyncio.Event()
        self._missed_since = math.inf  # unix time from which the history has to be read in any case
        self._me: FeishuAccount | None = None
        self._command_names: frozenset[str] = frozenset()
        self._direct_chats: dict[str, str] = {}  # person → their direct chat, if it was seen
        # message → id of the reaction that shows work, "" if Feishu refused it
        self._working: LatestDict[str, asyncio.Future[str]] = LatestDict(MAX_WORKING)
        self._pipeline = InboundPipeline(
            NAME, self._background, apologize=self._apologize, show_working=self._show_working
        )

    # ------------------------------------------------------------ events

    async def listen(self, receive: Receive, past: CatchUpSource = NO_CATCH_UP) -> None:
        me = self._me = await self._identify()

        self._pipeline.receive = receive

        async def handle_event(raw: bytes) -> object:
            return await self._store_event(raw, me)

        gap = await past.open_gap(NAME, me.app_id) if past.hours else None  # before the first event moves watermarks
        async with asyncio.TaskGroup() as group:
            if gap is not None:
                group.create_task(self._catch_up(past, me, gap), name="feishu history")
            await self._connection.run(handle_event)

    async def _identify(self) -> FeishuAccount:
        """Ask for the bot's account, and retry until the platform answers."""
        health = self._connection.health
        while True:
            try:
                answer = await self._api("GET", "bot/v3/info")
                bot = answer.get("bot") or answer
                log.info("feishu.connected bot=%s", bot.get("app_name"))
                health.failures = 0
                return FeishuAccount(self._app_id, str(bot["open_id"]), self._language)
            except ChannelError as error:
                detail = self._api.token_state.fault or f"{error}."
                await asyncio.sleep(health.note_failure(detail, MAX_BACKOFF_SECONDS))

    def _note_connection(self, away: float) -> None:
        """Request a catch-up after `away` seconds without a connection; infinitely many at the start."""
        if away > REDELIVERY_SECONDS:
            if away < math.inf:
                self._missed_since = min(self._missed_since, time.time() - away - REDELIVERY_SECONDS)
            self._history_due.set()

    async def _catch_up(self, past: CatchUpSource, me: FeishuAccount, first: Gap) -> None:
        """Read missed messages after the start, after a long disconnect, and after a failure of the store."""
        gap: Gap | None = first
        while True:
            await self._history_due.wait()
            self._history_due.clear()
            since, self._missed_since = self._missed_since, math.inf
            if gap is None:
                gap = await self._pipeline.retry_until_stored(partial(past.open_gap, NAME, me.app_id))
            gap = replace(gap, heard=[replace(entry, time=min(entry.time, since)) for entry in gap.heard])
            if await self._pipeline.fill_gap(past, gap, self._history.missed_messages(gap.heard, past, me)):
                gap = None
            else:
                self._missed_since = min(self._missed_since, since)
                await asyncio.sleep(MAX_BACKOFF_SECONDS)
                self._history_due.set()

    async def _store_event(self, raw: bytes, me: FeishuAccount) -> object:
        """Store one event. Returns the answer to a click. Raises NotStored."""
        self._history.tenant = self._history.tenant or tenant_of(raw)
        event = parse_event(raw, me) or await self._parse_menu(raw, me)
        if event is None:
            return None
        try:
            if isinstance(event, Message):
                event, receipt = await self._pipeline.complete_and_store(event, self._history.named)
            else:
                [receipt] = await self._pipeline.store([event])
        except NotStored:
            if isinstance(event, Message):
                self._missed_since = min(self._missed_since, event.time)
            raise
        if self._missed_since < math.inf:  # redelivery may take up to seven hours: the history is faster
            self._history_due.set()
        if isinstance(event, Unreadable):
            return None
        if event.private and not event.thread.topic:
            self._direct_chats[event.author.id] = event.thread.chat
        return self._answer_press(event, receipt) if b"card.action.trigger" in raw else None

    async def _apologize(self, event: Message, text: str) -> None:
        await MessageSender(self._api, event.thread, "sorry", event.id).send_message("text", {"text": text}, "")

    async def _parse_menu(self, raw: bytes, me: FeishuAccount) -> Message | None:
        """Parse an entry of the bot's menu: its event names the person, but not the chat."""
        if b"application.bot.menu_v6" not in raw:
            return None
        event = orjson.loads(raw)
        try:
            person = event["event"]["operator"]["operator_id"]["open_id"]
            menu = parse_menu(event, me, self._direct_chats.get(person, ""), self._command_names)
            if menu and not menu.thread.chat:
                menu = replace(menu, thread=replace(menu.thread, chat=await self._open_direct_chat(person, menu)))
            return menu
        except (ChannelError, LookupError, TypeError) as error:
            log.warning("feishu.menu reason=%s", f"{type(error).__name__}: {error}")
            return None

    async def _open_direct_chat(self, person: str, menu: Message) -> str:
        """Write the command into the direct chat with a person, and return the chat's id."""
        body = {"receive_id": person, "msg_type": "text", "content": dump_json({"text": f"/{menu.text}"})}
        body["uuid"] = hashlib.blake2b(menu.key.encode(), digest_size=20).hexdigest()
        answer = await self._api.post_message("im/v1/messages", body, {"receive_id_type": "open_id"})
        return str(answer["chat_id"])

    def _answer_press(self, press: Message, receipt: Receipt) -> object:
        """Return the answer that ends the spinner, with the card that shows the choice in place of the buttons."""
        refusal = press_refusal(press, receipt)
        toast = {"type": "info" if refusal else "success", "content": press_toast(press, receipt)[:MAX_TOAST_CHARS]}
        answer: dict[str, object] = {"toast": toast}
        card_id = press.id.partition("/")[2]
        if refusal or is_stop(press):
            return answer
        if card := self._cards.questions.pop(card_id, None):
            answer["card"] = {"type": "raw", "data": answered_card(card, press)}
        elif card_id:  # a card of an earlier process
            self._background.start_best_effort(self._close_buttons(card_id, press), f"feishu click {press.key}")
        return answer

    async def _close_buttons(self, card_id: str, press: Message) -> None:
        await asyncio.sleep(CLICK_ANSWER_SECONDS)
        await self._cards.replace_element(card_id, CHOICES, choice_element(press))

    async def _react(self, message_id: str, emoji: str) -> str:
        """Add a reaction and return its id."""
        body = {"reaction_type": {"emoji_type": emoji}}
        return str((await self._api("POST", f"im/v1/messages/{message_id}/reactions", body))["reaction_id"])

    async def _show_working(self, message: Message) -> None:
        added = self._working[message.id] = asyncio.get_running_loop().create_future()
        try:
            added.set_result(await self._react(message.id, WORKING_EMOJI))
        finally:
            if not added.done():
                added.set_result("")

    async def _show_finished(self, message_id: str, *, done: bool) -> None:
        """Take the sign of work off a message, and mark it as done."""
        working = self._working.pop(message_id, None)
        if working and (reaction := await working):
            with suppress(ChannelError):
                await self._api("DELETE", f"im/v1/messages/{message_id}/reactions/{reaction}")
        if done:
            await self._react(message_id, DONE_EMOJI)

    def _connection_readiness(self) -> Readiness:
        shared = APP_SHARED if self._api.own_posts.is_shared else ""
        return self._connection.readiness().with_fault(shared)

    # ------------------------------------------------------------ replies

    def reply(self, thread: Thread, posts: SentMessages, *, to: str = "", asker: str = "") -> Reply:
        renderer = FeishuRenderer(self._api, self._cards, thread, posts, to)

        def show_finished(final: Final) -> None:
            if to.startswith("om_") and "/" not in to and not final.mention:
                finishing = self._show_finished(to, done=final.state == "done" and not final.asks)
                self._background.start_best_effort(finishing, f"feishu finished {to}")

        scope = self._rate_limit_scope(thread)
        return self._add_reply(ReplyWriter(renderer, posts, scope, on_finished=show_finished))

    def _file_rules(self, thread: Thread) -> FileRules:
        return FileRules(
            feishu_files.MAX_UPLOAD_BYTES, feishu_files.MAX_PICTURES_PER_MESSAGE, feishu_files.kind_of_group
        )

    async def _upload(self, thread: Thread, file: OutgoingFile) -> tuple[str, dict[str, str]]:
        return await feishu_files.upload_file(self._api, file)

    async def _post_files(self, thread: Thread, post: FilePost) -> str:
        """Post pictures as one message; a file, and its caption as text, because no message takes both."""
        if len(post.files) > 1:
            content = feishu_files.pictures_content(post.files, post.uploads)
            return await MessageSender(self._api, thread, post.key).send_message(
                "post", content, f"file{post.index or ''}"
            )
        [file], [(kind, content)], number = post.files, post.uploads, post.index or ""
        sender = MessageSender(self._api, thread, post.key)
        message_id = await sender.send_message(kind, content, f"file{number}")
        if file.caption:
            await sender.send_message("text", {"text": without_mentions(file.caption)}, f"caption{number}")
        return message_id

    async def _open_download(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        return await feishu_files.open_download(self._api, attachment)

    async def enrich(self, message: Message, earlier: int, since: float = 0.0) -> Message:
        return await self._history.enrich(message, earlier, since, self._me) if self._me else message

    def begins_threads(self, chat: Thread) -> bool:
        """In groups: `reply_in_thread` makes any message the root of a topic (…/im-v1/message/reply)."""
        return chat.chat not in self._direct_chats.values()

    async def open_private_chat(self, person: str, near: Thread) -> Thread:
        """Return the private chat with a person: a post may name an `open_id` (…/im-v1/message/create)."""
        return Thread(NAME, near.workspace, person)

    async def is_gone(self, person: str) -> bool | None:
        return await self._history.is_gone(person)

    async def announce(self, commands: Sequence[CommandInfo]) -> None:
        """Keep the names. Feishu cannot list commands; the operator adds them to the bot's menu."""
        self._command_names = frozenset(command.name for command in commands)

    def _rate_limit_scope(self, thread: Thread) -> RateLimitScope:
        return RateLimitScope(self._rate_limiter, str(thread), idempotent_posts=IDEMPOTENT_POSTS)
