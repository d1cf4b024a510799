"""Create, find and reopen the thread of a conversation."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from agent.messages import Thread
from channels.base import ChannelError, ChatGone, Refused
from channels.discord.api import DiscordApi, Forbidden, ThreadArchived, ThreadExists
from channels.discord.guild_cache import GuildCache
from channels.discord.second_instance import DETECTED, SecondInstance
from channels.shared.rate_limit import Priority, RateLimiter
from channels.shared.reply_writer import MessageMissing

log = logging.getLogger(__name__)

MAX_TITLE_CHARS = (
    100  # characters of a thread's name (discord.com/developers/docs/resources/channel#start-thread-from-message)
)
AUTO_ARCHIVE_MINUTES = 1440  # minutes without a message until Discord archives it
TYPING_SECONDS = 8.0  # seconds that typing shows at least (…#trigger-typing-indicator: 10), unless a message comes

NO_THREADS = (
    "I can't open threads in this channel, so I answer right here. Whoever runs this server can allow me to"
    " “Create Public Threads” and “Send Messages in Threads”."
)


class DiscordThreads:
    """Where the posts of each conversation go."""

    def __init__(self, calls: DiscordApi, places: GuildCache, second: SecondInstance, budget: RateLimiter) -> None:
        self._calls = calls
        self._budget = budget
        self._places = places
        self._second = second
        self.account = ""  # the bot's user id
        self._made_here: deque[str] = deque(maxlen=1000)  # messages whose threads this process tried to open
        self._others: set[str] = set()  # topics whose threads a second program on this token opened
        self._titles: dict[str, str] = {}  # message → the first words of a thread that may hang on it
        self._barred: set[str] = set()  # topics without a thread of their own
        self._making: dict[str, asyncio.Task[None]] = {}  # topic → its thread being made
        self._closed: dict[str, bool] = {}  # channels that forbid threads → whether that was said there
        self._typing: dict[str, float] = {}  # room → until when typing shows

    def expect_thread(self, message: str, text: str) -> None:
        """A mention came in just now that may get a thread."""
        if len(self._titles) >= 2000:
            for old in list(self._titles)[:1000]:
                del self._titles[old]
        self._titles[message] = text

    def has_no_thread(self, thread: Thread) -> bool:
        """The conversation has no thread although it should: its answers refer to the message."""
        return thread.topic in self._barred

    async def ensure_thread(self, thread: Thread) -> str:
        """The id of the channel to post into; a missing thread is made. Raises Gone where another program answers."""
        if thread.topic in self._others:
            raise ChatGone(DETECTED)
        if self._is_missing(thread):
            making = self._making.get(thread.topic)
            if making is None:  # who waits for it may go away meanwhile, others may come
                making = asyncio.create_task(self._create_thread(thread), name=f"discord thread {thread.topic}")
                self._making[thread.topic] = making
                making.add_done_callback(partial(self._await_thread, thread.topic))
            await asyncio.shield(making)
        return thread.chat if not thread.topic or self.has_no_thread(thread) else thread.topic

    def _await_thread(self, topic: str, making: asyncio.Task[None]) -> None:
        del self._making[topic]
        if not making.cancelled() and (error := making.exception()):  # if nobody waits any more, the next one tries
            log.debug("discord.no_thread topic=%s reason=%s", topic, error)

    async def close(self) -> None:
        """Make no thread any more."""
        making = list(self._making.values())
        for each in making:
            each.cancel()
        await asyncio.gather(*making, return_exceptions=True)

    def _is_missing(self, thread: Thread) -> bool:
        """A thread is missing that could be made."""
        return bool(thread.topic) and thread.topic not in self._places.spots and not self.has_no_thread(thread)

    async def call_in_thread(self, thread: Thread, call: Callable[[str], Awaitable[Any]]) -> Any:
        """Make a call into the room, which is made or opened when it has to be."""
        room = await self.ensure_thread(thread)
        try:
            return await call(room)
        except ThreadArchived:
            await self._calls("PATCH", f"/channels/{room}", {"archived": False})
            return await call(room)
        except ChatGone:
            if room == thread.topic:  # it may have been deleted: look again next time
                self._places.spots.pop(room, None)
            raise

    async def show_typing(self, thread: Thread) -> None:
        """Say that somebody works; in the channel as long as the thread is not there."""
        room = (
            thread.chat if not thread.topic or self.has_no_thread(thread) or self._is_missing(thread) else thread.topic
        )
        now = time.monotonic()
        if self._typing.get(room, 0.0) > now or not self._budget.try_acquire(f"typing {room}", Priority.STREAM):
            return
        if len(self._typing) > 1000:
            self._typing = {known: until for known, until in self._typing.items() if until > now}
        self._typing[room] = now + TYPING_SECONDS
        try:
            await self._calls("POST", f"/channels/{room}/typing")
        except ChannelError:
            self.typing_ended(room)
            raise

    def typing_ended(self, room: str) -> None:
        """A message of the bot takes the typing away."""
        self._typing.pop(room, None)

    async def _create_thread(self, thread: Thread) -> None:
        where = f"/channels/{thread.chat}/messages/{thread.topic}"
        first = thread.topic not in self._made_here
        self._made_here.append(thread.topic)
        try:
            text = self._titles.get(thread.topic)
            if text is None:
                text = str((await self._calls("GET", where)).get("content") or "")
            await self._budget.acquire(f"thread {thread.topic}", Priority.FIRST)
            await self._calls(
                "POST", f"{where}/threads", {"name": thread_title(text), "auto_archive_duration": AUTO_ARCHIVE_MINUTES}
            )
        except ThreadExists:
            if first and thread.topic in self._titles and await self._thread_owner(thread.topic) == self.account:
                self._second.report("it had opened the thread already")
                self._others.add(thread.topic)
                raise ChatGone(DETECTED) from None
        except MessageMissing:  # the message was deleted, or the thread does not hang on one (a forum's post)
            if not await self._thread_owner(thread.topic):
                self._barred.add(thread.topic)
                return
        except Refused as error:  # not allowed, too many, or no channel for threads
            if isinstance(error, ChatGone) and not isinstance(error, Forbidden):
                raise
            log.warning("discord.no_threads channel=%s reason=%s", thread.chat, error)
            self._barred.add(thread.topic)
            if isinstance(error, Forbidden):
                self._closed.setdefault(thread.chat, False)
            return
        self._places.thread_opened(thread)

    async def _thread_owner(self, topic: str) -> str:
        """Who opened a thread; "" when there is none."""
        try:
            return str((await self._calls("GET", f"/channels/{topic}")).get("owner_id") or "?")
        except ChatGone:
            return ""

    async def explain_missing_threads(self, thread: Thread) -> None:
        """Say once in a channel why its answers have no threads."""
        if self._closed.get(thread.chat, True):
            return
        self._closed[thread.chat] = True
        body = {"content": f"-# {NO_THREADS}", "allowed_mentions": {"parse": []}}
        await self._calls("POST", f"/channels/{thread.chat}/messages", body)


def thread_title(text: str) -> str:
    """The first words of a message as the name of a thread."""
    words = " ".join(text.split()) or "Fawn"
    if len(words) <= MAX_TITLE_CHARS:
        return words
    cut = words[: MAX_TITLE_CHARS - 1]
    return (cut.rpartition(" ")[0] if " " in cut[MAX_TITLE_CHARS // 2 :] else cut) + "…"
