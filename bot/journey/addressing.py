"""Say to which conversation a text in a thread belongs: the only place that decides which open question it answers.

A thread has one conversation of its own, and others beside it: background tasks, schedules, and what one person talks
about while the thread waits for another one. Each of them can wait for an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.blocks import Ask
from agent.messages import Author, Kind, Message, Quote, Thread
from bot.base.side_work import name_side_work
from bot.database.database import Execute
from bot.database.states import InboxState
from bot.journey import questions
from bot.journey.exposure import inherit_exposure
from bot.rights.access import AccessPolicy
from bot.rights.approvals import may_answer
from bot.storage import agents, conversations, inbox, languages, outbox, runs, sent_messages
from bot.storage import questions as stored
from bot.storage.conversations import ConversationRow
from bot.storage.moved_chats import move_chat
from bot.storage.questions import QuestionRow
from bot.storage.runs import RunRow
from catalogue import N_, _

PREFIX = "which:"  # begins the id of the question which question a message answers
OWN = "~"  # between a conversation's key and the id of who talks beside it
HELD = "held"  # why a message is not read yet
NEITHER = N_("None of these")
WHICH = N_("More than one question is open for you here. For which one is this? I read it when you have chosen.")


@dataclass(frozen=True, slots=True)
class Addressed:
    """The conversation of a message, and those of the questions among which its author has to choose. `beside` is the
    id of whom the thread works for, where this message begins work of its own meanwhile."""

    conversation: str
    choices: Sequence[str] = ()
    beside: str = ""


@dataclass(frozen=True, slots=True)
class AnswerElsewhere:
    """A press as if it had come from the question itself, and the question's conversation; "" for one of the bot."""

    press: Message
    conversation: str


def address_text(execute: Execute, access: AccessPolicy, message: Message, now: float) -> Addressed:
    """Return the conversation of a text: that of the message it replies to, of the only question that it can answer,
    or of its thread; the author's own one while that waits for another person, or works for one in a chat without
    threads."""
    if message.reply_to and (found := sent_messages.conversation_of_message(execute, message.thread, message.reply_to)):
        return Addressed(found)
    current = conversations.current_conversation(execute, message.thread, now)
    asked = stored.open_questions_at(execute, message.thread) if message.may_answer else []
    if not asked:
        return _beside_work(execute, current, message, now)
    choices = open_choices(execute, access, message, asked, current, now)
    if len(choices) > 1:
        return Addressed(current, choices)
    if choices:
        return Addressed(choices[0])
    here = [question for question in asked if question.conversation == current]
    if here and not any(_is_theirs(execute, access, question, message, now) for question in here):
        return Addressed(own_conversation(execute, current, message.author, now))
    return _beside_work(execute, current, message, now)


def _beside_work(execute: Execute, current: str, message: Message, now: float) -> Addressed:
    """Return the current conversation of a text, or its author's own one: where all talk in one thread, only those for
    whom a turn works change what it does. Others reply to one of its messages to join."""
    if message.private or message.thread.topic or not message.may_answer:
        return Addressed(current)
    person, working = message.author.id, runs.open_runs(execute, current)
    works_here = _worked_for(execute, current, working)
    beside = own_key(current, person)
    works_beside = _worked_for(execute, beside, runs.open_runs(execute, beside))
    if person in works_here or not (works_here or works_beside):
        return Addressed(current)
    own = own_conversation(execute, current, message.author, now)
    latest = runs.latest_run(execute, own)
    knows = works_beside or (latest and working and latest.started >= working[0].started)
    return Addressed(own, beside="" if knows else works_here[0])


def _worked_for(execute: Execute, conversation: str, working: Sequence[RunRow]) -> list[str]:
    """Return the ids of those for whom a conversation works in these open runs, or will."""
    found = [person for run in working for person in runs.people_of(run)]
    return found + inbox.pending_authors(execute, conversation)


def open_choices(
    execute: Execute, access: AccessPolicy, message: Message, asked: Sequence[QuestionRow], current: str, now: float
) -> list[str]:
    """Return the conversations with a question that this text can answer: one of its author's with exactly this
    option, else one of theirs that takes any text, else another person's with this option, if they may answer it."""
    person = message.author.id
    allowed = [each for each in asked if may_answer(execute, access, each, message.thread, person, at=now)]
    meant = [each for each in allowed if questions.is_meant_for(execute, each, person)]
    here = [each for each in meant if each.conversation == current]
    if here and questions.numbered_answers(here, message.text):
        return [current]
    exact = [each for each in allowed if questions.has_option(each, message.text)]
    free = [each for each in meant if each.free_text or not each.options]
    found = [each for each in exact if each in meant] or free or exact
    return list(dict.fromkeys(each.conversation for each in found))


def _is_theirs(execute: Execute, access: AccessPolicy, question: QuestionRow, message: Message, now: float) -> bool:
    person = message.author.id
    return questions.is_meant_for(execute, question, person) and may_answer(
        execute, access, question, message.thread, person, at=now
    )


