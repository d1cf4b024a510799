"""The Discord channel itself: listening, readiness, replies, files, commands."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from typing import Any

from agent.messages import Attachment, Kind, Message, Quote, Thread, omitted
from channels.base import (
    NO_CATCH_UP,
    CatchUpSource,
    ChannelError,
    ChannelLimits,
    CommandInfo,
    Readiness,
    Receive,
    Reply,
    SentMessages,
)
from channels.discord import DiscordSettings
from channels.discord.api import NO_MENTIONS, TOKEN_SHARED, AccountUnknown, DiscordApi, MemberUnknown, account_window
from channels.discord.body import MAX_MESSAGE_CHARS, MAX_WIDE_UNITS, SUPPRESS_EMBEDS_FLAG
from channels.discord.gateway import Gateway
from channels.discord.guild_cache import DIRECT_WORKSPACE, NAME, GuildCache, snowflake_from_time
from channels.discord.history import RecentTalk
from channels.discord.inbound import Inbound
from channels.discord.interactions import Interactions
from channels.discord.reply import DiscordRenderer, TypingReplyWriter, post_nonce
from channels.discord.threads import DiscordThreads
from channels.shared import files
from channels.shared.files import joined_captions
from channels.shared.http_client import opened_file
from channels.shared.platform_channel import FilePost, FileRules, PlatformChannel
from channels.shared.posts import IDEMPOTENT_POSTS
from channels.shared.rate_limit import RateLimiter, RateLimits, RateLimitScope
from channels.shared.reply_writer import MessageMissing

MIB = 1 << 20
UPLOAD_BYTES_BY_TIER = (10 * MIB, 10 * MIB, 50 * MIB, 100 * MIB)  # boost tier (…/docs/reference#uploading-files)
MAX_ATTACHMENTS = 10  # of a message; their bytes together stay below the limit of one (…/reference#uploading-files)
MAX_LOOKED_UP = 10  # ours: people whose membership is looked up for one message
MAX_GUILD_PAGE = 200  # …/docs/resources/user#get-current-user-guilds
MAX_DOWNLOAD_BYTES = 500 * MIB  # the upload limit of paying users


class DiscordChannel(PlatformChannel):
    """One bot."""

    name = NAME
    limits = ChannelLimits(
        text_limit=MAX_WIDE_UNITS,
        upload=UPLOAD_BYTES_BY_TIER[-1],
        download=MAX_DOWNLOAD_BYTES,
        private_topics=True,
    )

    def __init__(self, settings: DiscordSettings) -> None:
        account = account_window(settings.overall)
        self._rate_limiter = RateLimiter(RateLimits(settings.per_channel, settings.burst, account=account))
        self._api = DiscordApi(settings, self._rate_limiter)
        super().__init__(self._api)
        self._cache = GuildCache(self._api)
        self._talk = RecentTalk(self._api)
        self._threads = DiscordThreads(self._api, self._cache, self._rate_limiter)
        self._interactions = Interactions(self._api)
        self._opens_threads = settings.threads == "thread"
        self._inbound = Inbound(
            self._api,
            self._cache,
            self._talk,
            self._threads,
            self._interactions,
            self._background,
            opens_threads=self._opens_threads,
        )
        self._gateway = Gateway(settings, self._inbound.receive_frame)

    async def close(self) -> None:
        await self._threads.close()
        await super().close()

    async def listen(self, receive: Receive, past: CatchUpSource = NO_CATCH_UP) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._inbound.run(receive, past), name="discord inbound")
            group.create_task(self._gateway.run(self._api.certificates), name="discord connection")

    def _connection_readiness(self) -> Readiness:
        return self._gateway.readiness().with_fault(TOKEN_SHARED if self._api.token_shared else "")

    def reply(self, thread: Thread, posts: SentMessages, *, to: str = "", asker: str = "") -> Reply:
        renderer = DiscordRenderer(self._api, self._threads, self._interactions, thread, posts, to)
        return self._add_reply(TypingReplyWriter(renderer, posts, self._rate_limit_scope(thread)))

    # ------------------------------------------------------------ earlier messages

    async def enrich(self, message: Message, earlier: int, since: float = 0.0) -> Message:
        if message.thread.workspace == DIRECT_WORKSPACE:
            return message
        if earlier > 0 and message.kind is Kind.CHAT:
            message = await self._with_talk_above(message, earlier, since)
        return await self._with_members(message)

    async def _with_talk_above(self, message: Message, earlier: int, since: float) -> Message:
        thread = message.thread
        in_thread = bool(thread.topic) and thread.topic != message.id
        before = message.id if message.id.isdecimal() else snowflake_from_time(message.time)
        limit, oldest = min(earlier, 100), int(snowflake_from_time(since + 0.001)) if since else 0
        place = thread if in_thread else replace(thread, topic="")
        found = await self._talk.above(place, int(before), limit, oldest)
        gap = [omitted(None)] if in_thread and len(found) == limit else []
        needs_root = in_thread and not since and all(each is None or each.id != thread.topic for each in found)
        root = await self._thread_starter(thread) if needs_root else None
        return replace(message, quotes=(*([root] if root else []), *gap, *filter(None, found), *message.quotes))

    async def _with_members(self, message: Message) -> Message:
        """Mark quotes of people who have left the server, or are guests there: neither the history nor a reply says
        it. Of more than a few people it is not looked up, and their words are a stranger's."""
        people = list(dict.fromkeys(quote.author_id for quote in message.quotes if quote.member))[-MAX_LOOKED_UP:]

        async def is_outsider(person: str) -> bool:
            try:
                return await self._cache.is_outsider(message.thread.workspace, person)
            except ChannelError:
                return True

        outside = await asyncio.gather(*map(is_outsider, people))
        members = {person for person, left in zip(people, outside, strict=True) if not left}
        quotes = [replace(quote, member=quote.member and quote.author_id in members) for quote in message.quotes]
        return replace(message, quotes=tuple(quotes))

    async def _thread_starter(self, thread: Thread) -> Quote | None:
        """Return the message on which a thread hangs: that of a forum's post is in the thread itself."""
        starter = await self._talk.find(replace(thread, topic=""), thread.topic)
        return starter or await self._talk.find(thread, thread.topic)

    def message_link(self, thread: Thread, message: str) -> str:
        return f"https://discord.com/channels/{thread.workspace}/{thread.topic or thread.chat}/{message}"

    def begins_threads(self, chat: Thread) -> bool:
        """On a server: the thread has the id of its message (…/resources/channel#start-thread-from-message)."""
        return self._opens_threads and chat.workspace != DIRECT_WORKSPACE

    async def set_title(self, thread: Thread, title: str) -> None:
        await self._threads.set_title(thread, title)

    async def open_private_chat(self, person: str, near: Thread) -> Thread:
        """Return the direct messages with a person (discord.com/developers/docs/resources/user#create-dm)."""
        opened = await self._api("POST", "/users/@me/channels", {"recipient_id": person})
        return Thread(NAME, DIRECT_WORKSPACE, str(opened["id"]))

    async def is_gone(self, person: str) -> bool | None:
        """Return whether the person is in no server of the bot; None for an unknown id, and if the bot is in no server.

        discord.com/developers/docs/resources/guild#get-guild-member and …/topics/opcodes-and-status-codes#json.
        """
        if not person.isdecimal():
            return None
        is_gone = None
        async for guild in self._guild_ids():
            try:
                await self._api("GET", f"/guilds/{guild}/members/{person}")
            except MemberUnknown:
                is_gone = True
            except AccountUnknown:
                return None
            else:
                return False
        return is_gone

    async def _guild_ids(self) -> AsyncIterator[str]:
        """Yield the bot's servers. They are asked for: the gateway leaves out those that have an outage."""
        after = "0"
        while True:
            page = await self._api("GET", f"/users/@me/guilds?limit={MAX_GUILD_PAGE}&after={after}")
            for guild in page:
                after = str(guild["id"])
                yield after
            if len(page) < MAX_GUILD_PAGE:
                return

    # ------------------------------------------------------------ native commands

    async def announce(self, commands: Sequence[CommandInfo]) -> None:
        self._inbound.set_commands(frozenset(command.name for command in commands))
        usable = [command for command in commands if re.fullmatch(r"[a-z0-9_-]{1,32}", command.name)][:100]
        wanted = [_command_payload(command) for command in usable]
        path = f"/applications/{(await self._api('GET', '/applications/@me'))['id']}/commands"
        if _comparable_commands(await self._api("GET", path)) != _comparable_commands(wanted):
            await self._api("PUT", path, wanted)

    # ------------------------------------------------------------ files

    def _file_rules(self, thread: Thread) -> FileRules:
        guild = self._cache.guilds.get(thread.workspace)
        limit = UPLOAD_BYTES_BY_TIER[min(guild.boost_tier, 3) if guild else 0]
        return FileRules(limit, MAX_ATTACHMENTS, empty=True)

    async def _post_files(self, thread: Thread, post: FilePost) -> str:
        names, caption = [files.multipart_file_name(file) for file in post.files], joined_captions(post.files)
        body = {
            "content": caption if len(caption) <= MAX_MESSAGE_CHARS else f"{caption[: MAX_MESSAGE_CHARS - 1]}…",
            "attachments": [{"id": number, "filename": name} for number, name in enumerate(names)],
            "flags": SUPPRESS_EMBEDS_FLAG,
            "allowed_mentions": NO_MENTIONS,
            "nonce": post_nonce(thread, post.key, post.index, "file"),
            "enforce_nonce": True,
        }

        async def send(channel_id: str) -> Any:
            async with AsyncExitStack() as opened:
                contents = [await opened.enter_async_context(opened_file(file.path)) for file in post.files]
                parts = list(zip(names, contents, strict=True))
                return await self._api("POST", f"/channels/{channel_id}/messages", body, files=parts)

        answer = await self._threads.call_in_thread(thread, send)
        self._threads.clear_typing(answer["channel_id"])
        return str(answer["id"])

    async def _open_download(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        return self._download_chunks(attachment)

    async def _download_chunks(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        place, _, url = attachment.ref.partition(" ")
        started = False
        for fresh in (False, True):
            try:
                async with aclosing(self._api.download_file(await self._fresh_link(place) if fresh else url)) as chunks:
                    async for chunk in chunks:
                        started = True
                        yield chunk
                return
            except MessageMissing:
                if fresh or started:
                    raise files.no_longer_available("Discord") from None

    async def _fresh_link(self, place: str) -> str:
        """Return a new link to an attachment ("channel/message/file"): links expire after a day."""
        channel_id, message_id, file_id = place.split("/")
        carrier = await self._api("GET", f"/channels/{channel_id}/messages/{message_id}")
        forwarded = [snapshot["message"] for snapshot in carrier.get("message_snapshots") or ()]
        for message in (carrier, *forwarded, carrier.get("referenced_message") or {}):
            for entry in message.get("attachments") or ():
                if entry["id"] == file_id:
                    return str(entry["url"])
        raise MessageMissing("the file was deleted")

    def _rate_limit_scope(self, thread: Thread) -> RateLimitScope:
        return RateLimitScope(self._rate_limiter, thread.topic or thread.chat, idempotent_posts=IDEMPOTENT_POSTS)


def _command_payload(command: CommandInfo) -> dict[str, Any]:
    option = {"type": 3, "name": "words", "description": command.words[:100], "required": False}
    return {
        "name": command.name,
        "description": command.help[:100] or "…",
        "type": 1,
        "options": [option] if command.words else [],
    }


def _comparable_commands(commands: Sequence[dict[str, Any]]) -> list[Any]:
    """Return the fields that must be equal in the registered and the wanted commands."""

    def fields(command: dict[str, Any]) -> tuple[Any, ...]:
        options = [(each["type"], each["name"], each["description"]) for each in command.get("options") or ()]
        return command["name"], command.get("type", 1), command.get("description"), options

    return sorted(map(fields, commands))
