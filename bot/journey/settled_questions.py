"""Settled questions: the messages that show one, with what became of it in place of their buttons.

The transaction that settles a question enqueues a row for each chat that was asked (`outbox.enqueue_settled`). Its
delivery edits the messages there and posts nothing. What a question is now is read at that moment, so a row that comes
late shows nothing wrong.
"""

from __future__ import annotations

from functools import partial

from agent.blocks import Final
from agent.core.context import NO_ANSWER
from agent.messages import Thread
from bot.database.database import Database, Execute
from bot.database.states import QuestionState
from bot.journey.item_posts import item_posts
from bot.journey.spelled_reply import open_reply
from bot.rights.current import Current
from bot.rights.known_people import call_person
from bot.storage import outbox, sent_messages
from bot.storage import questions as stored
from bot.storage.outbox import OutboxItem
from bot.storage.questions import QuestionRow
from catalogue import N_, _, use_language
from channels.base import Channel
from channels.shared.texts import choice_line, shorten

CLOSED = N_("⏹ Closed without an answer.")
EXPIRED = N_("⌛ Nobody answered in time.")
ASKED_AGAIN = N_("↓ I ask this again below.")
MAX_ANSWER_CHARS = 200


async def show_settled(store: Database, current: Current, channel: Channel, item: OutboxItem) -> None:
    """Edit the messages that a row is about. What is gone or cannot be changed stays so. Raises TryLater."""
    for shown, id, outcome in await store.run(partial(_find_shown, item=item)):
        posts = await item_posts(store, current, shown, shown.reply_to)
        with use_language(shown.language):
            reply = open_reply(channel, item.thread, posts, to=shown.reply_to, asker=shown.person)
            await reply.settle(Final.load(shown.payload), id, outcome)


def _find_shown(execute: Execute, item: OutboxItem) -> list[tuple[OutboxItem, str, str]]:
    """Return the rows that show the question of a row, with its id and what became of it ("": it is open)."""
    [asked] = Final.load(item.payload).asks
    question = stored.find_question(execute, item.conversation, asked.id)
    if question is None:
        return []
    is_again = question.state == QuestionState.OPEN and question.run != item.run
    found = []
    for reply, messages in sent_messages.replies_with_question(execute, asked.id, item.thread).items():
        shown = outbox.find_shown(execute, reply)
        if shown is None or shown.conversation not in ("", item.conversation) or item.reply_to in messages:
            continue
        if is_again and reply == f"r{question.run}":
            continue
        with use_language(shown.language):
            outcome = _(ASKED_AGAIN) if is_again else _describe_outcome(execute, question, item.thread)
        found.append((shown, asked.id, outcome))
    return found


def _describe_outcome(execute: Execute, question: QuestionRow, thread: Thread) -> str:
    """Return what became of a question, in the current language; "" while it is open."""
    if question.state == QuestionState.OPEN:
        return ""
    if not question.answer:
        return _(CLOSED)
    if question.answer == NO_ANSWER and not question.answered_by:
        return _(EXPIRED)
    by = call_person(execute, thread.channel, question.answered_by)
    return choice_line(shorten(question.answer, MAX_ANSWER_CHARS), by)
