"""Open, probe and set up a channel, with its SDK imported off the event loop.

The module `setup` of a channel defines `GUIDE`, which `fawn setup` shows, and what `fawn check` calls.
"""

from __future__ import annotations

import asyncio
import pkgutil
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from catalogue import N_, _, list_items
from channels.base import Channel, ChannelError, Refused, TokenRejected


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


CONNECTED = N_("connected as {name}")


@contextmanager
def refusing(base_url: str, suspects: Sequence[str], rejected: str = "") -> Iterator[None]:
    """Raise every ChannelError of a probe as Refused.

    `suspects` are the settings to check. `rejected` says what to do about a token that the platform rejects.
    """
    try:
        yield
    except Refused:
        raise
    except TokenRejected as error:
        raise Refused(_(rejected) if rejected else str(error)) from None
    except ChannelError as error:
        raise Refused(
            _(
                "{base_url} cannot be used: {error}. Check {suspects}.",
                base_url=base_url,
                error=error,
                suspects=list_items([f"`{name}`" for name in suspects]),
            )
        ) from None


@dataclass(frozen=True, slots=True)
class SignIn:
    """How to get a secret with a name and a password, which are not kept.

    `log_in` gets the settings that were typed before, by their names, and raises ChannelError.
    """

    account: Callable[[], str]  # what to type as name
    log_in: Callable[[Mapping[str, str], str, str], Coroutine[Any, Any, str]]


class ScanScreen(Protocol):
    """Where a person sees what to do while a code is to be scanned."""

    def show(self, text: str, code: str = "") -> object:
        """Show a text, and the code to scan that says `code`, in place of the one before; "" shows none."""

    async def ask(self, text: str) -> str:
        """Ask for what the telephone shows, such as a number."""


@dataclass(frozen=True, slots=True)
class Scanned:
    """What a scanned code gives: the value of a setting, and what the service keeps for the channel, sealed."""

    value: str
    kept: Mapping[str, str]


Scan = Callable[[ScanScreen, Any], Coroutine[Any, Any, Scanned]]
"""Waits until a person has scanned the code that is on the screen. Raises ChannelError.

Its second argument are the channel's settings, with an example in place of the value that it will return.
"""


@dataclass(frozen=True, slots=True)
class SetupGuide:
    """Where to get each secret, in the order of the platform, and how the first person reaches the bot.

    `contact` gets the channel's settings, the sentence of its `probe`, and a word that proves who wrote to the bot.
    """

    contact: Callable[[Any, str, str], str]
    steps: Mapping[str, Callable[[], str]] = field(default_factory=dict)  # setting → what to do to get it
    sign_ins: Mapping[str, SignIn] = field(default_factory=dict)  # setting → how Fawn gets it by itself
    scans: Mapping[str, Scan] = field(default_factory=dict)  # setting → how a person's telephone gives it
