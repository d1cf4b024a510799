"""Questions: who may answer, which message answers which question, and what ends a question without an answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from agent.blocks import ALLOW_HERE, ALWAYS_ALLOW, APPROVAL_OPTIONS, Approve, Ask
from agent.core.context import NO_ANSWER, Answer
from agent.messages import Author, Kind, Message, Origin, Thread
from agent.permissions.invisible import LINES, show_literally
from agent.permissions.rules import Grant
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Execute
from bot.database.states import QuestionKind, QuestionState, RunState
from bot.rights.access import AccessPolicy
from bot.rights.approvals import ask_elsewhere, may_answer, question_columns
from bot.rights.known_people import call_person
from bot.storage import calls, conversations, inbox, languages, outbox, runs, sent_messages
from bot.storage import questions as stored
from bot.storage.questions import QuestionRow
from catalogue import N_, _, every_translation, list_items
from channels.base import Receipt
from channels.shared.texts import shorten

EXPIRED = N_("⌛ Nobody answered in time, so I'm continuing without an answer: {text}")
KEPT = N_(
    "I've kept your message and will read it once my open question is answered. Only one of these answers it:"
    " {options}. Press a button, or send me one of these words."
)
KEPT_BESIDE_SEVERAL = N_(
    "I've kept your message and will read it once my open questions are answered. Press a button under each, or reply"
    " to its message with one of its options."
)
KEPT_FOR_CLOSED = N_(
    "That question is closed, and another one is open: please answer that one. I've kept your message and will read it"
    " after that."
)
AMBIGUOUS = N_(
    "Which question do you mean? Press a button under it, or reply to its message with one of its options. Nothing is"
    " answered yet."
)
ONLY_ONCE = N_(
    "You stand in for the person I asked, so you may approve or deny this call, and nothing for later. Nothing is"
    " answered yet."
)
CHOSEN = N_("{name} chose **{option}**: {question}")
CHOSEN_FOR = N_("{name} chose **{option}** for {giver}: {question}")
MAX_CALL_CHARS = 300  # of the call in it
_NUMBERED = re.compile(r"(?m)^[ \t]*(\d{1,2})[ \t]*[:.)]")


Given = tuple[QuestionRow, str]  # an open question, and the words that answer it


@dataclass(frozen=True, slots=True)
class Answered:
    """The message answers these questions; none: it has answered its question before."""

    given: Sequence[Given] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """The message answers none of the open questions, and its author is told why.

    `kept`: a later turn reads it, once no question is open.
    """

    why: str  # a sentence of the catalogue
    options: Sequence[str] = ()  # that it names
    kept: bool = False

    def __str__(self) -> str:
        return _(self.why, options=list_items(f"**{option}**" for option in self.options))


class Effect(Enum):
    """What becomes of a message that neither answers a question nor is refused."""

    ASIDE = "aside"  # its author is not asked: it is a request of its own
    REQUEST = "request"  # nothing is open that it could answer
    DROPPED = "dropped"  # a press on a question that is closed


Binding = Answered | Refused | Effect


def bind(
    questions: Sequence[QuestionRow],
    messages: Iterable[Message],
    replies: Mapping[str, str],
    may_answer: Callable[[QuestionRow, Message, str], bool],
    is_meant: Callable[[QuestionRow, Message], bool] = lambda _question, _message: True,
) -> dict[str, Binding]:
    """Bind the messages to the open ones of these questions, in order; return what becomes of each, by its key.

    `may_answer` says whether the author of a message may give an answer ("": any), and `is_meant` whether they are
    asked: from others, only a press, a reply to the question, or exactly one of its options is an answer. `replies` are
    the keys of messages that reply to a message with a question, and the question's id.
    """
    bindings: dict[str, Binding] = {}
    unanswered = {question.id: question for question in questions if question.state == QuestionState.OPEN}
    known = {question.answer_key for question in questions}
    for message in messages:
        if message.key in known:
            binding: Binding = Answered()
        elif message.kind is not Kind.CLICK and not (unanswered and message.may_answer):
            binding = Effect.REQUEST
        else:
            allowed = [question for question in unanswered.values() if may_answer(question, message, "")]
            meant = [question for question in allowed if is_meant(question, message)]
            binding = _bind_one(message, allowed, meant, replies.get(message.key, ""))
        match binding:
            case Answered(given) if not all(may_answer(question, message, text) for question, text in given):
                binding = Refused(ONLY_ONCE)
            case Answered(given):
                for question, _text in given:
                    del unanswered[question.id]
            case _:
                pass
        is_press = message.kind is Kind.CLICK
        bindings[message.key] = Effect.DROPPED if is_press and isinstance(binding, Refused) else binding
    return bindings


def _bind_one(message: Message, allowed: list[QuestionRow], meant: list[QuestionRow], replied: str) -> Binding:
    """Return what one message does. `allowed`: its author may answer them; `meant`: and was asked."""
    target = message.target if message.kind is Kind.CLICK else replied
    if target:
        binding = _accept([(each, message.text) for each in allowed if each.id == target], KEPT_FOR_CLOSED)
    else:
        among = meant or [each for each in allowed if has_option(each, message.text)]
        found = numbered_answers(among, message.text) or _match_text(among, message.text)
        binding = _accept(found, AMBIGUOUS if _names_option(among, message) else KEPT_BESIDE_SEVERAL)
    if isinstance(binding, Answered):
        return binding
    if not meant and message.kind is not Kind.CLICK:
        return Effect.ASIDE
    return replace(binding, kept=not _names_option(allowed, message))


def _accept(meant: Sequence[Given], why_none: str) -> Answered | Refused:
    """Return the answers as their questions accept them."""
    if not meant:
        return Refused(why_none)
    given = list[Given]()
    for question, text in meant:
        answer = question.accept(text)
        if answer is None:
            return Refused(KEPT, question.options)
        given.append((question, answer))
    return Answered(given)


def _match_text(allowed: list[QuestionRow], text: str) -> list[Given]:
    """Return the only question, one with such an option, or the first that takes any text. A question without free text
    is never chosen among several that have the same option."""
    named = [each for each in allowed if text.strip().casefold() in map(str.casefold, each.options)]
    open_to_text = [each for each in allowed if each.accept(text) == text and each not in named]
    if len(allowed) == 1 or len(named) == 1:
        return [((named or allowed)[0], text)]
    if not all(each.free_text for each in named):
        return []
    return [(each, text) for each in (named or open_to_text)[:1]]


def _names_option(allowed: Sequence[QuestionRow], message: Message) -> bool:
    """Return whether a text is an option of some question, or its number: an answer, though of which one is unclear."""
    return any(each.options and Ask("", "", each.options).match_option(message.text) for each in allowed)


def has_option(question: QuestionRow, text: str) -> bool:
    """Return whether a text is exactly one of the options of a question."""
    return text.strip().casefold() in map(str.casefold, question.options)


def is_meant_for(execute: Execute, question: QuestionRow, person: str) -> bool:
    """Return whether a person was asked: the run that asks works for them. Others may have to approve it instead."""
    run = runs.find_run(execute, question.run)
    asked = {run.requester, *runs.people_of(run)} - {""} if run else set[str]()
    return person in asked if asked else not question.who or person in question.who.split()


def numbered_answers(questions: list[QuestionRow], text: str) -> list[Given]:
    """Split numbered answers, such as "2: yes", one a line. Empty when the text is anything else."""
    by_number = {question.number: question for question in questions if question.number}
    before, *parts = _NUMBERED.split(text)
    numbers = [int(number) for number in parts[::2]]
    if before.strip() or len({*numbers}) < len(numbers) or not by_number.keys() >= {*numbers}:
        return []
    return [(by_number[number], words.strip()) for number, words in zip(numbers, parts[1::2], strict=True)]


# ------------------------------------------------------------ inside a transaction


def record_answers(
    execute: Execute, access: AccessPolicy, conversation: str, messages: Collection[Message], now: float
) -> dict[str, Binding]:
    """Bind messages to the open questions of a conversation and record the answers. Raises Damaged."""
    questions = stored.unresolved_questions(execute, conversation)
    replies = _replies(execute, messages) if questions else {}
    bindings = bind(questions, messages, replies, _rights(execute, access, now), _meant(execute))
    for message in messages:
        binding = bindings[message.key]
        for question, text in binding.given if isinstance(binding, Answered) else ():
            record_answer(execute, question, text, message, now)
    return bindings


def record_answer(
    execute: Execute, question: QuestionRow, text: str, message: Message, now: float, *, is_shown: bool = True
) -> None:
    """Record an answer, unless there is one already, and what follows from it.

    `is_shown` says whether the message with the buttons shows what was pressed: not if they were elsewhere.
    """
    if not stored.record_answer(execute, question, text, by=message.author.id, key=message.key, now=now):
        return
    pressed = message.id if message.kind is Kind.CLICK and is_shown else ""
    outbox.enqueue_settled(execute, question, now, pressed=pressed, cause=message.key)
    if question.kind == QuestionKind.APPROVE:
        _record_decision(execute, question, text, message)
        _store_grant(execute, question, text, message, now)
        _announce_decision(execute, question, text, message, now, is_shown=is_shown)
    elif not is_shown:
        _announce_here(execute, question, text, message, now)


def _rights(execute: Execute, access: AccessPolicy, now: float) -> Callable[[QuestionRow, Message, str], bool]:
    return lambda question, message, answer: may_answer(
        execute, access, question, message.thread, message.author.id, at=now, answer=answer
    )


def _meant(execute: Execute) -> Callable[[QuestionRow, Message], bool]:
    return lambda question, message: is_meant_for(execute, question, message.author.id)


def _announce_decision(
    execute: Execute, question: QuestionRow, text: str, message: Message, now: float, *, is_shown: bool
) -> None:
    """Say who decided: where the question was asked if they did it elsewhere, and in the other chat if two were asked.
    Words that answer are read where they were written, and the question itself shows the rest."""
    if not is_shown:
        _announce_here(execute, question, text, message, now)
    row, run = conversations.find_conversation(execute, question.conversation), runs.find_run(execute, question.run)
    if not (question.asked_in and row and run):
        return
    other, reader, reply_to = Thread.parse(question.asked_in), Author("", ""), ""
    if other == message.thread.without_topic:
        other, reader = Thread.parse(row.thread), run.author
        reply_to = run.reply_to
    with languages.speak_to(execute, other, reader):
        words = _chosen(execute, question, _(_agent_answer(question, text)), message)
        key = f"{answer_key(question.id, message.key)}:other"
        outbox.enqueue_notice(execute, other, words, key=key, now=now, reply_to=reply_to)


def _announce_here(execute: Execute, question: QuestionRow, text: str, message: Message, now: float) -> None:
    """Say where somebody answered what they answered."""
    with languages.speak_to(execute, message.thread, message.author):
        words, key = _chosen(execute, question, text, message), answer_key(question.id, message.key)
        outbox.enqueue_notice(execute, message.thread, words, key=key, now=now, reply_to=message.id)


def _chosen(execute: Execute, question: QuestionRow, option: str, message: Message) -> str:
    """Return who chose what, in whose place, and the beginning of the call that was decided."""
    by, channel, shown = message.author, message.thread.channel, {"option": option, "question": question.text}
    name = call_person(execute, channel, by.id, by.name)
    if giver := _giver(execute, question, by.id):
        words = _(CHOSEN_FOR, name=name, giver=call_person(execute, channel, giver), **shown)
    else:
        words = _(CHOSEN, name=name, **shown)
    return words + _shown_call(question)


def _giver(execute: Execute, question: QuestionRow, person: str) -> str:
    """Return the id of the one in whose place a person answers; "" where they are asked themselves."""
    run = runs.find_run(execute, question.run) if question.who and person not in question.who.split() else None
    return run.requester if run else ""


def answer_key(question: str, message: str) -> str:
    """Return the key of the notice that says who answered a question, with the message of this key."""
    return f"answered:{question}:{message}"


def _shown_call(question: QuestionRow) -> str:
    """Return the beginning of the call that was decided, as a block of code."""
    call = shorten(question.call, MAX_CALL_CHARS)
    return f"\n\n{show_literally(call, LINES)}" if call else ""


def _store_grant(execute: Execute, question: QuestionRow, answer: str, message: Message, now: float) -> None:
    """Store what a person allows for the future, if that is the answer."""
    scopes = {ALLOW_HERE: question.conversation, ALWAYS_ALLOW: calls.EVERYWHERE}
    scope = scopes.get(_agent_answer(question, answer))
    if scope is not None and question.grant_tool:
        grant = Grant(question.grant_tool, question.grant_subject)
        calls.store_grant(execute, scope, grant, message.thread, message.author, now)
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
    giver, channel = _giver(execute, question, message.author.id), message.thread.channel
    event = AuditEvent(
        AuditKind.APPROVAL_ANSWERED,
        message.thread,
        message.author.id,
        subject=audit.person_name(channel, giver) if giver else "",
        run=question.run,
        what={"call": audit.digest(question.call)},
        result=decision.lower() if decision in APPROVAL_OPTIONS else "other",
    )
    audit.record(execute, event)


def find_pressed(
    execute: Execute, access: AccessPolicy, conversation: str, press: Message, pending: Collection[Message], now: float
) -> Given | Receipt:
    """Return the open question that a press answers, and the answer, or the receipt of a press without effect.

    `pending` are messages that no run has taken yet: one of them may answer the question.
    """
    questions = stored.unresolved_questions(execute, conversation)
    may = _rights(execute, access, now)
    bindings = bind(questions, pending, _replies(execute, pending), may, _meant(execute)).values()
    answered = {question.id for each in bindings if isinstance(each, Answered) for question, _text in each.given}
    for question in questions:
        if question.id == press.target and question.state == QuestionState.OPEN and question.id not in answered:
            answer = question.accept(press.text)
            return Receipt.IGNORED if answer is None or not may(question, press, answer) else (question, answer)
    return Receipt.DUPLICATE


def tell_decision(execute: Execute, conversation: str, press: Message, now: float) -> None:
    """Say who answered a question before this press on one of its old buttons: to each person once."""
    question = stored.find_question(execute, conversation, press.target)
    if question is None or not question.answer or question.answered_by in ("", press.author.id):
        return
    with languages.speak_to(execute, press.thread, press.author):
        name, answer = call_person(execute, press.thread.channel, question.answered_by), question.answer
        option = _(_agent_answer(question, answer)) if question.kind == QuestionKind.APPROVE else answer
        words = _(CHOSEN, name=name, option=shorten(option, MAX_CALL_CHARS), question=question.text)
        key = f"decided:{question.id}:{press.author.id}"
        outbox.enqueue_notice(execute, press.thread, words, key=key, now=now, reply_to=press.id)


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


def has_open_question(execute: Execute, conversation: str) -> bool:
    """Return whether a conversation waits for somebody's answer."""
    unresolved = stored.unresolved_questions(execute, conversation)
    return any(question.state == QuestionState.OPEN for question in unresolved)


