"""Questions: who may answer, which message answers which question, and what ends a question without an answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from agent.blocks import ALLOW_HERE, ALWAYS_ALLOW, APPROVAL_OPTIONS, Approve, Ask
from agent.context import NO_ANSWER, Answer
from agent.messages import Author, Kind, Message, Thread
from agent.permissions.rules import Grant
from bot.storage import audit, conversations, grants, inbox, languages, outbox, runs, sent_messages
from bot.storage import questions as stored
from bot.storage.audit import AuditEvent, AuditKind
from bot.storage.database import Execute
from bot.storage.questions import QuestionRow
from bot.storage.states import QuestionKind, QuestionState, RunState
from catalogue import N_, _, every_translation, list_items

EXPIRED = N_("⌛ Nobody answered in time, so I'm continuing without an answer: {text}")
REFUSED = N_(
    "This question can only be answered with one of: {options}. Press a button, or send me one of these words."
    " I have not read your message; send it again after that."
)
AMBIGUOUS = N_(
    "Press a button under the question that you mean, or reply to its message with one of its options."
    " I have not read your message; send it again after that."
)
NOT_ASKED = N_(
    "I'm waiting for an answer that only the person I asked can give."
    " I have not read your message; send it again after that."
)
CLOSED = N_(
    "That question is closed, and another one is open: please answer that one."
    " I have not read your message; send it again after that."
)
CHOSEN = N_("{name} chose **{option}**: {question}")
_NUMBERED = re.compile(r"(?m)^[ \t]*(\d{1,2})[ \t]*[:.)]")


@dataclass(slots=True)
class Bound:
    """New answers; keys of all messages that answer; messages that are refused, with the notice; keys of messages
    without an open question. Clicks on closed questions are dropped."""

    answers: list[tuple[QuestionRow, str, Message]] = field(default_factory=list)
    answering: set[str] = field(default_factory=set)
    refused: list[tuple[Message, Callable[[], str]]] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)


def may_answer(question: QuestionRow, person: str) -> bool:
    """Return whether a person who may talk in the chat may answer this question. The only place that decides this."""
    return not question.who or person in question.who.split()


def bind(questions: Sequence[QuestionRow], messages: Iterable[Message], replies: Mapping[str, str]) -> Bound:
    """Bind the messages to the open ones of these questions, in order.

    `replies` are the keys of messages that reply to a message with a question, and the question's id.
    """
    bound = Bound()
    unanswered = {question.id: question for question in questions if question.state == QuestionState.OPEN}
    known = {question.answer_key for question in questions}
    for message in messages:
        click = message.kind is Kind.CLICK
        if message.key in known:
            bound.answering.add(message.key)
        elif not unanswered and not click:
            bound.rest.append(message.key)
        else:
            target = message.target if click else replies.get(message.key, "")
            given = _match_message([*unanswered.values()], message, target)
            if callable(given):
                bound.refused += [] if click else [(message, given)]
                continue
            bound.answering.add(message.key)
            for question, text in given:
                bound.answers.append((question, text, message))
                del unanswered[question.id]
    return bound


def _match_message(
    unanswered: list[QuestionRow], message: Message, target: str
) -> list[tuple[QuestionRow, str]] | Callable[[], str]:
    """Return the questions that a message answers, with the answers, or what says why it answers none."""
    allowed = [question for question in unanswered if may_answer(question, message.author.id)]
    if not allowed:
        return partial(_, NOT_ASKED)
    if target:
        meant = [(question, message.text) for question in allowed if question.id == target]
        if not meant:
            return partial(_, CLOSED)
    else:
        meant = _numbered_answers(allowed, message.text) or _match_text(allowed, message.text)
        if not meant:
            return partial(_, AMBIGUOUS)
    given = [(question, answer) for question, text in meant if (answer := question.accept(text)) is not None]
    if len(given) < len(meant):
        refusing = next(question for question, text in meant if question.accept(text) is None)
        return lambda: _(REFUSED, options=list_items(f"**{option}**" for option in refusing.options))
    return given


def _match_text(allowed: list[QuestionRow], text: str) -> list[tuple[QuestionRow, str]]:
    """Return the only question, one with such an option, or the first that takes any text. A question without free text
    is never chosen among several that have the same option."""
    named = [each for each in allowed if text.strip().casefold() in map(str.casefold, each.options)]
    open_to_text = [each for each in allowed if each.accept(text) == text and each not in named]
    if len(allowed) == 1 or len(named) == 1:
        return [((named or allowed)[0], text)]
    if not all(each.free_text for each in named):
        return []
    return [(each, text) for each in (named or open_to_text)[:1]]


def _numbered_answers(questions: list[QuestionRow], text: str) -> list[tuple[QuestionRow, str]]:
    """Split numbered answers, such as "2: yes", one a line. Empty when the text is anything else."""
    by_number = {question.number: question for question in questions if question.number}
    before, *parts = _NUMBERED.split(text)
    numbers = [int(number) for number in parts[::2]]
    if before.strip() or len({*numbers}) < len(numbers) or not by_number.keys() >= {*numbers}:
        return []
    return [(by_number[number], words.strip()) for number, words in zip(numbers, parts[1::2], strict=True)]


# ------------------------------------------------------------ inside a transaction


def record_answers(execute: Execute, conversation: str, messages: Collection[Message], now: float) -> Bound:
    """Bind messages to the open questions of a conversation and record the answers. Raises Damaged."""
    questions = stored.unresolved_questions(execute, conversation)
    bound = bind(questions, messages, _replies(execute, messages) if questions else {})
    for question, text, message in bound.answers:
        stored.record_answer(execute, question, text, by=message.author.id, key=message.key, now=now)
        if question.kind == QuestionKind.APPROVE:  # everybody in the chat sees who decided
            _record_decision(execute, question, text, message)
            _store_grant(execute, question, text, message, now)
            key = f"answered:{question.id}:{message.key}"
            with languages.speak_to(execute, message.thread, message.author):
                name = message.author.name or message.author.id
                words = _(CHOSEN, name=name, option=text, question=question.text)
                outbox.enqueue_notice(execute, message.thread, words, key=key, now=now, reply_to=message.id)
    return bound


def _store_grant(execute: Execute, question: QuestionRow, answer: str, message: Message, now: float) -> None:
    """Store what a person allows for the future, if that is the answer."""
    scopes = {ALLOW_HERE: question.conversation, ALWAYS_ALLOW: grants.EVERYWHERE}
    scope = scopes.get(_agent_answer(question, answer))
    if scope is not None and question.grant_tool:
        grant = Grant(question.grant_tool, question.grant_subject)
        grants.store_grant(execute, scope, grant, message.thread.channel, message.author, now)
        what = describe_grant(grant.tool, grant.subject) | {"scope": "conversation" if scope else "everywhere"}
        audit.record(execute, AuditEvent(AuditKind.GRANT_GIVEN, message.thread, message.author.id, what=what))


def describe_grant(tool: str, subject: str) -> dict[str, str]:
    """Return what the audit holds of a grant: a subject may contain anything, so its digest."""
    return {"tool": tool} | ({"subject": audit.digest(subject)} if subject else {})


def record_asked(execute: Execute, ask: Ask | Approve, conversation: str, run: int, who: str) -> None:
    """Note in the audit that an approval was asked. Its digest is that of the exact call."""
    row = conversations.find_conversation(execute, conversation) if isinstance(ask, Approve) else None
    if row and isinstance(ask, Approve):
        thread = Thread.parse(row.thread)
        subject = audit.person_name(thread.channel, who) if who else ""
        event = AuditEvent(AuditKind.APPROVAL_ASKED, thread, subject=subject, run=run, what={"call": ask.call_hash})
        audit.record(execute, event)


def _record_decision(execute: Execute, question: QuestionRow, answer: str, message: Message) -> None:
    decision = _agent_answer(question, answer)
    event = AuditEvent(
        AuditKind.APPROVAL_ANSWERED,
        message.thread,
        message.author.id,
        run=question.run,
        what={"call": audit.digest(question.call)},
        result=decision.lower() if decision in APPROVAL_OPTIONS else "other",
    )
    audit.record(execute, event)


def can_click(execute: Execute, conversation: str, click: Message, pending: Collection[Message]) -> bool | None:
    """Return whether a click answers an open question: False if this person may not, None if nobody can any more.

    `pending` are messages that no run has taken yet: one of them may answer the question.
    """
    questions = stored.unresolved_questions(execute, conversation)
    bound = bind(questions, pending, _replies(execute, pending))
    answered = {question.id for question, *_rest in bound.answers}
    for question in questions:
        if question.id == click.target and question.state == QuestionState.OPEN and question.id not in answered:
            return may_answer(question, click.author.id)
    return None


def _replies(execute: Execute, messages: Iterable[Message]) -> dict[str, str]:
    """Return the keys of messages that reply to a question's own message, with the id of that question."""
    return {
        message.key: question
        for message in messages
        if message.reply_to
        and message.kind is Kind.CHAT
        and (question := sent_messages.question_of_message(execute, message.thread, message.reply_to))
    }


