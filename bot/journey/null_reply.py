"""Null reply, used while a channel is disconnected."""

from __future__ import annotations

from agent.blocks import Block, Final
from channels.base import TryLater


class NullReply:
    """`channels.base.Reply` that shows nothing."""

    def show(self, block: Block) -> None:
        """Drop the block; the outbox delivers the final reply when the channel is connected again."""

    async def finish(self, final: Final) -> None:
        """Ask the outbox to retry."""
        raise TryLater("the channel is not connected", 0.5)

    async def settle(self, final: Final, question: str, outcome: str) -> None:
        """Ask the outbox to retry."""
        raise TryLater("the channel is not connected", 0.5)

    async def close(self) -> None:
        """Do nothing."""
