"""Follow a sign-in by a code that a person scans, which somebody watches from elsewhere, such as on a page."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol, cast, runtime_checkable

from channels.base import Channel, CodeSignIn, SignInCode

MAX_NUMBER_CHARS = 12


@dataclass(frozen=True, slots=True)
class SignInState:
    """How far a channel is.

    `is_signed_out`: no login counts, so that nothing works until somebody signs in. `is_going`: somebody is signing in.
    `wants_number`: the person has to type what the telephone shows.
    """

    is_signed_out: bool
    is_going: bool
    wants_number: bool


@runtime_checkable
class WatchedSignIn(Protocol):
    """The further methods of a `channels.base.CodeSignIn`, by which others watch it and help."""

    def sign_in_state(self) -> SignInState:
        """Return how far it is."""

    def answer_sign_in(self, number: str) -> bool:
        """Hand over what the telephone shows; return whether somebody waited for it."""


class SignInChannel(Channel, CodeSignIn, WatchedSignIn, Protocol):
    """A channel that signs in so."""


def as_sign_in(channel: Channel | None) -> SignInChannel | None:
    """Return a channel that signs in so, None for any other one."""
    parts: tuple[type, ...] = (CodeSignIn, WatchedSignIn)
    return cast(SignInChannel, channel) if all(isinstance(channel, part) for part in parts) else None


class OfferedScreen:
    """A `ScanScreen` that keeps what it shows until somebody looks."""

    def __init__(self) -> None:
        self.offered = SignInCode("", "")
        self._answer: asyncio.Future[str] | None = None

    def show(self, text: str, code: str = "") -> None:
        self.offered = SignInCode(code, text)

    @property
    def wants_number(self) -> bool:
        """Return whether it asks for something."""
        return self._answer is not None and not self._answer.done()

    async def ask(self, text: str) -> str:
        self.show(text)
        self._answer = asyncio.get_running_loop().create_future()
        try:
            return await self._answer
        finally:
            self._answer = None

    def answer(self, number: str) -> bool:
        """Hand over what was asked for; return whether it was."""
        if self._answer is None or self._answer.done():
            return False
        self._answer.set_result(number[:MAX_NUMBER_CHARS])
        return True
