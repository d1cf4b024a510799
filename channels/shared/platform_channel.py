"""The part of a channel that is the same on every platform."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakSet

from agent.messages import Attachment, Message, Thread
from channels.base import (
    ChannelLimits,
    CommandInfo,
    OutgoingFile,
    Readiness,
    Reply,
    SentMessages,
    find_sent_message,
)
from channels.shared.background import BackgroundTasks
from channels.shared.files import check_outgoing_file, group_files, limit_chunks, send_groups
from channels.shared.http_client import HttpClient
from channels.shared.posts import post_once
from channels.shared.rate_limit import ReplyRateLimit

R = TypeVar("R", bound=Reply)


@dataclass(frozen=True, slots=True)
class FileRules:
    """How a platform takes files: `max_files` of one `kind`, and `max_bytes` together, in a message."""

    max_bytes: int
    max_files: int = 1
    kind: Callable[[OutgoingFile], str] = lambda file: ""
    empty: bool = False  # it accepts empty files


@dataclass(frozen=True, slots=True)
class FilePost:
    """One message with files, and what `_upload` returned for each. `is_repeat`: it may be visible already."""

    files: Sequence[OutgoingFile]
    uploads: Sequence[Any]
    key: str  # of the SentMessages
    index: int
    is_repeat: bool
    reply_handle: str  # of the SentMessages, right before the post


class PlatformChannel(ABC):
    """The session, replies, background calls and files of a channel, and what one without an ability does."""

    limits: ChannelLimits
    window = 0.2

    def __init__(self, http: HttpClient) -> None:
        self._http = http
        self._background = BackgroundTasks()
        self._replies: WeakSet[Reply] = WeakSet()

    async def open(self) -> None:
        await self._http.open()

    def readiness(self) -> Readiness:
        """Return the health as last measured: a token that the platform rejects is a fault at once."""
        return self._connection_readiness().with_fault(self._http.token_state.fault, self._http.token_state.since)

    @abstractmethod
    def _connection_readiness(self) -> Readiness:
        """Return the health of the connection on which events come."""

    def fence(self, may_call: Callable[[], bool]) -> None:
        self._http.may_call = may_call

    async def close(self) -> None:
        """Stop all replies and background calls, and close the session."""
        await asyncio.gather(*(reply.close() for reply in list(self._replies)))
        await self._background.cancel()
        await self._http.close()

    def _add_reply(self, reply: R) -> R:
        """Close this reply with the channel, if it is still open then."""
        self._replies.add(reply)
        return reply

    async def enrich(self, message: Message, earlier: int, since: float = 0.0) -> Message:
        return message

    def spell_command(self, thread: Thread, command: str) -> str:
        return f"/{command}"

    async def announce(self, commands: Sequence[CommandInfo]) -> None:
        return

    # ------------------------------------------------------------ files

    def fetch(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        return limit_chunks(self.limits.download, attachment, self._open_download)

    async def send_files(self, thread: Thread, files: Sequence[OutgoingFile], posts: SentMessages) -> None:
        rules = self._file_rules(thread)

        async def send(group: Sequence[OutgoingFile], index: int) -> None:
            known = find_sent_message(posts, index)
            if known and known.id:
                return
            if known and known.handle and (found := await self._find_posted(thread, known.handle)):
                await posts.sent(index, found)
                return
            for file in group:
                check_outgoing_file(file, rules.max_bytes, self._http.platform, empty=rules.empty)
            uploads = [await self._upload(thread, file) for file in group]
            is_repeat = known is not None
            post = FilePost(group, uploads, posts.key, index, is_repeat, posts.reply_handle)
            await post_once(
                posts,
                lambda: self._post_files(thread, post),
                self._rate_limit_scope(thread),
                index,
                self._handle_of(post),
            )

        await send_groups(group_files(files, rules.max_files, rules.max_bytes, rules.kind), posts, send)

    @abstractmethod
    async def _open_download(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        """Begin to download an attachment, and return its chunks. Raises ChannelError."""

    def _file_rules(self, thread: Thread) -> FileRules:
        return FileRules(self.limits.upload)

    def _rate_limit_scope(self, thread: Thread) -> ReplyRateLimit | None:
        """Return the rate limit of the calls for a thread, or None if the API itself keeps the limits."""
        return None

    async def _upload(self, thread: Thread, file: OutgoingFile) -> Any:
        """Upload a file where that is a call of its own, which shows nothing and can be repeated."""
        return None

    def _handle_of(self, post: FilePost) -> str:
        """Return by what `_find_posted` finds the message, where the platform tells whether it arrived."""
        return ""

    async def _find_posted(self, thread: Thread, handle: str) -> str:
        """Return the id of a message with files whose post was interrupted, "" if it did not arrive."""
        return ""

    @abstractmethod
    async def _post_files(self, thread: Thread, post: FilePost) -> str:
        """Post a message with files, and return its id. Raises ChannelError."""