def given_answers(execute: Execute, conversation: str) -> tuple[Answer, ...]:
    """Return the answers with which the next turn resumes. Raises Damaged."""
    return tuple(
        Answer(question.id, _agent_answer(question, question.answer), question.answer_key)
        for question in stored.unresolved_questions(execute, conversation)
        if question.state == QuestionState.ANSWERED
    )


def _agent_answer(question: QuestionRow, answer: str) -> str:
    """Return the answer as the agent knows it: the options of an approval were shown in a person's language."""
    known = APPROVAL_OPTIONS if question.kind == QuestionKind.APPROVE else ()
    return next((option for option in known if answer in every_translation(option)), answer)


def people_to_ask(ask: Ask | Approve, requester: str) -> str:
    """Return the ids of the people who may answer; "" for everybody who may talk in the chat."""
    return requester if isinstance(ask, Approve) else ""


def replace_questions(
    execute: Execute,
    conversation: str,
    asks: Sequence[Ask | Approve],
    resumed: Collection[str],
    *,
    run: int,
    requester: str,
    now: float,
) -> None:
    """Store what a run asks at its end and close the rest. `resumed` are the ids that were answered before the run: if
    it asks one of them again, that answer was not taken. What was answered during the run stays answered."""
    known = {question.id: question for question in stored.unresolved_questions(execute, conversation)}
    for id in known.keys() - {ask.id for ask in asks}:
        stored.close_questions(execute, conversation, id)
    for number, ask in enumerate(asks, 1):
        old = known.get(ask.id)
        if old and old.state == QuestionState.ANSWERED and ask.id not in resumed:
            continue
        shown = number if len(asks) > 1 else old.number if old else 0
        who = old.who if old else people_to_ask(ask, requester)
        stored.store_question(execute, ask, conversation, run=run, number=shown, who=who, now=now)
        if not old:
            record_asked(execute, ask, conversation, run, who)


