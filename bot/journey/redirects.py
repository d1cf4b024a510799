"""Send an answer elsewhere where its thread is gone."""

from __future__ import annotations

from agent.messages import Author, Thread
from bot.storage import languages, outbox, people
from bot.storage.database import Execute
from catalogue import N_, _

GONE = N_("I can't post any more where you asked me, so here is my answer:")


def redirect_answer(execute: Execute, person: str, thread: Thread, text: str, key: str, now: float) -> bool:
    """Send what cannot be posted in its thread, which is gone, to the private chat of its reader, if that is known."""
    known = people.find_person(execute, thread.channel, person) if person else None
    home = known.private_chat if known else None
    if known is None or home in (None, thread) or not text:
        return False
    with languages.speak_to(execute, thread, Author(known.person, known.name)):
        words = f"{_(GONE)}\n\n{text}"
    outbox.enqueue_notice(execute, home, words, key=key, now=now)
    return True