def attribute_request(
    execute: Execute, conversation: str, messages: Sequence[Message]
) -> tuple[Message, Collection[str]]:
    """Return the message that a run of these messages replies to, and the people whose rights bound the run.

    A run that takes answers also works for the people of the run that asked. Who decides about a call of another
    person's request, or answers in their place, requests nothing: the run still belongs to that person.
    """
    first, authors = messages[0], {message.key: message.author.id for message in messages}
    for question in stored.unresolved_questions(execute, conversation):
        if question.answer_key in authors and (asking := runs.find_run(execute, question.run)):
            answerer, is_call = authors[question.answer_key], question.kind == QuestionKind.APPROVE
            if first.key == question.answer_key and question.asked_in == str(first.thread.without_topic):
                first = replace(first, id=asking.reply_to)  # the message that was answered is in another chat
            if answerer != asking.requester and (is_call or _giver(execute, question, answerer)):
                if is_call:  # the words of a deputy stay bound by the deputy's rights
                    del authors[question.answer_key]
                if first.key == question.answer_key:
                    first = replace(first, id=asking.reply_to, author=asking.author)
            authors |= {person: person for person in runs.people_of(asking)}
    others = filter(None, (person for message in messages for person in (message.resent_by, *message.bound_by)))
    return first, [*authors.values(), *others]


