"""The life of a channel: import its SDK off the event loop, open it, and close it with all its replies."""

from __future__ import annotations

import asyncio
import pkgutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakSet

from channels.base import Reply
from channels.shared.background import BackgroundTasks

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
async def open_channel(name: str, settings: object) -> AsyncIterator[Any]:
    """Open a channel of the class "module:Class"; its module imports the SDK, so that runs in a thread."""
    async with opened((await asyncio.to_thread(pkgutil.resolve_name, name))(settings)) as channel:
        yield channel


async def run_probe(name: str, settings: object) -> str:
    """Run the probe "module:function", which imports the SDK like a channel. Raises Refused."""
    return str(await (await asyncio.to_thread(pkgutil.resolve_name, name))(settings))


class PlatformChannel:
    """The part of a channel that is the same on every platform: its session, replies and background calls."""

    def __init__(self, http: HttpClient) -> None:
        self._http = http
        self._background = BackgroundTasks()
        self._replies: WeakSet[Reply] = WeakSet()

    async def open(self) -> None:
        """Open the session. Raises Refused for settings that cannot work."""
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
