"""Choose the reply of a run: the one that people watch, or none; its texts spell commands as their channel does."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from agent.blocks import HINT_MARK, Approve, Ask, Block, Failed, Final, Notice, Text, spell_commands
from agent.messages import Thread, platform_person
from agent.spans import SpanKind, inside_run, note_event
from bot.base.background import PatientStore
from bot.database.database import Database
from bot.rights.claimed_run import ClaimedRun
from bot.rights.current import Current
from bot.service.channel_state import open_handle
from bot.storage.sent_messages import StoredSentMessages
from catalogue import use_language
from channels.base import Channel, Reply, SentMessages, Settling, TryLater


class NullReply:
    """`channels.base.Reply` that shows nothing."""

    def show(self, block: Block) -> None:
        """Drop the block; the outbox delivers the final reply when the channel is connected again."""

    async def finish(self, final: Final) -> None:
        """Ask the outbox to retry."""
        raise TryLater("the channel is not connected", 0.5)

    async def close(self) -> None:
        """Do nothing."""


MAX_HELD_CHARS = 200  # of a hint that is not complete: no command is longer


def open_reply(channel: Channel, thread: Thread, posts: SentMessages, *, to: str = "", asker: str = "") -> SpelledReply:
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
        """Show what became of a question; a reply that cannot change a message leaves it as it is."""
        if isinstance(self._reply, Settling):
            await self._reply.settle(self._spell_final(final), question, spell_commands(outcome, self._spell))

    def _spell_final(self, final: Final) -> Final:
        asks = tuple(map(self._spell_ask, final.asks))
        mention = platform_person(final.mention)
        return replace(final, text=spell_commands(final.text, self._spell), asks=asks, mention=mention)

    async def close(self) -> None:
        await self._reply.close()


log = logging.getLogger(__name__)


def open_run_reply(
    store: Database, current: Current, channel: Channel | None, job: ClaimedRun, turn_works: Callable[[], bool] = bool
) -> Reply:
    """Return the reply that shows this run and continues what is visible of it already."""
    if channel is None or job.is_unattended:  # nobody waits: the result is one new message
        return NullReply()
    handle = open_handle(current.config, job.reply_handle)
    patient = PatientStore(store, "posts")
    posts = StoredSentMessages(patient, f"r{job.run}", job.thread, job.conversation, job.posted, handle)
    posts.on_first = partial(note_event, SpanKind.SIGN, job.thread.channel)
    posts.turn_works = turn_works
    try:
        with use_language(job.language), inside_run(job.run, job.asked):  # the reply's tasks inherit both
            return open_reply(channel, job.thread, posts, to=job.reply_to, asker=job.requester)
    except Exception:  # the run is claimed: the outbox delivers its end
        log.exception("turn.no_reply thread=%s", job.thread)
        return NullReply()
