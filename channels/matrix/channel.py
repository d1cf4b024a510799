"""Connect one account of Matrix: events, readiness, replies, files."""

from __future__ import annotations

import asyncio
import mimetypes
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePath
from urllib.parse import quote

import orjson

from agent.messages import Attachment, Message, Quote, Thread
from channels.base import (
    NO_CATCH_UP,
    CatchUpSource,
    ChannelError,
    ChannelLimits,
    OutgoingFile,
    Readiness,
    Receive,
    Reply,
    SentMessages,
    StateStore,
)
from channels.matrix import NAME, MatrixSettings
from channels.matrix.api import CLIENT, MEDIA, Json, MatrixApi
from channels.matrix.crypto import MEGOLM
from channels.matrix.files import SealedFile, open_file
from channels.matrix.history import earlier_messages, replied_message
from channels.matrix.reply import MAX_REACTIONS, MAX_TEXT_BYTES, MatrixMessage, MatrixRenderer, clean, transaction_id
from channels.matrix.rooms import Rooms
from channels.matrix.sender import EventSender, thread_relation
from channels.matrix.syncing import Syncing
from channels.shared.http_client import opened_file
from channels.shared.inbound import InboundPipeline
from channels.shared.platform_channel import FilePost, PlatformChannel
from channels.shared.posts import IDEMPOTENT_POSTS
from channels.shared.rate_limit import SAFETY_FACTOR, CallRate, Priority, RateLimiter, RateLimits, RateLimitScope
from channels.shared.reply_writer import ReplyWriter

MAX_UPLOAD_BYTES = 50 << 20  # Synapse's default; the server's own is asked for
MAX_DOWNLOAD_BYTES = 100 << 20  # ours
OFFER_SECONDS = 30.0  # after a question, in which its keycaps come or are left out
ENCRYPTED_ROOM = {"type": "m.room.encryption", "state_key": "", "content": {"algorithm": MEGOLM}}
_KINDS = {"image": "m.image", "audio": "m.audio", "video": "m.video"}


