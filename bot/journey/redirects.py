"""Send an answer elsewhere where its thread is gone."""

from __future__ import annotations

import asyncio
import logging

from agent.messages import Author, Thread
from bot.database.database import Database, Execute
from bot.storage import languages, outbox, people
from catalogue import N_, _
from channels.base import Channel, OutcomeUnknown, PrivateChatOpener, Refused, TryLater

log = logging.getLogger(__name__)

GONE = N_("I can't post any more where you asked me, so here is my answer:")


OPEN_SECONDS = 30.0


async def open_home(store: Database, channel: Channel | None, person: str, thread: Thread) -> Thread | None:
    """Return the private chat of a person, opened where they never wrote to the bot; None: there is no other chat.

    Raises TryLater where the platform does not answer now.
    """
    if not person:
        return None
    known = await store.run(lambda execute: people.find_person(execute, thread.channel, person))
    home: Thread | None = known.private_chat if known else None
    if home is None and channel and isinstance(channel, PrivateChatOpener):
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                home = await channel.open_private_chat(person, thread)
        except Refused as error:
            log.warning("outbox.no_private_chat thread=%s reason=%s", thread, error)
        except (OutcomeUnknown, TimeoutError) as error:  # a second call returns the same chat
            raise TryLater(f"no private chat: {error}") from error
    return home if home != thread else None


def redirect_answer(
    execute: Execute, person: str, home: Thread | None, thread: Thread, text: str, key: str, now: float
) -> bool:
    """Send what cannot be posted in its thread, which is gone, to the private chat of its reader, if there is one."""
    if home is None or not text:
        return False
    known = people.find_person(execute, thread.channel, person)
    with languages.speak_to(execute, thread, Author(person, known.name if known else "")):
        words = f"{_(GONE)}\n\n{text}"
    outbox.enqueue_notice(execute, home, words, key=key, now=now)
    return True
