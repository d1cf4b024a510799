"""Pairing: a stranger gets a code, operators get a button, and whoever decides first decides.

Every function runs inside a transaction. A decision deletes the code, so a button and `fawn pair` at the same time have
one effect. What the stranger wrote is kept in their row and reaches the inbox only when they are accepted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from agent.blocks import Ask
from agent.foreign_text import printable_line
from agent.messages import Author, Kind, Message
from agent.stored_json import Damaged
from bot.base.codes import make_code
from bot.commands.table import UNKNOWN, Pressed
from bot.commands.waits import Waiting
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Execute
from bot.database.states import PairingState
from bot.rights.access import LOCAL_CHANNEL, AccessPolicy
from bot.rights.current import Current
from bot.rights.deeds import DECIDE_PAIRING
from bot.storage import conversations, inbox, languages, outbox, people
from bot.storage.people import PersonRow
from catalogue import N_, _
from channels.base import Receipt

log = logging.getLogger(__name__)

PAIRING_CODE_SECONDS = 3600.0
REMINDER_SECONDS, MAX_REMINDERS = 10.0, 20  # between two answers to one stranger; answers for one code
MAX_WAITING = 200  # people with a code at once
MAX_ANNOUNCED = 10  # people with a code of whom operators are told in their chat
MAX_KEPT_BYTES = 64_000  # of a stranger's message
MAX_NAME_CHARS = 60
MAX_WORD_CHARS = 32  # of a word alone

CODE = N_(
    "Hello! I don't know you yet. Send this code to whoever runs me: **{code}** (good for one hour)."
    " I'll write to you as soon as you're in."
)
STILL_WAITING = N_(
    "I'm still waiting for whoever runs me to let you in. Your code is **{code}**. You don't need to write again."
)
WELCOME = N_("You're in! What can I do for you?")
WELCOME_ANSWER = N_("You're in! I'm reading your message now.")
DECLINED = N_("Sorry, whoever runs me has declined your request.")
QUESTION = N_("`{name}` (`{person}` on {channel}) wants to talk to me. Their code is **{code}**, good for one hour.")
LET_IN, DECLINE = N_("Let in"), N_("Decline")
OPTIONS = (LET_IN, DECLINE)
PREFIX = "pair:"  # of the question's id, before the code


@dataclass(frozen=True, slots=True)
class Paired:
    """An accepted person, and their waiting message with its conversation."""

    person: PersonRow
    waiting: tuple[str, Message] | None


def ask_pairing(execute: Execute, access: AccessPolicy, message: Message, now: float, console: bool) -> None:
    """Answer a stranger, with a pairing code in private chats.

    A person who was declined gets no further answer. `console` is whether somebody can read a question there.
    """
    channel, author = message.thread.channel, message.author
    if not message.private or not access.rules_for(channel).pairing or author.bot or message.kind is Kind.CLICK:
        return
    person = people.find_person(execute, channel, author.id)
    if person and person.allowed == PairingState.DECLINED:
        return
    if person and person.until > now:
        _keep_message(execute, person, message)
        _remind(execute, person, message, now)
        return
    if (waiting := people.count_waiting(execute, now)) >= MAX_WAITING:
        oldest = people.withdraw_oldest_code(execute, now)
        log.warning("pairing.full waiting=%d withdrawn=%s", waiting, oldest)
    code = make_code()
    person = people.store_code(execute, message, code, now + PAIRING_CODE_SECONDS)
    _keep_message(execute, person, message)
    name = readable_name(person)
    log.info("pairing.asked channel=%s person=%s name=%r code=%s", channel, author.id, name, code)
    audit.record(execute, AuditEvent(AuditKind.PAIRING_ASKED, message.thread, author.id))
    _answer_stranger(execute, message, CODE, code, now)
    if waiting < MAX_ANNOUNCED:
        _ask_operators(execute, access.reachable_operators(execute, console=console), person, now)


def _remind(execute: Execute, person: PersonRow, message: Message, now: float) -> None:
    """Repeat the code, unless this stranger has had an answer just now or too many."""
    prefix = f"pair:{person.code}:"
    latest, count = outbox.latest_notice(execute, prefix), outbox.count_notices(execute, prefix)
    if count <= MAX_REMINDERS and not 0 <= now - latest < REMINDER_SECONDS:
        _answer_stranger(execute, message, STILL_WAITING, person.code, now)


def _answer_stranger(execute: Execute, message: Message, sentence: str, code: str, now: float) -> None:
    with languages.speak_to(execute, message.thread, message.author):
        words = _(sentence, code=code)
        outbox.enqueue_notice(execute, message.thread, words, key=f"pair:{code}:{message.key}", now=now)


def _keep_message(execute: Execute, person: PersonRow, message: Message) -> None:
    """Keep the first message until the decision, and the last word alone, which may be a proof.

    A command such as "/start" gives way to the first real message.
    """
    kept, payload = kept_message(person), message.dump()
    if kept and kept.kind is Kind.CHAT:
        if not _written_word(message):
            return
        payload = b"\n".join((kept.dump(), payload))
    if len(payload) <= MAX_KEPT_BYTES:
        people.keep_message(execute, person, message.thread, payload)


def kept_message(person: PersonRow) -> Message | None:
    """Return the message of a person who waits."""
    return next(_kept_messages(person), None)


def kept_words(person: PersonRow) -> list[str]:
    """Return what a person who waits wrote as a word alone: of their first message and their last, at most two."""
    return [word for word in map(_written_word, _kept_messages(person)) if word]


def _written_word(message: Message) -> str:
    """Return the text of a message, or what follows its "/start", if that is one word; otherwise ""."""
    word = message.text.removeprefix("start ")
    return word if len(word) <= MAX_WORD_CHARS and word.isalnum() else ""


def _kept_messages(person: PersonRow) -> Iterator[Message]:
    """Yield what is kept, a line each."""
    with suppress(Damaged):
        for line in person.message.splitlines():
            yield Message.load(line)


def _ask_operators(execute: Execute, operators: list[PersonRow], person: PersonRow, now: float) -> None:
    """Ask the operators of the person's channel and at the terminal; if there are none, those of the other channels."""
    near = [row for row in operators if row.channel in (person.channel, LOCAL_CHANNEL)]
    for row in near or operators:
        if (place := row.private_chat) is None:
            continue
        key = f"{outbox.about_stranger(person.channel, person.person)}{person.code}:{row.channel}:{row.person}"
        with languages.speak_to(execute, place, Author(row.person, row.name)):
            words = _question_about(person)
            ask = Ask(f"{PREFIX}{person.code}", words, tuple(map(_, OPTIONS)), free_text=False)
            outbox.enqueue_notice(execute, place, words, key=key, now=now, asks=(ask,))