def _agent_answer(question: QuestionRow, answer: str) -> str:
    """Return the answer as the agent knows it: the options of an approval were shown in a person's language."""
    known = APPROVAL_OPTIONS if question.kind == QuestionKind.APPROVE else ()
    return next((option for option in known if answer in every_translation(option)), answer)


def replace_questions(
    execute: Execute,
    conversation: str,
    asks: Sequence[Ask | Approve],
    resumed: Collection[str],
    *,
    run: int,
    home: Thread,
    requester: Author,
    now: float,
) -> None:
    """Store what a run asks at its end and close the rest. `resumed` are the ids that were answered before the run: if
    it asks one of them again, that answer was not taken. What was answered during the run stays answered."""
    known = {question.id: question for question in stored.unresolved_questions(execute, conversation)}
    for id in known.keys() - {ask.id for ask in asks}:
        _close(execute, known[id], now)
    for number, ask in enumerate(asks, 1):
        old = known.get(ask.id)
        if old and old.state == QuestionState.ANSWERED and ask.id not in resumed:
            continue
        if old and (old.state == QuestionState.ANSWERED or old.run != run):
            outbox.enqueue_settled(execute, old, now, cause="again")  # its buttons are only below
        shown = number if len(asks) > 1 else old.number if old else 0
        columns = question_columns(ask, requester.id)
        answerers = {name: getattr(old, name) for name in columns} if old else columns
        stored.store_question(execute, ask, conversation, run=run, number=shown, answerers=answerers, now=now)
        ask_elsewhere(execute, ask, home, old.run if old else run, requester, now)
        if not old:
            record_asked(execute, ask, conversation, run, columns["who"])