def label_of(execute: Execute, conversation: str) -> str:
    """Return how people tell a conversation that waits from the others of its thread."""
    row = conversations.find_conversation(execute, conversation)
    return name_side_work(conversation, row.title if row else "").label


def own_conversation(execute: Execute, waiting: str, author: Author, now: float) -> str:
    """Return the conversation in which a person talks while this one waits for another person; begin it if needed.

    It answers with the same agent and model. It has met what the other one has met, whose question it gets.
    """
    key = own_key(waiting, author.id)
    row = conversations.find_conversation(execute, waiting)
    if row and not conversations.find_conversation(execute, key):
        conversations.place_conversation(execute, key, Thread.parse(row.thread), "", now)
        conversations.choose_model(execute, key, row.model, row.effort)
        agents.choose_agent(execute, key, row.agent)
        inherit_exposure(execute, waiting, key)
    return key


def own_key(conversation: str, person: str) -> str:
    """Return the key of the conversation in which a person talks beside one of a thread."""
    return f"{conversation.partition(OWN)[0]}{OWN}{person}"


def quote_waiting(execute: Execute, own: ConversationRow, message: Message) -> Message:
    """Return the message that begins an own conversation, with what its thread waits for."""
    if own.used != own.created:
        return message
    asked = stored.open_questions_at(execute, message.thread)
    waiting = [each for each in asked if each.conversation == own.key.partition(OWN)[0]]
    quotes = tuple(Quote("the talk of others here, which waits for an answer", each.text, "posted") for each in waiting)
    return replace(message, quotes=(*quotes, *message.quotes))


def is_own(conversation: str) -> bool:
    """Return whether a person talks here beside the conversation of the thread."""
    return OWN in conversation


def conversation_of_answer(execute: Execute, message: Message, now: float) -> str:
    """Return the conversation of the bot's message that this one answers, else the current one of the address."""
    pressed, chat = message.kind is Kind.CLICK, str(message.thread.without_topic)
    found = stored.conversation_of_asked(execute, message.target, chat) if pressed else ""
    if not found and (pressed or (message.reply_to and message.to_bot)):
        answered = message.reply_to or message.id
        found = sent_messages.conversation_of_message(execute, message.thread, answered)
    if not found and pressed:  # a message that is visible, but whose post is not confirmed yet
        found = stored.conversation_of_open(execute, message.target, chat)
    return found or conversations.current_conversation(execute, message.thread, now)


def hold(execute: Execute, message: Message, choices: Sequence[str], now: float) -> None:
    """Keep a stored message unread until its author says which question it answers."""
    stored_as = inbox.find_message(execute, message.key)
    if stored_as is None:
        return
    row = stored_as.id
    inbox.set_state(execute, row, InboxState.DONE, HELD)
    with languages.speak_to(execute, message.thread, message.author):
        ask = _ask_which(execute, row, choices)
        key = f"which:{message.key}"
        outbox.enqueue_notice(execute, message.thread, ask.question, key=key, now=now, reply_to=message.id, asks=(ask,))


def _ask_which(execute: Execute, row: int, choices: Sequence[str]) -> Ask:
    labels = (*(label_of(execute, each) for each in choices), _(NEITHER))
    return Ask(f"{PREFIX}{row}", _(WHICH), labels, free_text=False, personal=True)


def held_question(execute: Execute, thread: Thread) -> Ask | None:
    """Return the question which question the latest held message answers, in a chat with one person; None for none."""
    current = conversations.find_current(execute, thread)
    row = inbox.latest_held(execute, current, HELD) if current else None
    asked = stored.open_questions_at(execute, thread)
    return _ask_which(execute, row, [*dict.fromkeys(each.conversation for each in asked)]) if row and asked else None


def held_by(execute: Execute, row: int) -> str | None:
    """Return the id of whose message waits for a choice; None if it does not wait."""
    held = inbox.find_row(execute, row)
    return held.message.author.id if held and held.error == HELD else None


def release_held(execute: Execute, access: AccessPolicy, row: int, label: str, now: float) -> None:
    """Have a held message read: as the answer that its author chose, or for itself where that question is closed."""
    held = inbox.find_row(execute, row)
    if held is None or held.error != HELD:
        return
    message = held.message
    current = conversations.current_conversation(execute, message.thread, now)
    asked = stored.open_questions_at(execute, message.thread)
    choices = open_choices(execute, access, message, asked, current, now)
    target = next((each for each in choices if label_of(execute, each) == label), current)
    inbox.release_row(execute, row, target, now)
    conversations.refresh_pending(execute, target)


def addresses_of_move(event: Message) -> tuple[Thread, Thread]:
    """Return the old and the new address of a chat."""
    return event.thread.without_topic, replace(event.thread, chat=event.text, topic="")


def move_address(execute: Execute, event: Message) -> None:
    """Move what is stored of a chat to its new address."""
    move_chat(execute, *addresses_of_move(event))
