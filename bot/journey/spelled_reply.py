"""Replies whose texts spell commands as their channel does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from agent.blocks import Block, Failed, Final, Notice, spell_commands
from agent.messages import Thread
from channels.base import Channel, Reply, SentMessages


def open_reply(channel: Channel, thread: Thread, posts: SentMessages, *, to: str = "", asker: str = "") -> Reply:
    """Return the channel's reply behind a `SpelledReply`. The bot opens every reply here."""
    return SpelledReply(channel.reply(thread, posts, to=to, asker=asker), partial(channel.spell_command, thread))


class SpelledReply:
    """A `channels.base.Reply` that replaces each `command_hint` by the command as a person writes it there."""

    def __init__(self, reply: Reply, spell: Callable[[str], str]) -> None:
        self._reply = reply
        self._spell = spell

    def show(self, block: Block) -> None:
        match block:
            case Notice():
                block = replace(block, text=spell_commands(block.text, self._spell))
            case Failed():
                block = Failed(*(spell_commands(text, self._spell) for text in (block.what, block.what_to_do)))
        self._reply.show(block)

    async def finish(self, final: Final) -> None:
        await self._reply.finish(replace(final, text=spell_commands(final.text, self._spell)))

    async def close(self) -> None:
        await self._reply.close()