def close_open_questions(execute: Execute, conversation: str, now: float) -> bool:
    """Close what a conversation waits for; its next turn begins afresh. Returns whether it waited.

    Nothing is closed while a turn works on an answer: the end of that turn decides.
    """
    if not conversations.stop_waiting(execute, conversation):
        return False
    for question in stored.unresolved_questions(execute, conversation):
        _close(execute, question, now)
    conversations.refresh_pending(execute, conversation)  # what was kept is read now
    if run := runs.latest_run(execute, conversation):
        runs.finish_run(execute, run.id, RunState.STOPPED, now)
    return True


def _close(execute: Execute, question: QuestionRow, now: float) -> None:
    """Close a question. If nobody answered it, the messages that show it say so."""
    stored.close_questions(execute, question.conversation, question.id)
    if question.state == QuestionState.OPEN:
        outbox.enqueue_settled(execute, question, now, cause="closed")


def close_expired_questions(execute: Execute, conversation: str, now: float) -> None:
    """Answer the expired questions of a conversation with NO_ANSWER, say so, and let a turn resume. Raises Damaged."""
    row, run = conversations.find_conversation(execute, conversation), runs.latest_run(execute, conversation)
    for question in stored.unresolved_questions(execute, conversation):
        if question.state != QuestionState.OPEN or question.until is None or question.until > now:
            continue
        key = f"expired:{question.id}:{question.run}"
        if not stored.record_answer(execute, question, NO_ANSWER, by="", key=key, now=now):
            continue
        outbox.enqueue_settled(execute, question, now, cause="expired")
        if row and question.kind == QuestionKind.APPROVE:
            what = {"call": audit.digest(question.call)}
            thread = Thread.parse(row.thread)
            audit.record(execute, AuditEvent(AuditKind.APPROVAL_EXPIRED, thread, run=question.run, what=what))
        if row and run:
            nobody = run.author
            thread = Thread.parse(row.thread)
            click = Message(
                thread, key, "", nobody, NO_ANSWER, now, Kind.CLICK, target=question.id, origin=Origin.SYSTEM
            )
            inbox.store_message(execute, click, conversation, ready=now, received=now)
            with languages.speak_to(execute, thread, nobody):
                outbox.enqueue_notice(execute, thread, _(EXPIRED, text=question.text), key=key, now=now)
