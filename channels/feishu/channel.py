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

from agent.conversation import Attachment, Final, Kind, Message, Thread, Unreadable
from channels.base import (
    NO_PAST,
    ChannelError,
    CommandInfo,
    Gap,
    Health,
    Limits,
    NotStored,
    OutFile,
    Past,
    Posts,
    Readiness,
    Receipt,
    Receive,
    Reply,
)
from channels.feishu import Settings
from channels.feishu import files as feishu_files
from channels.feishu.api import Calls
from channels.feishu.card_api import Cards
from channels.feishu.card_renderer import LIMIT, Part, chosen
from channels.feishu.connection import Link
from channels.feishu.events import NAME, Me, menu, read
from channels.feishu.history import History
from channels.feishu.reply import Sender, Surface
from channels.shared.health import pause
from channels.shared.rate_limit import Budget, Place, Rates
from channels.shared.reply_writer import Writer
from channels.shared.texts import NOT_STORED

log = logging.getLogger(__name__)

WORKING, DONE = "OnIt", "DONE"  # open.feishu.cn/document/server-docs/im-v1/message-reaction/emojis-introduce
BURST = 3
KEPT = 60.0  # seconds: what came in a shorter absence is delivered again by itself
SLOWEST = 30.0  # seconds between two tries to introduce ourselves

NOT_YOURS = "This is not yours to answer, or it is answered already."


class Answer(Writer[Part]):
    """A reply that tells when it is complete."""

    def __init__(self, surface: Surface, posts: Posts, place: Place, done: Callable[[Final], None]) -> None:
        super().__init__(surface, posts, place)
        self._done = done

    async def finish(self, final: Final) -> None:
        await super().finish(final)
        self._done(final)


