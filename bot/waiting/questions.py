"""Which questions of the agent wait for a person, in all chats of their account."""

from __future__ import annotations

from collections.abc import Iterator

from agent.messages import Message, Thread
from bot.commands.waits import Waiting
from bot.current import Current
from bot.journey.questions import is_meant_for
from bot.rights.access import AccessPolicy
from bot.rights.approvals import may_answer
from bot.service.side_work import name_side_work
from bot.storage import conversations, inbox, runs
from bot.storage import questions as stored
from bot.storage.database import Execute
from bot.storage.questions import QuestionRow


def waiting_questions(execute: Execute, current: Current, viewer: Message, _now: float) -> Iterator[Waiting]:
    """Yield the open questions and approvals that wait for the author of a message."""
    access, person = current.access, viewer.author.id
    for question in stored.open_questions_for(execute, viewer.thread.channel, person):
        row = conversations.find_conversation(execute, question.conversation)
        place = find_place(execute, access, question, Thread.parse(row.thread), person) if row else None
        if row is None or place is None:
            continue
        run = runs.find_run(execute, question.run)
        work = name_side_work(row.key, row.title)
        yield Waiting(
            place,
            question.id,
            question.text,
            question.options,
            bool(question.free_text),
            question.call,
            who=(run.author.name or run.requester) if run else "",
            title=work.label if work.kind else work.title,
            since=question.asked,
            conversation=question.conversation,
        )


def find_place(
    execute: Execute, access: AccessPolicy, question: QuestionRow, home: Thread, person: str
) -> Thread | None:
    """Return where a person would answer a question that waits for them: where it was asked, or in the other chat that
    is asked; None if it does not wait for them.

    What others approve waits for whoever may approve it and belongs there: who wrote there, or has a role of their own.
    """
    places = [home, *([Thread.parse(question.asked_in)] if question.asked_in else [])]
    for place in places:
        if not may_answer(execute, access, question, place, person):
            continue
        if not question.approvers:
            return place if is_meant_for(execute, question, person) else None
        if access.holds_role(execute, place, person) or inbox.has_written_in(execute, place, person):
            return place
    return None
