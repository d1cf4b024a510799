"""Render replies for platforms that neither change nor take back a message: WeChat, WhatsApp.

Nothing streams there. The stored id of a message is "ID/DIGEST" of what it shows: showing the same again is no edit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from agent.blocks import View
from catalogue import N_, _
from channels.base import Refused
from channels.shared.reply_writer import MessageRenderer

UNCHANGEABLE = N_("{platform} cannot change a message.")


class Digested(Protocol):
    """A message, and what tells whether it shows the same as another one."""

    @property
    def digest(self) -> str: ...


M = TypeVar("M", bound=Digested)


def digest_of(shown: bytes) -> str:
    """Return the digest of what a message shows."""
    return hashlib.blake2b(shown, digest_size=6).hexdigest()


class UnchangeableRenderer(MessageRenderer[M]):
    """The part of a renderer that such platforms share."""

    def __init__(self, platform: str, typing: Callable[[], Awaitable[None]]) -> None:
        self._platform = platform
        self._typing = typing

    def render(self, view: View) -> list[M]:
        """Show nothing of a running turn: the typing action is enough, and costs no message."""
        return []

    async def edit(self, message_id: str, part: M) -> None:
        """Do nothing where the message shows this. Raises Refused for anything else."""
        if not message_id.endswith(f"/{part.digest}"):
            raise Refused(_(UNCHANGEABLE, platform=self._platform))

    async def delete(self, message_id: str) -> None:
        """Leave a message: nothing can be taken back."""

    async def typing(self) -> None:
        await self._typing()
