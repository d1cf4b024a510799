"""The Discord channel itself: listening, readiness, replies, files, commands."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, BinaryIO
from weakref import WeakSet

from agent.messages import Attachment, Message, Quote, Thread
from channels.base import (
    NO_CATCH_UP,
    CatchUpSource,
    ChannelLimits,
    CommandInfo,
    Health,
    OutgoingFile,
    Readiness,
    Receive,
    Refused,
    Reply,
    SentMessages,
    TryLater,
    first_sent_message,
)
from channels.discord import DiscordSettings, events
from channels.discord.api import DiscordApi
from channels.discord.gateway import Gateway
from channels.discord.guild_cache import DIRECT_WORKSPACE, NAME, GuildCache
from channels.discord.inbound import Inbound
from channels.discord.interactions import Interactions, InteractionTokens
from channels.discord.reply import (
    MAX_MESSAGE_CHARS,
    SUPPRESS_EMBEDS_FLAG,
    DiscordRenderer,
    TypingReplyWriter,
    post_nonce,
)
from channels.discord.second_instance import DETECTED, SecondInstance
from channels.discord.threads import DiscordThreads
from channels.shared import file_limits
from channels.shared.rate_limit import Priority, RateLimiter, RateLimits, RateLimitScope
from channels.shared.reply_writer import MOST_REPEATS, MessageMissing, post_once

log = logging.getLogger(__name__)

MIB = 1 << 20
UPLOAD_BYTES_BY_TIER = (
    10 * MIB,
    10 * MIB,
    50 * MIB,
    100 * MIB,
)  # by a server's boost tier (…/docs/reference#uploading-files)
MAX_DOWNLOAD_BYTES = 500 * MIB  # what a paying person may upload


class DiscordChannel:
    """One bot."""

    name = NAME
    limits = ChannelLimits(text_limit=MAX_MESSAGE_CHARS, upload=UPLOAD_BYTES_BY_TIER[-1], download=MAX_DOWNLOAD_BYTES)
    window = 0.2

    def __init__(self, settings: DiscordSettings) -> None:
        self._budget = RateLimiter(RateLimits(settings.per_channel, settings.burst, overall=settings.overall))
        self._calls = DiscordApi(settings, self._budget)
        self._opens = settings.threads == "thread"
        self._second = SecondInstance()
        self._places = GuildCache(self._calls)
        self._rooms = DiscordThreads(self._calls, self._places, self._second, self._budget)
        self._tokens = InteractionTokens()
        interactions = Interactions(self._calls, self._tokens, self._second)
        self._intake = Inbound(self._calls, self._places, self._rooms, interactions, self._second, self._opens)
        self._gateway = Gateway(
            settings.base_url, settings.gateway_url, settings.token, settings.proxy, self._intake.receive_frame
        )
        self._writers: WeakSet[TypingReplyWriter] = WeakSet()

    async def open(self) -> None:
        """Get ready to make calls."""
        await self._calls.open()

    async def close(self) -> None:
        """Stop every reply and hang up."""
        await asyncio.gather(*(writer.close() for writer in list(self._writers)))
        await self._rooms.close()
        await self._calls.close()

    async def listen(self, receive: Receive, past: CatchUpSource = NO_CATCH_UP) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._intake.run(receive, past), name="discord intake")
            group.create_task(self._gateway.run(self._calls.trust), name="discord connection")

    def readiness(self) -> Readiness:
        told = self._gateway.readiness()
        if told.health is Health.READY and self._second.detected:
            return Readiness(Health.DOWN, told.since, DETECTED)
        return told

    def reply(self, thread: Thread, posts: SentMessages, *, to: str = "", asker: str = "") -> Reply:
        surface = DiscordRenderer(self._calls, self._rooms, self._tokens, thread, posts, to)
        writer = TypingReplyWriter(surface, posts, self._rate_limit_scope(thread))
        self._writers.add(writer)
        return writer

    # ------------------------------------------------------------ what stood before

    async def enrich(self, message: Message, earlier: int) -> Message:
        thread = message.thread
        if (
            thread.workspace == DIRECT_WORKSPACE
            or earlier < 1
            or thread.topic == message.id
            or not message.id.isdecimal()
        ):
            return message
        room = thread.topic or thread.chat
        limit = min(earlier, 100)
        found = await self._calls("GET", f"/channels/{room}/messages?before={message.id}&limit={limit}")
        found.sort(key=lambda each: int(each["id"]))
        if thread.topic and len(found) < limit and (starter := await self._thread_starter(thread)):
            found.insert(0, starter)
        quotes = [quote for each in found if (quote := self._make_quote(each, thread))]
        return replace(message, quotes=(*quotes, *message.quotes))

    async def _thread_starter(self, thread: Thread) -> dict[str, Any] | None:
        """The message that a thread hangs on; None when it was deleted, or there never was one."""
        try:
            found: dict[str, Any] = await self._calls("GET", f"/channels/{thread.chat}/messages/{thread.topic}")
        except Refused:
            return None
        return found

    def _make_quote(self, found: dict[str, Any], thread: Thread) -> Quote | None:
        read = events.parse_message(found, thread, events.DiscordAccount(self._rooms.account, opens=False))
        if read is None:
            return None
        names = ", ".join(file.name for file in read.attachments)
        words = " ".join(part for part in (read.text, f"[{names}]" if names else "") if part)
        return Quote(read.author.name, words, "earlier") if words else None

    # ------------------------------------------------------------ native commands

    async def announce(self, commands: Sequence[CommandInfo]) -> None:
        usable = [command for command in commands if re.fullmatch(r"[a-z0-9_-]{1,32}", command.name)][:100]
        self._intake.set_commands(frozenset(command.name for command in commands))
        wanted = [_command_payload(command) for command in usable]
        where = f"/applications/{(await self._calls('GET', '/applications/@me'))['id']}/commands"
        there = await self._calls("GET", where)
        if _comparable_commands(there) != _comparable_commands(wanted):
            await self._calls("PUT", where, wanted)

    # ------------------------------------------------------------ files

    async def send_file(self, thread: Thread, file: OutgoingFile, posts: SentMessages) -> None:
        if (known := first_sent_message(posts)) and known.id:
            return
        guild = self._places.guilds.get(thread.workspace)
        most = UPLOAD_BYTES_BY_TIER[min(guild.tier, 3)] if guild else UPLOAD_BYTES_BY_TIER[0]
        file_limits.check_outgoing_file(file, most, "Discord", empty=True)
        place = self._rate_limit_scope(thread)
        await place.acquire(Priority.FINAL)
        try:
            await post_once(posts, lambda: self._upload_file(thread, file, posts.key), MOST_REPEATS)
        except TryLater as error:
            place.pause(error.after)
            raise

    async def _upload_file(self, thread: Thread, file: OutgoingFile, key: str) -> str:
        name = file_limits.multipart_file_name(file)
        caption = (
            file.caption if len(file.caption) <= MAX_MESSAGE_CHARS else f"{file.caption[: MAX_MESSAGE_CHARS - 1]}…"
        )
        body = {
            "content": caption,
            "attachments": [{"id": 0, "filename": name}],
            "flags": SUPPRESS_EMBEDS_FLAG,
            "allowed_mentions": {"parse": []},
            "nonce": post_nonce(thread, key, 0, "file"),
            "enforce_nonce": True,
        }

        async def send(room: str) -> Any:
            handle: BinaryIO = await asyncio.to_thread(file.path.open, "rb")
            try:
                return await self._calls("POST", f"/channels/{room}/messages", body, file=(name, handle))
            finally:
                await asyncio.to_thread(handle.close)

        answer = await self._rooms.call_in_thread(thread, send)
        self._rooms.typing_ended(answer["channel_id"])
        return str(answer["id"])

    def fetch(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        return file_limits.limit_chunks(MAX_DOWNLOAD_BYTES, attachment, self._download_chunks(attachment))

    async def _download_chunks(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        where, _, url = attachment.ref.partition(" ")
        got = False
        for fresh in (False, True):
            try:
                async with aclosing(self._calls.download(await self._fresh_link(where) if fresh else url)) as chunks:
                    async for chunk in chunks:
                        got = True
                        yield chunk
                return
            except MessageMissing:
                if fresh or got:
                    raise Refused("is no longer available on Discord") from None

    async def _fresh_link(self, where: str) -> str:
        """A fresh link to an attachment: they run out after a day."""
        channel, message, file = where.split("/")
        carrier = await self._calls("GET", f"/channels/{channel}/messages/{message}")
        forwarded = [snapshot["message"] for snapshot in carrier.get("message_snapshots") or ()]
        for each in (carrier, *forwarded, carrier.get("referenced_message") or {}):
            for entry in each.get("attachments") or ():
                if entry["id"] == file:
                    return str(entry["url"])
        raise MessageMissing("the file is gone")

    # ------------------------------------------------------------ parts

    def _rate_limit_scope(self, thread: Thread) -> RateLimitScope:
        return RateLimitScope(self._budget, thread.topic or thread.chat, idempotent=True)


def _command_payload(command: CommandInfo) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": command.name,
        "description": command.help[:100] or "…",
        "type": 1,
        "options": [],
    }
    if command.words:
        described["options"] = [{"type": 3, "name": "words", "description": command.words[:100], "required": False}]
    return described


def _comparable_commands(commands: Sequence[dict[str, Any]]) -> list[Any]:
    """What counts when the commands that are listed are compared with those that should be."""

    def parts(command: dict[str, Any]) -> tuple[Any, ...]:
        options = [(each["type"], each["name"], each["description"]) for each in command.get("options") or ()]
        return command["name"], command.get("type", 1), command.get("description"), options

    return sorted(map(parts, commands))