class MatrixChannel(PlatformChannel):
    """One account."""

    name = NAME
    posts_by_listening = True  # encrypted rooms take the keys that syncing brings

    def __init__(self, settings: MatrixSettings) -> None:
        self._api = MatrixApi(settings)
        super().__init__(self._api)
        self.limits = ChannelLimits(MAX_TEXT_BYTES, MAX_UPLOAD_BYTES, MAX_DOWNLOAD_BYTES, fetches_links=True)
        self._sender = EventSender(self._api, Rooms())
        spare = settings.burst / 2  # of the burst is left to the ends of replies
        account = CallRate(
            settings.overall * SAFETY_FACTOR, 1.0, settings.burst, "all", stream_reserve=spare, first_reserve=spare / 2
        )
        limits = RateLimits(settings.per_reply, 2, group_minute=60 * settings.per_reply + 2, account=account)
        self._rate_limiter = RateLimiter(limits)
        pipeline = InboundPipeline(
            NAME,
            self._background,
            apologize=lambda event, text: self._sender.post_notice(event.thread, text),
            show_working=self._sender.show_work,
            early=True,
        )
        self._pipeline = pipeline
        waits = {"poll_seconds": settings.poll_seconds, "late_seconds": settings.key_seconds}
        self._syncing = Syncing(self._api, self._sender, self._background, pipeline, **waits)

    # ------------------------------------------------------------ events

    def keep_state(self, state: StateStore) -> None:
        self._syncing.state = state

    async def listen(self, receive: Receive, catch_up: CatchUpSource = NO_CATCH_UP) -> None:
        self._pipeline.receive = receive
        self._syncing.past = catch_up
        self._background.start_best_effort(self._ask_upload_limit(), "matrix limits")
        await self._syncing.run()

    async def _ask_upload_limit(self) -> None:
        """Ask how large files may be: what is larger, Synapse cuts off without an answer."""
        found = (await self._api.call("GET", f"{MEDIA}/config")).get("m.upload.size")
        if isinstance(found, int) and found > 0:
            self.limits = replace(self.limits, upload=min(found, MAX_UPLOAD_BYTES * 10))

    def _connection_readiness(self) -> Readiness:
        return self._syncing.health.now

    async def enrich(self, message: Message, earlier: int, since: float = 0.0) -> Message:
        """Add what it replies to, and the messages above it where it begins or joins a thread of a room."""
        quotes: list[Quote] = []
        try:
            quotes += await earlier_messages(self._api, self._sender, message, earlier, since)
            quotes += await replied_message(self._api, self._sender, message)
        except ChannelError:
            quotes.append(Quote("", "", "unread"))
        return replace(message, quotes=(*message.quotes, *quotes))

    # ------------------------------------------------------------ replies

    def reply(self, thread: Thread, posts: SentMessages, *, to: str = "", asker: str = "") -> Reply:
        def on_question(message: str, part: MatrixMessage) -> None:
            offering = self._offer_options(thread.chat, message, len(part.options))
            self._background.start_best_effort(offering, f"matrix options {message}")

        renderer = MatrixRenderer(self._sender, thread, posts, to, on_question)
        return self._add_reply(ReplyWriter(renderer, posts, self._rate_limit_scope(thread)))

    async def _offer_options(self, room: str, message: str, count: int) -> None:
        """Put a keycap below a question for each option, if the rate limit has room soon: words answer it, too."""
        with suppress(TimeoutError):
            async with asyncio.timeout(OFFER_SECONDS):
                for number in range(1, min(count, MAX_REACTIONS) + 1):
                    await self._rate_limiter.acquire(room, Priority.STREAM)
                    await self._sender.react(room, message, f"{number}\ufe0f\u20e3")

    def _rate_limit_scope(self, thread: Thread) -> RateLimitScope:
        return RateLimitScope(self._rate_limiter, thread.chat, idempotent_posts=IDEMPOTENT_POSTS)

    def spell_command(self, thread: Thread, command: str) -> str:
        """Clients keep words after a "/" for themselves."""
        return f"!{command}"

    def message_link(self, thread: Thread, message: str) -> str:
        """Return the address by which clients open a message."""
        via = thread.workspace.partition(":")[2]
        return f"https://matrix.to/#/{quote(thread.chat)}/{quote(message)}?via={quote(via)}"

    async def open_private_chat(self, person: str, near: Thread) -> Thread:
        """Return the direct chat with a person; invite them into a new one where there is none."""
        await self._sender.synced.wait()
        room = self._sender.rooms.direct_with(person)
        if not room:
            body: Json = {"preset": "trusted_private_chat", "is_direct": True, "invite": [person]}
            if self._sender.encryption:
                body["initial_state"] = [ENCRYPTED_ROOM]
            room = str((await self._api.call("POST", f"{CLIENT}/createRoom", body))["room_id"])
            made = self._sender.rooms.join(room)
            made.joined, made.invited, made.heroes = 1, 1, (person,)
            made.encrypted = "initial_state" in body
        return Thread(NAME, near.workspace, room)

    # ------------------------------------------------------------ files

    async def _open_download(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        ref = orjson.loads(attachment.ref)
        chunks = self._api.download_file(str(ref["url"]))
        return open_file(ref["file"], chunks) if "file" in ref else chunks

    async def _upload(self, thread: Thread, file: OutgoingFile) -> Json:
        """Upload a file, encrypted for an encrypted room; return how a message names it."""
        room = await self._sender.room(thread.chat)
        async with opened_file(file.path) as content:
            if not room.encrypted:
                return {"url": await self._api.upload(content, clean(file.name), _mime_of(file))}
            sealed = SealedFile(content)
            address = await self._api.upload(sealed.chunks(), "", "application/octet-stream")
            return {"file": sealed.description(address)}

    async def _post_files(self, thread: Thread, post: FilePost) -> str:
        """Post a file; its transaction id makes a repeat the same event."""
        [file], [named] = post.files, post.uploads
        name, caption = clean(file.name), clean(file.caption)
        mime = _mime_of(file)
        content: Json = {
            "msgtype": _KINDS.get(mime.partition("/")[0], "m.file"),
            "body": caption or name,
            "filename": name,
            **named,
            "info": {"mimetype": mime, "size": file.size},
            "m.mentions": {},
            **thread_relation(thread),
        }
        transaction = "file-" + transaction_id(thread, post.key, post.index, f"file {name}")
        return await self._sender.send(thread.chat, "m.room.message", content, transaction)


def _mime_of(file: OutgoingFile) -> str:
    return mimetypes.guess_type(PurePath(file.name).name)[0] or "application/octet-stream"
