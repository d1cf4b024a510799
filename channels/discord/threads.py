"""Create, find and reopen the thread of a conversation."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from agent.messages import Thread
from catalogue import N_, _
from channels.base import ChatGone, Refused, TryLater
from channels.discord.api import NO_MENTIONS, TOKEN_SHARED, DiscordApi, Forbidden, ThreadArchived, ThreadExists
from channels.discord.events import DiscordAccount, parse_message
from channels.discord.guild_cache import GuildCache
from channels.shared.caches import LatestDict, TypingActions
from channels.shared.rate_limit import Priority, RateLimiter
from channels.shared.reply_writer import MessageMissing

log = logging.getLogger(__name__)

MAX_TITLES = 2_000  # new mentions whose text is kept
MAX_TITLE_CHARS = 100  # discord.com/developers/docs/resources/channel#start-thread-from-message
AUTO_ARCHIVE_MINUTES = 1440  # without a message
TYPING_SECONDS = 8.0  # Discord shows it for 10, unless a message comes (…#trigger-typing-indicator)

THREADS_FORBIDDEN = N_(
    "I can't open threads in this channel, so I'll answer here. To change that, ask a server admin to grant me"
    " “Create Public Threads” and “Send Messages in Threads”."
)


class DiscordThreads:
    """Finds the channel or thread into which a conversation's messages are posted."""

    def __init__(self, api: DiscordApi, cache: GuildCache, rate_limiter: RateLimiter) -> None:
        self._api = api
        self._rate_limiter = rate_limiter
        self._cache = cache
        self.bot_id = ""
        self._contested: set[str] = set()  # topics whose threads another program with this token opened
        self._foreign_posts: set[str] = set()  # topics into which another Fawn with this token posted
        self._titles: LatestDict[str, str] = LatestDict(MAX_TITLES)  # new mention → text that gives its thread a title
        self._attempted: deque[str] = deque(maxlen=1000)  # messages on which this process tried to open a thread
        self._without_thread: set[str] = set()  # topics that cannot have a thread
        self._creating: dict[str, asyncio.Task[None]] = {}  # topic → the task that creates its thread
        self._explained: dict[str, bool] = {}  # channels that forbid threads → whether the bot has said so there
        self.chats_without_files: set[str] = set()  # where the bot may not attach files
        self._typing: TypingActions[str] = TypingActions(
            TYPING_SECONDS, lambda channel_id: api("POST", f"/channels/{channel_id}/typing")
        )

    def remember_title(self, message_id: str, text: str) -> None:
        """Keep the text of a new mention: its thread may need a title soon."""
        self._titles[message_id] = text

    def note_foreign_post(self, channel_id: str) -> None:
        """Note that another Fawn with this token posted. It proves more only in the thread of a new mention."""
        if channel_id in self._titles:
            self._foreign_posts.add(channel_id)
            self._is_taken(channel_id)

    def _is_taken(self, topic: str) -> bool:
        """Whether a second Fawn answers a new mention: it has opened the thread and posted there."""
        taken = topic in self._contested and topic in self._foreign_posts
        if taken:
            self._api.report_shared_token("it has answered a mention already")
        return taken

    def has_no_thread(self, thread: Thread) -> bool:
        """Whether the thread of a conversation could not be created: its answers refer to the message instead."""
        return thread.topic in self._without_thread

    async def ensure_thread(self, thread: Thread) -> str:
        """Return the id of the channel to post into, and create a missing thread.

        Raises ChatGone where a second program answers.
        """
        if self._is_taken(thread.topic):
            raise ChatGone(TOKEN_SHARED)
        if self._is_missing(thread):
            creating = self._creating.get(thread.topic)
            if creating is None:  # a task of its own: several callers may wait for it, and each may be cancelled
                creating = asyncio.create_task(self._create_thread(thread), name=f"discord thread {thread.topic}")
                self._creating[thread.topic] = creating
                creating.add_done_callback(partial(self._creation_ended, thread.topic))
            await asyncio.shield(creating)
        return thread.chat if not thread.topic or self.has_no_thread(thread) else thread.topic

    def _creation_ended(self, topic: str, creating: asyncio.Task[None]) -> None:
        del self._creating[topic]
        if not creating.cancelled() and (error := creating.exception()):  # retrieved here: all callers may be cancelled
            log.debug("discord.no_thread topic=%s reason=%s", topic, error)

    async def close(self) -> None:
        tasks = list(self._creating.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _is_missing(self, thread: Thread) -> bool:
        """Whether a thread has to be created before a post."""
        return bool(thread.topic) and thread.topic not in self._cache.channels and not self.has_no_thread(thread)

    async def call_in_thread(self, thread: Thread, call: Callable[[str], Awaitable[Any]]) -> Any:
        """Make a call with the id of the thread, which is created or reopened first where needed."""
        channel_id = await self.ensure_thread(thread)
        try:
            return await call(channel_id)
        except ThreadArchived:
            await self._api("PATCH", f"/channels/{channel_id}", {"archived": False})
            return await call(channel_id)
        except ChatGone:
            if channel_id == thread.topic:  # it may have been deleted: fetch it again next time
                self._cache.channels.pop(channel_id, None)
            raise

    async def show_typing(self, thread: Thread) -> None:
        """Show that the bot is typing; in the parent channel while the thread does not exist."""
        in_parent = not thread.topic or self.has_no_thread(thread) or self._is_missing(thread)
        channel_id = thread.chat if in_parent else thread.topic
        if not self._typing.shows(channel_id) and self._rate_limiter.try_acquire(
            f"typing {channel_id}", Priority.STREAM
        ):
            await self._typing.show(channel_id)

    def clear_typing(self, channel_id: str) -> None:
        """Note that a message of the bot has ended the typing indicator."""
        self._typing.forget(channel_id)

    async def _create_thread(self, thread: Thread) -> None:
        path = f"/channels/{thread.chat}/messages/{thread.topic}"
        is_first_attempt = thread.topic in self._titles and thread.topic not in self._attempted
        self._attempted.append(thread.topic)
        made: dict[str, Any] = {}
        try:
            text = await self._opening_text(thread)
            await self._rate_limiter.acquire(f"thread {thread.topic}", Priority.FINAL)  # the end needs it, too
            body = {"name": thread_title(text), "auto_archive_duration": AUTO_ARCHIVE_MINUTES}
            made = await self._api("POST", f"{path}/threads", body)
        except ThreadExists:
            if is_first_attempt and await self._thread_owner(thread.topic) == self.bot_id:
                self._contested.add(thread.topic)  # by a script, perhaps
                if self._is_taken(thread.topic):
                    raise ChatGone(TOKEN_SHARED) from None
        except MessageMissing:  # the message was deleted, or the thread has none (a forum's post)
            if not await self._thread_owner(thread.topic):
                self._without_thread.add(thread.topic)
                return
        except Refused as error:  # not allowed, too many, or a channel that cannot have threads
            if isinstance(error, ChatGone) and not isinstance(error, Forbidden):
                raise
            log.warning("discord.no_threads channel=%s reason=%s", thread.chat, error)
            self._without_thread.add(thread.topic)
            if isinstance(error, Forbidden):
                self._explained.setdefault(thread.chat, False)
            return
        self._cache.add_thread(thread, made)

    async def set_title(self, thread: Thread, title: str) -> None:
        """Rename a thread that the bot opened and nobody has renamed. Discord allows two new names in 10 minutes."""
        if not thread.topic or self._is_missing(thread) or self.has_no_thread(thread):
            return
        if not self.bot_id:
            raise TryLater("the bot does not know its account yet")
        known = self._cache.channels[thread.topic]  # its events tell who has renamed it
        owner, name = known.owner_id, known.name
        if not (owner and name):
            found = await self._api("GET", f"/channels/{thread.topic}")
            owner, name = str(found.get("owner_id")), found["name"]
        if owner == self.bot_id and name == thread_title(await self._opening_text(thread)):
            await self._api("PATCH", f"/channels/{thread.topic}", {"name": thread_title(title)})

    async def _opening_text(self, thread: Thread) -> str:
        """Return the text of the message on which a thread was opened, as its event had it."""
        if (text := self._titles.get(thread.topic)) is not None:
            return text
        found = await self._api("GET", f"/channels/{thread.chat}/messages/{thread.topic}")
        message = parse_message(found, thread, DiscordAccount(self.bot_id))
        return message.text if message else ""

    async def _thread_owner(self, topic: str) -> str:
        """Return the id of the user who opened a thread; "" when it does not exist."""
        try:
            return str((await self._api("GET", f"/channels/{topic}")).get("owner_id") or "?")
        except ChatGone:
            return ""

    async def explain_missing_threads(self, thread: Thread) -> None:
        """Explain once in a channel why answers come without threads."""
        if self._explained.get(thread.chat, True):
            return
        self._explained[thread.chat] = True
        body = {"content": f"-# {_(THREADS_FORBIDDEN)}", "allowed_mentions": NO_MENTIONS}
        await self._api("POST", f"/channels/{thread.chat}/messages", body)


def thread_title(text: str) -> str:
    """Return the first words of a message as the title of its thread."""
    words = " ".join(text.split()) or "Fawn"
    if len(words) <= MAX_TITLE_CHARS:
        return words
    cut = words[: MAX_TITLE_CHARS - 1]
    return (cut.rpartition(" ")[0] if " " in cut[MAX_TITLE_CHARS // 2 :] else cut) + "…"
