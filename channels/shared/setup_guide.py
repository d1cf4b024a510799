"""Describe what `fawn setup` shows for a platform. A channel defines `GUIDE` in its module `setup_guide`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


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
