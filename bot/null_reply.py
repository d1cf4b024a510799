"""Null reply, used while a channel is disconnected."""

from __future__ import annotations

from agent.blocks import Block, Final
from channels.base import TryLater


class NullReply:
    """`channels.base.Reply` without a place to show anything."""

    def show(self, block: Block) -> None:
        """Nobody is there to see it; the final state will be delivered when the channel is back."""

    async def finish(self, final: Final) -> None:
        """Not now."""
        raise TryLater("the channel is not connected", 0.5)

    async def close(self) -> None:
        """Nothing to stop."""
