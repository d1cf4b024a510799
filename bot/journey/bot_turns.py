"""Bound how long bots talk to each other: so many turns in a row, then silence until a person writes there."""

from __future__ import annotations

from agent.messages import Kind, Message
from agent.stored_json import Damaged
from bot.database.database import Execute
from bot.storage import inbox, languages, outbox
from bot.storage.inbox import InboxRow
from catalogue import N_, _

ONLY_BOTS = "only_bots"  # why an event was ignored
ROWS_PER_TURN = 10  # that are looked at: a bot may write several messages before a turn takes them
QUIET = N_(
    "Only bots have written to me here for {n} turns, so I don't answer them any more. When a person writes, I go on."
)


def is_over(execute: Execute, event: Message, allowed: int, now: float) -> bool:
    """Return whether a message of a bot would begin one turn too many. The chat gets one notice of it."""
    if not event.author.bot or event.kind is not Kind.CHAT:
        return False
    latest = inbox.latest_of_thread(execute, str(event.thread), (allowed + 1) * ROWS_PER_TURN)
    row_ids, turns = list[int](), set[int | None]()
    for row in latest:
        if row.kind != Kind.CHAT:
            continue
        if not _is_of_bot(row):
            break
        row_ids.append(row.id)
        turns.add(row.run)
    if len(turns) < allowed or (turns and latest[0].run is None):  # the latter waits, and this joins it
        return False
    with languages.speak_to(execute, event.thread, event.author):
        key = f"bots:{event.thread}:{min(row_ids, default=0)}"
        outbox.enqueue_notice(execute, event.thread, _(QUIET, n=allowed), key=key, now=now, reply_to=event.id)
    return True


def _is_of_bot(row: InboxRow) -> bool:
    try:
        return row.message.author.bot
    except Damaged:
        return False
