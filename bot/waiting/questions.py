"""Find the questions of the agent that wait for a person, in all chats of their account."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from agent.messages import Message, Thread
from agent.stored_json import Damaged
from bot.base.side_work import name_side_work
from bot.commands.waits import Waiting
from bot.database.database import Execute
from bot.journey.questions import is_meant_for
from bot.rights.access import AccessPolicy
from bot.rights.approvals import find_hand_over, may_answer
from bot.rights.current import Current
from bot.rights.known_people import call_person
from bot.storage import conversations, hand_overs, inbox, runs
from bot.storage import questions as stored
from bot.storage.questions import QuestionRow


def waiting_questions(execute: Execute, current: Current, viewer: Message, now: float) -> Iterator[Waiting]:
    """Yield the open questions and approvals that wait for the author of a message, and those handed over to them."""
    channel, person = viewer.thread.channel, viewer.author.id
    givers = [row.giver for row in hand_overs.of_deputy(execute, channel, person, now)]
    asked = {
        (each.conversation, each.id): each
        for who in dict.fromkeys((person, *givers))
        for each in stored.open_questions_for(execute, channel, who)
    }
    for question in sorted(asked.values(), key=lambda each: each.asked):
        row = conversations.find_conversation(execute, question.conversation)
        if row is None:
            continue
        home = Thread.parse(row.thread)
        found = find_place(execute, current.access, question, home, person, now)
        if found is None:
            continue
        place, options = found
        run = runs.find_run(execute, question.run)
        work = name_side_work(row.key, row.title)
        yield Waiting(
            place,
            question.id,
            question.text,
            options,
            bool(question.free_text),
            question.call,
            who=call_person(execute, home.channel, run.requester) if run else "",
            title=work.label if work.kind else _asked_words(execute, question) or work.title,
            since=question.asked,
            conversation=question.conversation,
        )


def _asked_words(execute: Execute, question: QuestionRow) -> str:
    """Return what the request said that the question is about; "" where it was forgotten."""
    row = next(iter(inbox.rows_of_request(execute, question.run, question.conversation)), None)
    with suppress(Damaged):
        return row.message.text if row else ""
    return ""


def find_place(
    execute: Execute, access: AccessPolicy, question: QuestionRow, home: Thread, person: str, now: float
) -> tuple[Thread, tuple[str, ...]] | None:
    """Return where a person would answer a question that waits for them, and the options that they have: where it was
    asked, or in the other chat that is asked; None if it does not wait for them.

    What others approve waits for whoever may approve it and belongs there: who wrote there, or has a role of their own.
    """
    for place in [home, *([Thread.parse(question.asked_in)] if question.asked_in else [])]:
        if not may_answer(execute, access, question, place, person, at=now):
            continue
        if question.approvers:
            waits = access.holds_role(execute, place, person) or inbox.has_written_in(execute, place, person)
        else:
            waits = is_meant_for(execute, question, person)
        if waits or _is_handed_over(execute, access, question, place, person, now):
            allowed = partial(may_answer, execute, access, question, place, person, at=now)
            return place, tuple(option for option in question.options if allowed(answer=option))
    return None


def _is_handed_over(
    execute: Execute, access: AccessPolicy, question: QuestionRow, place: Thread, person: str, now: float
) -> bool:
    """Return whether a person stands in for one for whom this question waits."""
    row = find_hand_over(execute, access, question, place, person, now)
    return row is not None and (bool(question.approvers) or is_meant_for(execute, question, row.giver))