def close_open_questions(execute: Execute, conversation: str, now: float) -> bool:
    """Close what a conversation waits for; its next turn begins afresh. Returns whether it waited.

    Nothing is closed while a turn works on an answer: the end of that turn decides.
    """
    if not conversations.stop_waiting(execute, conversation):
        return False
    stored.close_questions(execute, conversation)
    if run := runs.latest_run(execute, conversation):
        runs.finish_run(execute, run.id, RunState.STOPPED, now)
    return True


def close_expired_questions(execute: Execute, conversation: str, now: float) -> None:
    """Answer the expired questions of a conversation with NO_ANSWER, say so, and let a turn resume. Raises Damaged."""
    row, run = conversations.find_conversation(execute, conversation), runs.latest_run(execute, conversation)
    for question in stored.unresolved_questions(execute, conversation):
        if question.state != QuestionState.OPEN or question.until is None or question.until > now:
            continue
        key = f"expired:{question.id}:{question.run}"
        stored.record_answer(execute, question, NO_ANSWER, by="", key=key, now=now)
        if row and question.kind == QuestionKind.APPROVE:
            what = {"call": audit.digest(question.call)}
            thread = Thread.parse(row.thread)
            audit.record(execute, AuditEvent(AuditKind.APPROVAL_EXPIRED, thread, run=question.run, what=what))
        if row and run:
            nobody = Author(run.requester, "", language=run.language)
            thread = Thread.parse(row.thread)
            click = Message(thread, key, "", nobody, NO_ANSWER, now, Kind.CLICK, target=question.id)
            inbox.store_message(execute, click, conversation, ready=now, received=now)
            with languages.speak_to(execute, thread, nobody):
                outbox.enqueue_notice(execute, thread, _(EXPIRED, text=question.text), key=key, now=now)
