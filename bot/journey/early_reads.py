"""Read in one message what each message, and each run, asks for anyway (`bot.database.read_ahead`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from agent.messages import Message, Thread
from agent.turn.checkpoint_rows import ReadState, read_checkpoint
from bot.database.database import Execute
from bot.database.read_ahead import read_ahead
from bot.database.states import RunState
from bot.rights.access import AccessPolicy
from bot.storage import agents, conversations, exposures, inbox, languages, questions, reply_handles
from bot.storage.conversations import ConversationRow
from bot.storage.runs import RunRow
from bot.storage.side_posts import has_side_posts


def read_for_message(
    execute: Execute, access: AccessPolicy, event: Message, bundle: Callable[[Execute, Message], object]
) -> None:
    """Read what a message of a chat asks for before it is stored; `bundle` looks for the one that it continues."""

    def part(execute: Execute) -> None:
        inbox.find_ignored(execute, event.key)
        access.role_of(execute, event.thread, event.author.id)
        conversations.find_current(execute, event.thread)
        if event.may_answer:
            questions.open_questions_at(execute, event.thread)
        bundle(execute, event)

    read_ahead(execute, part)


def read_for_claim(execute: Execute, row: ConversationRow, most: int) -> None:
    """Read what the claim of a conversation asks for, of which a run takes so many messages at most."""

    def part(execute: Execute) -> None:
        inbox.pending_rows(execute, row.key, most)
        questions.unresolved_questions(execute, row.key)

    read_ahead(execute, part)


def read_for_run(execute: Execute, row: ConversationRow, run: RunRow) -> None:
    """Read what a new run asks for."""
    read_ahead(execute, partial(_read_of_run, row=row, run=run))


def _read_of_run(execute: Execute, row: ConversationRow, run: RunRow) -> None:
    thread = Thread.parse(row.thread)
    has_side_posts(execute, row.thread, row.key)
    languages.language_of(execute, thread, run.author)
    reply_handles.find_handle(execute, thread, run.reply_to)
    agents.agent_of(execute, row.agent, thread, run.requester)
    exposures.find_exposure(execute, row.key)
    if run.state == RunState.RUNNING:
        read_state(execute, row.key, fresh=True)


def read_state(execute: Execute, key: str, *, fresh: bool) -> ReadState:
    """Return the state of a conversation; a `fresh` run has no tasks of its own there."""
    return ReadState(read_checkpoint(execute, {"thread": key, "ns": ""}, has_tasks=not fresh))
