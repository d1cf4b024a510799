"""Change what an outbox row has posted: mark settled questions, and redirect an answer whose thread is gone.

The transaction that settles a question enqueues a row for each chat that was asked (`outbox.enqueue_settled`). Its
delivery edits the messages there and posts nothing. What a question is now is read at that moment, so a row that comes
late shows nothing wrong.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from agent.blocks import Approve, Ask, Final, command_hint
from agent.core.context import NO_ANSWER
from agent.messages import Author, Kind, Message, Origin, ReplyHandle, Thread
from bot.base.background import PatientStore
from bot.database.database import Database, Execute
from bot.database.states import OutboxKind, QuestionState
from bot.journey.replies import open_reply
from bot.rights.approvals import send_long_call
from bot.rights.current import Current
from bot.rights.known_people import call_person
from bot.service.channel_state import find_handle
from bot.storage import languages, outbox, people, runs, sent_messages
from bot.storage import questions as stored
from bot.storage.outbox import OutboxItem
from bot.storage.questions import QuestionRow
from bot.storage.sent_messages import StoredSentMessages, known_messages
from catalogue import N_, _, use_language
from channels.base import Channel, OutcomeUnknown, PrivateChatOpener, Refused, SentMessage, TryLater
from channels.shared.texts import choice_line, shorten


async def item_posts(store: Database, current: Current, item: OutboxItem, to: str) -> StoredSentMessages:
    """Return the messages of a row that answers the message `to`."""

    def read(execute: Execute) -> tuple[list[SentMessage], ReplyHandle | None]:
        known = known_messages(execute, item.reply_key)
        return known, find_handle(execute, current.config, item.thread, to)

    known, handle = await store.run(read)
    patient = PatientStore(store, "posts")
    return StoredSentMessages(patient, item.reply_key, item.thread, item.conversation, known, handle)


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


log = logging.getLogger(__name__)

GONE = N_("I can't post where you asked me (`{reason}`), so here is my answer:")
ASKED_HERE = N_("I can't ask where you wrote to me (`{reason}`), so I'm asking here:")
FOR_OTHERS = N_("Only others may answer this. They can do so in their direct chat with me: `{command}`.")
FILES_GONE = N_("I can't send {name} where you asked me (`{reason}`), so I'm sending it here.")
MAX_REASON_CHARS = 200

OPEN_SECONDS = 30.0


def reader_of(execute: Execute, item: OutboxItem) -> str:
    """Return the id of the person for whom the words of a row are; "" where they are for nobody in particular.

    Raises Damaged.
    """
    if item.person or item.kind == OutboxKind.FILE:
        return item.person
    final = Final.load(item.payload)
    if final.mention or not (item.conversation and final.asks):
        return final.mention
    question = stored.find_question(execute, item.conversation, final.asks[0].id)  # of a turn that still works
    run = runs.find_run(execute, question.run) if question else None
    return run.requester if run else ""


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


@dataclass(frozen=True, slots=True)
class Redirect:
    """What goes to the private chat `home`, because its place refuses it: an answer, or the `names` of the `files`.

    `conversation` is that of the questions of the agent in the answer, "" where the bot itself asks.
    """

    home: Thread
    reason: str
    final: Final = field(default_factory=lambda: Final(""))
    conversation: str = ""
    names: str = ""
    files: bytes = b""  # the payload of their row


AsksInPrivate = Callable[[Execute, Message, float], Mapping[tuple[str, str], tuple[Approve, Ask]]]
"""Returns what waits for the author of a private message, by its conversation and its id: the exact call, and the
question as that chat asks it. A press there counts as one at the question's own place."""


def redirect_answer(
    execute: Execute, person: str, again: Redirect, thread: Thread, key: str, now: float, asked: AsksInPrivate
) -> None:
    """Send a person what cannot be posted in its thread, with the questions in it that they may answer."""
    known = people.find_person(execute, thread.channel, person)
    author = Author(person, known.name if known else "")
    reason = shorten(again.reason, MAX_REASON_CHARS).replace("`", "'")
    with languages.speak_to(execute, thread, author):
        if again.files:
            outbox.enqueue_notice(execute, again.home, _(FILES_GONE, name=again.names, reason=reason), key=key, now=now)
            outbox.enqueue_files(execute, again.home, again.files, key=f"{key}:files", now=now)
            return
        final = again.final
        if not final.asks:
            if final.text:
                words = f"{_(GONE, reason=reason)}\n\n{final.text}"
                outbox.enqueue_notice(execute, again.home, words, key=key, now=now)
            return
        viewer = Message(again.home, key, "", author, "", now, Kind.COMMAND, private=True, origin=Origin.PERSON)
        waiting = asked(execute, viewer, now)
        found = {ask.id: waiting.get((again.conversation, ask.id)) for ask in final.asks}
        parts = [_(GONE if final.words else ASKED_HERE, reason=reason), final.words]
        if again.conversation and (others := [ask.question for ask in final.asks if not found[ask.id]]):
            parts += [*others, _(FOR_OTHERS, command=command_hint("waiting"))]
        outbox.enqueue_notice(execute, again.home, "\n\n".join(filter(None, parts)), key=key, now=now)
        for number, ask in enumerate(final.asks, 1):
            approve, shown = found[ask.id] or (None, ask)
            if again.conversation and not approve:
                continue
            at = f"{key}:{number}"
            if approve:
                send_long_call(execute, approve, again.home, key=at, now=now)
            asks = (shown,) if shown.options else ()
            outbox.enqueue_notice(execute, again.home, shown.question, key=at, now=now, asks=asks)
