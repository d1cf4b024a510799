"""The Discord channel itself: listening, readiness, replies, files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from agent.conversation import Attachment, Message, Thread
from channels.base import NO_PAST, CommandInfo, Limits, OutFile, Past, Posts, Readiness, Receive, Reply
from channels.discord import Settings


class Discord:
    """One bot."""

    name = "discord"
    limits = Limits(text=2000, upload=10 << 20, download=512 << 20, idempotent_posts=True)
    window = 0.2

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def open(self) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    async def listen(self, receive: Receive, past: Past = NO_PAST) -> None:
        raise NotImplementedError

    def readiness(self) -> Readiness:
        raise NotImplementedError

    def reply(self, thread: Thread, posts: Posts, *, to: str = "", asker: str = "") -> Reply:
        raise NotImplementedError

    async def send_file(self, thread: Thread, file: OutFile, posts: Posts) -> None:
        raise NotImplementedError

    def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        raise NotImplementedError

    async def enrich(self, message: Message, earlier: int) -> Message:
        raise NotImplementedError

    async def announce(self, commands: Sequence[CommandInfo]) -> None:
        raise NotImplementedError
