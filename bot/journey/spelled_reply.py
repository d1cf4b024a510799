"""Replies whose texts spell commands as their channel does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from agent.blocks import HINT_MARK, Approve, Ask, Block, Failed, Final, Notice, Text, spell_commands
from agent.messages import Thread, platform_person
from channels.base import Channel, Reply, SentMessages

MAX_HELD_CHARS = 200  # of a hint that is not complete: no command is longer


def open_reply(channel: Channel, thread: Thread, posts: SentMessages, *, to: str = "", asker: str = "") -> Reply:
    """Return the channel's reply behind a `SpelledReply`. The bot opens every reply here."""
    return SpelledReply(
        channel.reply(thread, posts, to=to, asker=platform_person(asker)), partial(channel.spell_command, thread)
    )


class SpelledReply:
    """A `channels.base.Reply` that replaces each `command_hint` by the command as a person writes it there.

    A hint can arrive in pieces, each in a `Text` of its own: a piece waits for the rest.
    """

    def __init__(self, reply: Reply, spell: Callable[[str], str]) -> None:
        self._reply = reply
        self._spell = spell
        self._held: dict[str, str] = {}  # the beginning of a hint, by the part of its text

    def show(self, block: Block) -> None:
        match block:
            case Text():
                block = self._spell_text(block)
            case Ask():
                block = self._spell_ask(block)
            case Approve():
                words = (spell_commands(text, self._spell) for text in (block.question, block.detail))
                block = replace(block, question=next(words), detail=next(words))
            case Notice():
                block = replace(block, text=spell_commands(block.text, self._spell))
            case Failed():
                block = Failed(*(spell_commands(text, self._spell) for text in (block.what, block.what_to_do)))
        self._reply.show(block)

    def _spell_text(self, block: Text) -> Text:
        before = self._held.pop(block.part, "")
        text = block.delta if block.replace else before + block.delta
        begin = text.rfind(HINT_MARK)
        if text.count(HINT_MARK) % 2 and len(text) - begin <= MAX_HELD_CHARS:
            self._held[block.part] = text[begin:]
            text = text[:begin]
        return replace(block, delta=spell_commands(text, self._spell))

    def _spell_ask(self, ask: Ask) -> Ask:
        return replace(ask, question=spell_commands(ask.question, self._spell))

    async def finish(self, final: Final) -> None:
        await self._reply.finish(self._spell_final(final))

    async def settle(self, final: Final, question: str, outcome: str) -> None:
        await self._reply.settle(self._spell_final(final), question, spell_commands(outcome, self._spell))

    def _spell_final(self, final: Final) -> Final:
        asks = tuple(map(self._spell_ask, final.asks))
        mention = platform_person(final.mention)
        return replace(final, text=spell_commands(final.text, self._spell), asks=asks, mention=mention)

    async def close(self) -> None:
        await self._reply.close()