class Feishu:
    """One app."""

    name = NAME
    limits = Limits(text=LIMIT, upload=feishu_files.UPLOAD, download=feishu_files.DOWNLOAD)
    window = 0.2

    def __init__(self, settings: Settings) -> None:
        self._app = settings.app_id
        self._calls = Calls(settings)
        self._cards = Cards(self._calls)
        self._history = History(self._calls)
        self._budget = Budget(Rates(settings.per_reply, BURST, overall=settings.overall))
        self._link = Link(settings, self._connected)
        self._missed = asyncio.Event()  # there is something to be read back…
        self._since = math.inf  # …from this time on
        self._me: Me | None = None
        self._commands: frozenset[str] = frozenset()
        self._directs: dict[str, str] = {}  # person → their direct chat, as far as it was seen
        self._told: set[Thread] = set()  # who knows that messages cannot be stored
        self._writers: WeakSet[Answer] = WeakSet()
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

    async def listen(self, receive: Receive, past: Past = NO_PAST) -> None:
        me = self._me = await self._hello()

        async def take(raw: bytes) -> object:
            return await self._take(raw, me, receive)

        gap = await past.open_gap(NAME, me.app) if past.hours else Gap()  # before the first event moves it on
        async with asyncio.TaskGroup() as group:
            group.create_task(self._catch_up(receive, past, me, gap), name="feishu history")
            await self._link.run(take)

    async def _hello(self) -> Me:
        """Who we are; tried until the platform says so."""
        tries = 0
        while True:
            try:
                answer = await self._calls("GET", "bot/v3/info")
                bot = answer.get("bot") or answer
                log.info("feishu.hello bot=%s", bot.get("app_name"))
                return Me(self._app, str(bot["open_id"]))
            except ChannelError as error:
                tries += 1
                self._link.vitals.became(Health.DOWN, self._calls.rejected or f"Feishu cannot be reached: {error}.")
                await asyncio.sleep(pause(tries, SLOWEST))

    def _connected(self, away: float) -> None:
        if away > KEPT:
            self._since = min(self._since, time.time() - away - KEPT)
            self._missed.set()

    async def _catch_up(self, receive: Receive, past: Past, me: Me, first: Gap) -> None:
        """Read back what was missed: first what came before the start, later what got lost on the way."""
        gap: Gap | None = first

        async def offer(events: Sequence[Message | Unreadable]) -> list[Receipt]:
            receipts = await receive(events)
            for event, receipt in zip(events, receipts, strict=True):
                self._welcome(event, receipt)
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
                await asyncio.sleep(SLOWEST)
                self._missed.set()
            else:
                gap = None

    async def _take(self, raw: bytes, me: Me, receive: Receive) -> object:
        """Store one event; gives the answer to a click. Raises NotStored."""
        event = read(raw, me) or await self._menu(raw, me)
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
            return self._clicked(event, receipt)
        self._welcome(event, receipt)
        return None

    def _welcome(self, event: Message | Unreadable, receipt: Receipt) -> None:
        """The sign of life: a reaction on what was taken."""
        if isinstance(event, Message) and event.kind is Kind.CHAT and receipt is Receipt.ACCEPTED:
            self._soon(self._react(event.id, WORKING), f"reaction {event.id}")

    async def _menu(self, raw: bytes, me: Me) -> Message | None:
        """A command from the bot's menu: its event names the person, not the chat."""
        if b"application.bot.menu_v6" not in raw:
            return None
        event = orjson.loads(raw)
        try:
            person = event["event"]["operator"]["operator_id"]["open_id"]
            return menu(event, me, await self._direct(person), self._commands)
        except (ChannelError, LookupError, TypeError) as error:
            log.warning("feishu.menu reason=%s: %s", type(error).__name__, error)
            return None

    async def _direct(self, person: str) -> str:
        """The direct chat with a person."""
        if person in self._directs:
            return self._directs[person]
        body = {"chatter_ids": [person]}
        query = {"chatter_id_type": "open_id"}
        answer = await self._calls("POST", "im/v1/chat_p2p/batch_query", body, query=query)
        return str(answer["p2p_chats"][0]["chat_id"])

    def _clicked(self, click: Message, receipt: Receipt) -> object:
        """The answer that ends the spinner; the buttons give way to the choice."""
        if receipt is Receipt.ACCEPTED:
            self._soon(self._cards.swap(click.id, "choices", chosen(click.text)), f"click {click.key}")
            return {"toast": {"type": "success", "content": f"✓ {click.text}"[:100]}}
        return {"toast": {"type": "info", "content": NOT_YOURS}}

    def _apologize(self, event: Message | Unreadable) -> None:
        """Say once per outage and thread that a message could not be stored."""
        if not isinstance(event, Message) or not event.addressed or event.kind not in (Kind.CHAT, Kind.COMMAND):
            return
        if event.thread not in self._told:
            self._told.add(event.thread)
            sender = Sender(self._calls, event.thread, "sorry", event.id)
            self._soon(sender.send("text", {"text": NOT_STORED}, ""), f"not stored {event.thread}")

    async def _react(self, message_id: str, emoji: str) -> None:
        body = {"reaction_type": {"emoji_type": emoji}}
        await self._calls("POST", f"im/v1/messages/{message_id}/reactions", body)

    def _soon(self, call: Awaitable[Any], name: str) -> None:
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

    def reply(self, thread: Thread, posts: Posts, *, to: str = "", asker: str = "") -> Reply:
        surface = Surface(self._calls, self._cards, thread, posts, to)

        def done(final: Final) -> None:
            if to.startswith("om_") and not (final.asks or final.mention):
                self._soon(self._react(to, DONE), f"done {to}")

        writer = Answer(surface, posts, self._place(thread), done)
        self._writers.add(writer)
        return writer

    async def send_file(self, thread: Thread, file: OutFile, posts: Posts) -> None:
        await feishu_files.send(self._calls, Sender(self._calls, thread, posts.key), self._place(thread), file, posts)

    def fetch(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        return feishu_files.fetch(self._calls, attachment)

    async def enrich(self, message: Message, earlier: int) -> Message:
        return await self._history.enrich(message, earlier, self._me) if self._me else message

    async def announce(self, commands: Sequence[CommandInfo]) -> None:
        """Feishu lists no commands; an entry of the bot's menu with a command's name as its key is one."""
        self._commands = frozenset(command.name for command in commands)

    def _place(self, thread: Thread) -> Place:
        return Place(self._budget, str(thread), idempotent=True)