def waiting_strangers(execute: Execute, current: Current, viewer: Message, now: float) -> Iterator[Waiting]:
    """Yield the people with a good code, for an operator of their channel, or of the service at its terminal."""
    here = viewer.thread
    if not current.access.may_do(execute, here, viewer.author.id, DECIDE_PAIRING):
        return
    for person in people.list_paired(execute, now):
        if person.code and person.until > now and here.channel in (person.channel, LOCAL_CHANNEL):
            yield Waiting(
                here,
                f"{PREFIX}{person.code}",
                _question_about(person),
                OPTIONS,
                since=person.until - PAIRING_CODE_SECONDS,
            )


def _question_about(person: PersonRow) -> str:
    name = readable_name(person)
    return _(QUESTION, name=name, person=person.person, channel=person.channel, code=person.code)


def readable_name(person: PersonRow) -> str:
    """Return a stranger's name for operators: one short line that fits into inline code."""
    return printable_line(person.name.replace("`", " "), MAX_NAME_CHARS) or "(no name)"


def decide(execute: Execute, pressed: Pressed) -> Receipt:
    """Do what an operator pressed, unless it was decided before, or the code has expired."""
    if pressed.option == UNKNOWN:
        return Receipt.DUPLICATE
    choose = accept if OPTIONS[pressed.option] == LET_IN else decline
    done = choose(execute, pressed.subject, pressed.now, by=pressed.click)
    return Receipt.ACCEPTED if done else Receipt.DUPLICATE


def accept(
    execute: Execute, code: str, now: float, *, by: Message | None = None, operator: bool = False, word: str = ""
) -> Paired | None:
    """Allow the person with this code and hand over their message; None if the code is unknown, used or expired.

    `word` is a message that is not handed over: the proof that `fawn setup` asked for.
    """
    kept = people.find_code(execute, code, now)
    person = people.accept_code(execute, code, now, operator=operator)
    if kept is None or person is None:
        return None
    _record_decision(execute, AuditKind.PAIRING_ACCEPTED, person, by)
    message = kept_message(kept)
    waiting = _hand_over(execute, message, now) if message and message.text != word else None
    _notify_person(execute, kept, WELCOME_ANSWER if waiting else WELCOME, f"paired:{code}:{now}", now)
    return Paired(person, waiting)


def _hand_over(execute: Execute, message: Message, now: float) -> tuple[str, Message] | None:
    """Store the kept message as if it arrived now; commands and what cannot be read are left out."""
    if message.kind is not Kind.CHAT:
        return None
    if ignored := inbox.find_ignored(execute, message.key):
        inbox.delete_row(execute, ignored.id)
    conversation = conversations.current_conversation(execute, message.thread, now)
    received = min(now, message.time)
    if inbox.store_message(execute, message, conversation, ready=now, received=received) is None:
        return None
    conversations.refresh_pending(execute, conversation)
    return conversation, message


def decline(execute: Execute, code: str, now: float, *, by: Message | None = None) -> PersonRow | None:
    """Decline the person with this code and tell them once; None if the code is unknown, used or expired."""
    kept = people.find_code(execute, code, now)
    person = people.decline_code(execute, code, now)
    if kept is None or person is None:
        return None
    _record_decision(execute, AuditKind.PAIRING_DECLINED, person, by)
    _notify_person(execute, kept, DECLINED, f"declined:{code}:{now}", now)
    return person


def _record_decision(execute: Execute, kind: AuditKind, person: PersonRow, click: Message | None) -> None:
    """Log who decided, and note it in the audit: an operator who pressed a button, or the command line."""
    by = click.author.id if click else ""
    log.info("%s channel=%s person=%s by=%s", kind, person.channel, person.person, by or "fawn pair")
    what = {"operator": person.operator} | ({} if click else audit.command_line())
    subject = audit.person_name(person.channel, person.person)
    audit.record(execute, AuditEvent(kind, click.thread if click else None, by, subject=subject, what=what))


def _notify_person(execute: Execute, person: PersonRow, sentence: str, key: str, now: float) -> None:
    message = kept_message(person)
    author = message.author if message else Author(person.person, person.name)
    if chat := person.private_chat:
        with languages.speak_to(execute, chat, author):
            outbox.enqueue_notice(execute, chat, _(sentence), key=key, now=now)
