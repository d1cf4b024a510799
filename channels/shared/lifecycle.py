"""Channel startup: import the SDK off the event loop, load certificates, close on exit."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from channels.base import Refused


class Closable(Protocol):
    """A channel or API that is opened before its first call and closed after its last."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...


S = TypeVar("S")
C = TypeVar("C", bound=Closable)


@asynccontextmanager
async def open_channel(load: Callable[[], Callable[[S], C]], settings: S) -> AsyncIterator[C]:
    """Open a channel of the class that `load` returns; it imports the SDK, so it runs in a thread."""
    channel = (await asyncio.to_thread(load))(settings)
    await channel.open()
    try:
        yield channel
    finally:
        await channel.close()


async def load_certificates(ca_file: str) -> ssl.SSLContext:
    """Load the certificates to trust, from a PEM file or the system. Raises Refused."""
    try:
        return await asyncio.to_thread(ssl.create_default_context, cafile=ca_file or None)
    except OSError as error:
        raise Refused(f"`ca_file` cannot be used ({type(error).__name__}): name a PEM file of certificates") from None


def check_proxy(proxy: str) -> None:
    """Raise Refused for a proxy that is not an HTTP proxy."""
    if proxy and not proxy.lower().startswith(("http://", "https://")):
        kind = proxy.partition("://")[0] if "://" in proxy else "unnamed"
        raise Refused(f"a proxy of kind {kind[:10]} cannot be used: `proxy` takes http://… or https://…")
