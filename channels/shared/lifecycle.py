"""Open and probe a channel, with its SDK imported off the event loop."""

from __future__ import annotations

import asyncio
import pkgutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from channels.base import Channel


class Closable(Protocol):
    """A channel or API that is opened before its first call and closed after its last."""

    async def open(self) -> None:
        """Open the session. Raises Refused for settings that cannot work."""

    async def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


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
