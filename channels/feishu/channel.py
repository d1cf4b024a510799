"""The Feishu channel itself: events, readiness, replies, files."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakSet

import orjson

from agent.blocks import Final
from agent.messages import Attachment, Kind, Message, Thread, Unreadable
from channels.base import (
    NO_CATCH_UP,
    CatchUpSource,
    ChannelError,
    ChannelLimits,
    CommandInfo,
    Gap,
    Health,
    NotStored,
    OutgoingFile,
    Readiness,
    Receipt,
    Receive,
    Reply,
    SentMessages,
)
from channels.feishu import FeishuSettings
from channels.feishu import files as feishu_files
from channels.feishu.api import FeishuApi
from channels.feishu.card_api import CardApi
from channels.feishu.card_renderer import MAX_CARD_BYTES, FeishuMessage, choice_element
from channels.feishu.connection import FeishuConnection
from channels.feishu.events import NAME, FeishuAccount, parse_event, parse_menu
from channels.feishu.history import History
from channels.feishu.reply import FeishuRenderer, MessageSender
from channels.shared.health import backoff_seconds
from channels.shared.rate_limit import RateLimiter, RateLimits, RateLimitScope
from channels.shared.reply_writer import ReplyWriter
from channels.shared.texts import NOT_STORED

log = logging.getLogger(__name__)

WORKING_EMOJI, DONE = "OnIt", "DONE"  # open.feishu.cn/document/server-docs/im-v1/message-reaction/emojis-introduce
CALL_BURST = 3
KEPT_SECONDS = 60.0  # seconds: what came in a shorter absence is delivered again by itself
MAX_BACKOFF_SECONDS = 30.0  # seconds between two tries to introduce ourselves

NOT_YOURS = "Only the person who was asked can answer this, or someone has already answered."


class ReactingReplyWriter(ReplyWriter[FeishuMessage]):
    """A reply that tells when it is complete."""

    def __init__(
        self, surface: FeishuRenderer, posts: SentMessages, place: RateLimitScope, done: Callable[[Final], None]
    ) -> None:
        super().__init__(surface, posts, place)
        self._done = done

    async def finish(self, final: Final) -> None:
        await super().finish(final)
        self._done(final)


class FeishuChannel:
    """One app."""

    name = NAME
    limits = ChannelLimits(
        text_limit=MAX_CARD_BYTES, upload=feishu_files.MAX_UPLOAD_BYTES, download=feishu_files.MAX_DOWNLOAD_BYTES
    )
    window = 0.2

    def __init__(self, settings: FeishuSettings) -> None:
        self._app = settings.app_id
        self._calls = FeishuApi(settings)
        self._cards = CardApi(self._calls)
        self._history = History(self._calls)
        self._budget = RateLimiter(RateLimits(settings.per_reply, CALL_BURST, overall=settings.overall))
        self._link = FeishuConnection(settings, self._connection_began)
        self._missed = asyncio.Event()  # there is something to be read back…
        self._since = math.inf  # …from this time on
        self._me: FeishuAccount | None = None
        self._commands: frozenset[str] = frozenset()
        self._directs: dict[str, str] = {}  # person → their direct chat, as far as it was seen
        self._told: set[Thread] = set()  # who knows that messages cannot be stored
        self._writers: WeakSet[ReactingReplyWriter] = WeakSet()
        self._signs: set[asyncio.Task[None]] = set()  # calls that nothing depends on

    async def open(self) -> None:
        """Get ready to make calls."""
        await self._calls.open()

    async def close(self) -> None:
        """Stop every reply and hang up."""
        await asyncio.gather(*(writer.close() for writer in list(self._writers)))
        for task in self._signs:
            task.cancel()
        await asyncio.gather(*self._signs, return_exceptions=True)
        await self._calls.close()

    # ------------------------------------------------------------ in

    async def listen(self, receive: Receive, past: CatchUpSource = NO_CATCH_UP) -> None:
        me = self._me = await self._identify()

        async def take(raw: bytes) -> object:
            return await self._store_event(raw, me, receive)

        gap = await past.open_gap(NAME, me.app) if past.hours else Gap()  # before the first event moves it on
        async with asyncio.TaskGroup() as group:
            group.create_task(self._catch_up(receive, past, me, gap), name="feishu history")
            await self._link.run(take)

    async def _identify(self) -> FeishuAccount:
        """Who we are; tried until the platform says so."""
        tries = 0
        while True:
            try:
                answer = await self._calls("GET", "bot/v3/info")
                bot = answer.get("bot") or answer
                log.info("feishu.hello bot=%s", bot.get("app_name"))
                return FeishuAccount(self._app, str(bot["open_id"]))
            except ChannelError as error:
                tries += 1
                self._link.vitals.set_health(Health.DOWN, self._calls.rejected or f"Feishu cannot be reached: {error}.")
                await asyncio.sleep(backoff_seconds(tries, MAX_BACKOFF_SECONDS))

    def _connection_began(self, away: float) -> None:
        if away > KEPT_SECONDS:
            self._since = min(self._since, time.time() - away - KEPT_SECONDS)
            self._missed.set()

    async def _catch_up(self, receive: Receive, past: CatchUpSource, me: FeishuAccount, first: Gap) -> None:
        """Read back what was missed: first what came before the start, later what got lost on the way."""
        gap: Gap | None = first

        async def offer(events: Sequence[Message | Unreadable]) -> list[Receipt]:
            receipts = await receive(events)
            for event, receipt in zip(events, receipts, strict=True):
                self._show_received(event, receipt)
            return receipts

        while True:
            await self._missed.wait()
            self._missed.clear()
            since, self._since = self._since, math.inf
            try:
                if gap is None:
                    gap = await past.open_gap(NAME, me.app) if past.hours else Gap()
                    gap = replace(gap, heard=[replace(place, time=min(place.time, since)) for place in gap.heard])
                await self._history.catch_up(offer, gap.heard, past, me)
                await past.close_gap(gap)
            except (ChannelError, NotStored) as error:
                log.warning("feishu.catch_up_failed reason=%s", error)
                await asyncio.sleep(MAX_BACKOFF_SECONDS)
                self._missed.set()
            else:
                gap = None

    async def _store_event(self, raw: bytes, me: FeishuAccount, receive: Receive) -> object:
        """Store one event; gives the answer to a click. Raises NotStored."""
        event = parse_event(raw, me) or await self._parse_menu(raw, me)
        if event is None:
            return None
        try:
            [receipt] = await receive([event])
        except NotStored:
            if isinstance(event, Message):
                self._since = min(self._since, event.time)
            self._apologize(event)
            raise
        self._told.clear()
        if self._since < math.inf:  # what could not be stored comes again, some time in seven hours; the history has it
            self._missed.set()
        if isinstance(event, Message) and event.private and not event.thread.topic:
            self._directs[event.author.id] = event.thread.chat
        if isinstance(event, Unreadable):
            log.error("feishu.unreadable key=%s reason=%s", event.key, event.error)
        elif event.kind is Kind.CLICK:
            return self._answer_click(event, receipt)
        self._show_received(event, receipt)
        return None

    def _show_received(self, event: Message | Unreadable, receipt: Receipt) -> None:
        """The sign of life: a reaction on what was taken."""
        if isinstance(event, Message) and event.kind is Kind.CHAT and receipt is Receipt.ACCEPTED:
            self._run_in_background(self._add_reaction(event.id, WORKING_EMOJI), f"reaction {event.id}")

    async def _parse_menu(self, raw: bytes, me: FeishuAccount) -> Message | None:
        """A command from the bot's menu: its event names the person, not the chat."""
        if b"application.bot.menu_v6" not in raw:
            return None
        event = orjson.loads(raw)
        try:
            person = event["event"]["operator"]["operator_id"]["open_id"]
            return parse_menu(event, me, await self._direct_chat(person), self._commands)
        except (ChannelError, LookupError, TypeError) as error:
            log.warning("feishu.menu reason=%s: %s", type(error).__name__, error)
            return None

    async def _direct_chat(self, person: str) -> str:
        """The direct chat with a person."""
        if person in self._directs:
            return self._directs[person]
        body = {"chatter_ids": [person]}
        query = {"chatter_id_type": "open_id"}
        answer = await self._calls("POST", "im/v1/chat_p2p/batch_query", body, query=query)
        return str(answer["p2p_chats"][0]["chat_id"])

    def _answer_click(self, click: Message, receipt: Receipt) -> object:
        """The answer that ends the spinner; the buttons give way to the choice."""
        if receipt is Receipt.ACCEPTED:
            self._run_in_background(
                self._cards.replace_element(click.id, "choices", choice_element(click.text)), f"click {click.key}"
            )
            return {"toast": {"type": "success", "content": f"✓ {click.text}"[:100]}}
        return {"toast": {"type": "info", "content": NOT_YOURS}}

    def _apologize(self, event: Message | Unreadable) -> None:
        """Say once per outage and thread that a message could not be stored."""
        if not isinstance(event, Message) or not event.addressed or event.kind not in (Kind.CHAT, Kind.COMMAND):
            return
        if event.thread not in self._told:
            self._told.add(event.thread)
            sender = MessageSender(self._calls, event.thread, "sorry", event.id)
            self._run_in_background(sender.send("text", {"text": NOT_STORED}, ""), f"not stored {event.thread}")

    async def _add_reaction(self, message_id: str, emoji: str) -> None:
        body = {"reaction_type": {"emoji_type": emoji}}
        await self._calls("POST", f"im/v1/messages/{message_id}/reactions", body)

    def _run_in_background(self, call: Awaitable[Any], name: str) -> None:
        """Make a call that nothing depends on."""

        async def quietly() -> None:
            try:
                await call
            except ChannelError as error:
                log.debug("feishu.sign task=%s reason=%s", name, error)

        task = asyncio.create_task(quietly(), name=f"feishu {name}")
        self._signs.add(task)
        task.add_done_callback(self._signs.discard)

    def readiness(self) -> Readiness:
        known = self._link.readiness()
        if self._calls.rejected and known.health is Health.READY:
            return Readiness(Health.DOWN, known.since, self._calls.rejected)
        return known

    # ------------------------------------------------------------ out

    def reply(self, thread: Thread, posts: SentMessages, *, to: str = "", asker: str = "") -> Reply:
        surface = FeishuRenderer(self._calls, self._cards, thread, posts, to)

        def done(final: Final) -> None:
            if to.startswith("om_") and not (final.asks or final.mention):
                self._run_in_background(self._add_reaction(to, DONE), f"done {to}")

        writer = ReactingReplyWriter(surface, posts, self._rate_limit_scope(thread), done)
        self._writers.add(writer)
        return writer

    async def send_file(self, thread: Thread, file: OutgoingFile, posts: SentMessages) -> None:
        await feishu_files.send_file(
            self._calls, MessageSender(self._calls, thread, posts.key), self._rate_limit_scope(thread), file, posts
        )

    def fetch(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        return feishu_files.fetch_attachment(self._calls, attachment)

    async def enrich(self, message: Message, earlier: int) -> Message:
        return await self._history.enrich(message, earlier, self._me) if self._me else message

    async def announce(self, commands: Sequence[CommandInfo]) -> None:
        """Feishu lists no commands; an entry of the bot's menu with a command's name as its key is one."""
        self._commands = frozenset(command.name for command in commands)

    def _rate_limit_scope(self, thread: Thread) -> RateLimitScope:
        return RateLimitScope(self._budget, str(thread), idempotent=True)
