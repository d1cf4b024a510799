"""The life of a channel: import its SDK off the event loop, open it, and close it with all its replies."""

from __future__ import annotations

import asyncio
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar
from weakref import WeakSet

from agent.messages import Attachment, Message, Thread
from channels.base import Channel, ChannelLimits, CommandInfo, Reply
from channels.shared.background import BackgroundTasks
from channels.shared.file_limits import limit_chunks

if TYPE_CHECKING:
    from channels.shared.http_client import HttpClient  # the settings import this module, but not aiohttp


class Closable(Protocol):
    """A channel or API that is opened before its first call and closed after its last."""

    async def open(self) -> None:
        """Open the session. Raises Refused for settings that cannot work."""

    async def close(self) -> None: ...


C = TypeVar("C", bound=Closable)
R = TypeVar("R", bound=Reply)


@asynccontextmanager
async def opened(channel: C) -> AsyncIterator[C]:
    """Open a channel or API for the time of the context."""
    await channel.open()
    try:
        yield channel
    finally:
        await channel.close()


@asynccontextmanager
async def open_channel(name: str, settings: object) -> AsyncIterator[Channel]:
    """Open a channel of the class "module:Class"; its module imports the SDK, so that runs in a thread.

    `listen` connects it, and retries by itself. Raises Refused for settings that cannot work.
    """
    async with opened((await asyncio.to_thread(pkgutil.resolve_name, name))(settings)) as channel:
        yield channel


async def run_probe(name: str, settings: object) -> str:
    """Run the probe "module:function", which imports the SDK like a channel.

    Returns a sentence about the account. Raises Refused with what to do.
    """
    return str(await (await asyncio.to_thread(pkgutil.resolve_name, name))(settings))


class PlatformChannel(ABC):
    """The part of a channel that is the same on every platform, and what a platform without an ability does."""

    limits: ChannelLimits
    window = 0.2

    def __init__(self, http: HttpClient) -> None:
        self._http = http
        self._background = BackgroundTasks()
        self._replies: WeakSet[Reply] = WeakSet()

    async def open(self) -> None:
        await self._http.open()

    async def close(self) -> None:
        """Stop all replies and background calls, and close the session."""
        await asyncio.gather(*(reply.close() for reply in list(self._replies)))
        await self._background.cancel()
        await self._http.close()

    def _add_reply(self, reply: R) -> R:
        """Close this reply with the channel, if it is still open then."""
        self._replies.add(reply)
        return reply

    def fetch(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        return limit_chunks(self.limits.download, attachment, self._open_download)

    @abstractmethod
    async def _open_download(self, attachment: Attachment) -> AsyncGenerator[bytes, None]:
        """Begin to download an attachment, and return its chunks. Raises ChannelError."""

    async def enrich(self, message: Message, earlier: int) -> Message:
        return message

    def spell_command(self, thread: Thread, command: str) -> str:
        return f"/{command}"

    async def announce(self, commands: Sequence[CommandInfo]) -> None:
        return
