"""Persist gateway events in order; read missed messages first.

Discord keeps no events and takes no acknowledgement: an event that cannot be stored stays in memory and is retried.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from agent.messages import Kind, Message, Thread, Unreadable
from channels.base import CatchUpSource, Gap, NotStored, Receive
from channels.discord import events
from channels.discord.api import NO_MENTIONS, NONCE_MARK, DiscordApi
from channels.discord.guild_cache import DIRECT_WORKSPACE, NAME, GuildCache
from channels.discord.history import GAPS, RecentTalk, missed_messages
from channels.discord.interactions import Interactions
from channels.discord.threads import DiscordThreads
from channels.shared.background import BackgroundTasks
from channels.shared.caches import FairQueue
from channels.shared.inbound import MAX_BATCH, MAX_OF_ONE, Event, InboundPipeline, author_of

log = logging.getLogger(__name__)

REQUEST_EVENTS = frozenset({"MESSAGE_CREATE", "MESSAGE_UPDATE", "INTERACTION_CREATE"})
CHAT_EVENTS = REQUEST_EVENTS | {"MESSAGE_DELETE", "MESSAGE_DELETE_BULK", *events.REACTIONS}

Frame = dict[str, Any]  # Discord defines the shape


class Inbound:
    """Parses the gateway's frames and offers them to the inbox."""

    def __init__(
        self,
        api: DiscordApi,
        cache: GuildCache,
        talk: RecentTalk,
        threads: DiscordThreads,
        interactions: Interactions,
        background: BackgroundTasks,
        *,
        opens_threads: bool,
    ) -> None:
        self._api = api
        self._cache = cache
        self._talk = talk
        self._threads = threads
        self._interactions = interactions
        self._me = events.DiscordAccount("", opens_threads=opens_threads)
        self._frames: asyncio.Queue[Frame] = asyncio.Queue()
        self._events: FairQueue[Event] = FairQueue()
        self._arrived = asyncio.Event()
        self._unresolved: dict[str, list[Frame]] = {}  # unknown channel → its frames, which wait for its address
        self._unavailable: set[str] = set()  # servers whose history is read when they come back
        self._held: dict[str, list[Event]] = {}  # workspace → live events that wait until its history is read
        self._read_again: set[str] = set()  # workspaces that were lost again meanwhile
        self._background = background
        self._pipeline = InboundPipeline(
            NAME,
            background,
            apologize=self._apologize,
            show_working=lambda event: threads.show_typing(event.thread),
            place_of=self._place_of,
        )
        self._past: CatchUpSource  # `run` sets these two
        self._tasks: asyncio.TaskGroup

    def receive_frame(self, frame: Frame) -> None:
        self._frames.put_nowait(frame)

    def set_commands(self, names: frozenset[str]) -> None:
        """Set the names that make a command after a "!"."""
        self._me = replace(self._me, command_names=names)

    async def run(self, receive: Receive, past: CatchUpSource) -> None:
        """Take events until cancelled. Errors of `receive` other than NotStored are raised."""
        self._pipeline.receive, self._past = receive, past
        async with asyncio.TaskGroup() as self._tasks:
            self._tasks.create_task(self._store_in_order(), name="discord store")
            while True:
                self._take_frame(await self._frames.get())

    async def _store_in_order(self) -> None:
        """Store parsed events; while the store fails, parsing goes on, so that interactions still get a response."""
        while await self._arrived.wait():
            self._arrived.clear()
            while batch := self._events.take(MAX_BATCH, MAX_OF_ONE):
                await self._store_batch(batch)

    # ------------------------------------------------------------ reading

    def _take_frame(self, frame: Frame) -> None:
        """Read a frame. Those of an unknown channel wait for its address, and nothing else waits for that."""
        kind, data = str(frame["t"]), frame["d"]
        thread: Thread | None = None
        if kind in CHAT_EVENTS and (channel_id := str(data.get("channel_id") or "")):
            if channel_id in self._unresolved:
                self._unresolved[channel_id].append(frame)
                return
            guild_id = str(data.get("guild_id") or "")
            if (thread := self._cache.find_thread(channel_id, guild_id)) is None:
                self._unresolved[channel_id] = [frame]
                self._tasks.create_task(self._resolve(channel_id, guild_id), name=f"discord channel {channel_id}")
                return
        self._put(self._read_frame(kind, data, thread))

    async def _resolve(self, channel_id: str, guild_id: str) -> None:
        """Ask for the address of a channel, and read the frames that wait for it."""
        thread = await self._cache.resolve_thread(channel_id, guild_id)
        for frame in self._unresolved.pop(channel_id):
            self._put(self._read_frame(str(frame["t"]), frame["d"], thread))

    def _put(self, found: Sequence[Event]) -> None:
        for event in found:
            self._events.put(author_of(event), event)
            self._arrived.set()

    def _read_frame(self, kind: str, data: Frame, thread: Thread | None) -> list[Event]:
        """Read a frame. `thread` is the address of its channel, if it has one."""
        try:
            return self._parse_frame(kind, data, thread)
        except Exception as error:  # the boundary of one event: a shape that we do not know must not stop the others
            if kind in REQUEST_EVENTS:
                return [events.make_unreadable(kind, data, error)]
            log.warning("discord.unreadable event=%s", kind, exc_info=error)
            return []

    def _parse_frame(self, kind: str, data: Frame, thread: Thread | None) -> list[Event]:
        if kind == "READY":
            self._start_session(data)
            return []
        self._cache.apply_event(kind, data, self._me.id)
        if kind in GAPS:
            self._talk.forget(str(data.get("guild_id") or data["id"]))
        if kind == "GUILD_DELETE" and data.get("unavailable"):
            self._unavailable.add(data["id"])  # its events are lost until it is back
        if kind == "GUILD_CREATE" and data["id"] in self._unavailable:
            self._unavailable.discard(data["id"])
            self._catch_up(data["id"])
        if kind not in CHAT_EVENTS:
            return []
        if thread is None:
            raise LookupError("it names no channel")
        parsed: list[Event] = []
        match kind:
            case "MESSAGE_CREATE":
                self._note_own_message(data)
                message = events.read_message(data, thread, self._account_in(thread))
                if thread.workspace != DIRECT_WORKSPACE:
                    author = events.author_of(data)
                    self._cache.note_outsider(thread.workspace, author.id, author.guest)
                    self._talk.note(thread.workspace, data["channel_id"], data["id"], events.make_quote(message))
                parsed += [message] if message and _concerns_bot(message) else []
            case "MESSAGE_UPDATE":
                if {"author", "content"} <= data.keys():
                    said = events.read_message(data, thread, self._account_in(thread))
                    self._talk.change(data["channel_id"], data["id"], events.make_quote(said))
                edit = events.parse_edit(data, thread, self._account_in(thread))
                parsed += [edit] if edit else []
            case "MESSAGE_REACTION_ADD" | "MESSAGE_REACTION_REMOVE":
                reaction = events.parse_reaction(data, thread, self._me, time.time(), events.REACTIONS[kind])
                parsed += [reaction] if reaction else []
            case "MESSAGE_DELETE" | "MESSAGE_DELETE_BULK":
                self._talk.remove(data["channel_id"], data.get("ids") or [data["id"]])
                parsed += events.parse_delete(data, thread, time.time())
            case "INTERACTION_CREATE":
                message = events.parse_interaction(data, thread, self._me)
                answering = (
                    self._interactions.store_and_answer(data, message, self._pipeline)
                    if message
                    else self._interactions.acknowledge_foreign(data)
                )
                self._background.start_best_effort(answering, f"interaction {data['id']}")
        held = self._held.get(thread.workspace)
        if held is None:
            return parsed
        held += parsed
        return []

    def _note_own_message(self, data: Frame) -> None:
        """Recognise a message that another Fawn with this token posted, by its nonce."""
        nonce = str(data.get("nonce") or "")
        if data["author"]["id"] == self._me.id and nonce.startswith(NONCE_MARK) and nonce not in self._api.nonces:
            self._threads.note_foreign_post(data["channel_id"])

    def _start_session(self, data: Frame) -> None:
        """Start a new session: events before it are only in the history."""
        self._me = replace(self._me, id=data["user"]["id"])
        self._threads.bot_id = self._talk.bot_id = self._me.id
        self._talk.forget()
        self._unavailable = {guild["id"] for guild in data["guilds"]}
        self._catch_up(DIRECT_WORKSPACE)
        log.info("discord.connected bot=%s servers=%d", data["user"]["username"], len(self._unavailable))

    def _account_in(self, thread: Thread) -> events.DiscordAccount:
        guild = self._cache.guilds.get(thread.workspace)
        return replace(self._me, bot_role=guild.bot_role) if guild and guild.bot_role else self._me

    async def _parse_missed(self, found: Sequence[Frame], thread: Thread) -> list[Event]:
        """Return the messages of the history that concern the bot, with what it does not say: who is a guest."""
        read = (events.read_message(data, thread, self._account_in(thread)) for data in found)
        missed = [message for message in read if message and _concerns_bot(message)]
        for at, each in enumerate(missed if thread.workspace != DIRECT_WORKSPACE else ()):
            if isinstance(each, Message) and not each.author.bot:
                guest = await self._cache.is_outsider(thread.workspace, each.author.id)
                missed[at] = replace(each, author=replace(each.author, guest=guest))
        return missed

    # ------------------------------------------------------------ storing

    async def _store_batch(self, batch: Sequence[Event], *, live: bool = True) -> None:
        """Store events, and retry until they are stored. `live`: they are not from the history."""
        if not batch or self._api.token_shared:
            return
        for event in batch:
            if live and isinstance(event, Message) and event.kind is Kind.CHAT and event.thread.topic == event.id:
                self._threads.remember_title(event.id, event.text)
        await self._pipeline.store_with_retries(batch)

    def _place_of(self, event: Message) -> Thread:
        """Return where to apologize: in the channel while the thread does not exist."""
        exists = event.thread.topic in self._cache.channels
        return replace(event.thread, topic=event.thread.topic if exists else event.thread.chat)

    async def _apologize(self, event: Message, text: str) -> None:
        reference = {"message_id": event.id, "fail_if_not_exists": False}
        body = {"content": text, "message_reference": reference, "allowed_mentions": NO_MENTIONS}
        await self._api("POST", f"/channels/{self._place_of(event).topic}/messages", body)

    # ------------------------------------------------------------ catching up

    def _catch_up(self, workspace: str) -> None:
        if workspace in self._held:
            self._read_again.add(workspace)
        elif self._past.hours:
            self._held[workspace] = []
            self._tasks.create_task(self._read_history(workspace), name=f"discord history {workspace}")

    async def _read_history(self, workspace: str) -> None:
        """Store the missed messages of a workspace, then the live events that came meanwhile."""
        again = True
        while again:
            try:
                gap = await self._past.open_gap(NAME, workspace)
            except NotStored as error:
                log.warning("discord.no_gap workspace=%s reason=%s", workspace, error)
            else:  # a gap that stays open is read again by the next catch-up
                missed = self._missed_events(workspace, gap)
                await self._pipeline.fill_gap(self._past, gap, missed, partial(self._store_batch, live=False))
            again = workspace in self._read_again
            self._read_again.discard(workspace)
        while batch := self._held[workspace]:
            self._held[workspace] = []
            await self._store_batch(batch)
        del self._held[workspace]

    async def _missed_events(self, workspace: str, gap: Gap) -> AsyncIterator[list[Event]]:
        guild_id = "" if workspace == DIRECT_WORKSPACE else workspace
        async for channel_id, found in missed_messages(self._api, self._cache, self._past, workspace, gap):
            yield await self._parse_missed(found, await self._cache.resolve_thread(channel_id, guild_id))


def _concerns_bot(message: Event) -> bool:
    return isinstance(message, Unreadable) or message.addressed or message.follow_up or message.kind is Kind.COMMAND
