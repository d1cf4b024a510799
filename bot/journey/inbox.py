"""Persist each event once, in order, before it is acknowledged.

`receive` returns after the commit. One transaction decides everything about an event: whether its author may talk,
whether it is new, which conversation it belongs to, and when it is ready (the pieces of an album or a long paste wait
for each other, a flood waits for its window).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeAlias

from agent.messages import ANYWHERE, Kind, Message, Unreadable
from bot.config.schema import ServiceLimits
from bot.config.team import Right
from bot.database import audit
from bot.database.audit import AuditEvent, AuditKind
from bot.database.database import Database, Execute, StorageError, engine_savepoint
from bot.database.states import InboxState
from bot.journey import claims, ignored, questions
from bot.journey.addressing import (
    Addressed,
    AnswerElsewhere,
    address_text,
    addresses_of_move,
    conversation_of_answer,
    hold,
    move_address,
)
from bot.journey.changed_messages import Stopped, apply_change, as_new_mention, note_undelivered, store_feedback
from bot.journey.ignored import (
    MAX_IGNORED,
    MAY_NOT_TALK,
    NOT_ADDRESSED,
    IgnoredEvent,
    overhear,
    refusal_reason,
)
from bot.rights.claimed_run import ClaimedRun
from bot.rights.current import Current
from bot.rights.known_people import call_person
from bot.rights.rates import ToolAndMessageRates
from bot.rights.work_rights import record_refusal, refuse_work
from bot.service.channel_state import keep_handle
from bot.storage import channels, conversations, inbox, languages, outbox, people, sent_messages
from bot.storage.inbox import InboxRow
from bot.storage.uses import RATE_LIMIT
from catalogue import N_, _
from channels.base import NotStored, Receipt

log = logging.getLogger(__name__)

GATHER_SECONDS = 1.0  # how long a piece waits for the next one: clients send them within a few hundred milliseconds
UNSUPPORTED = N_("I can't read {what} yet. Text, photos, documents, voice messages and videos work.")
ANSWERED = N_("Answered: **{answer}**.")
CLOSED = N_("That question is closed already, so nothing has changed.")
FLOOD = N_(
    "You're faster than I am ({count} messages in {seconds} s). Nothing is lost; I'll continue in {seconds} seconds."
)
BESIDE = N_(
    "I'm still working for {name}, so I take this as a request of your own and work on both at the same time. To join"
    " in there, reply to my message."
)
TURN_KINDS = (Kind.CHAT, Kind.CLICK)  # a turn takes these; the bot itself answers the others


@dataclass(frozen=True, slots=True)
class Accepted:
    """A message that was stored to be answered, with its conversation."""

    conversation: str
    message: Message


Outcome: TypeAlias = Receipt | Accepted | Stopped
"""The effect of a transaction on an event. `Accepted` and `Stopped` need further work after the commit."""


def receipt_of(outcome: Outcome) -> Receipt:
    """Return what the channel is told."""
    if isinstance(outcome, Accepted):
        return Receipt.ACCEPTED
    return Receipt.IGNORED if isinstance(outcome, Stopped) else outcome


class Turns(Protocol):
    """What takes stored messages into turns: the scheduler."""

    def reserve_places(self, wanted: int) -> AbstractContextManager[int]:
        """Keep up to so many free places for messages that are being stored."""

    def claim_at_once(self, execute: Execute, conversation: str, now: float) -> ClaimedRun | None:
        """Claim a conversation in the transaction that stores its message. None: it waits for the next look."""

    def arrived(self, accepted: Sequence[tuple[str, Message]], claimed: Sequence[ClaimedRun]) -> None:
        """Called after the commit: begin the claimed runs, and tell those at work in a conversation of its messages."""

    def stop_run(self, run: int, by: str) -> None:
        """Called after the commit that recorded the stop: cancel the work of a run."""


class Reception(Protocol):
    """What receives the events that need no turn. Its methods run inside the transaction."""

    def knows_command(self, name: str) -> bool:
        """Return whether there is a command of this name."""

    def begins_work(self, command: Message) -> bool:
        """Return whether a command has the agent work."""

    def redirect(self, execute: Execute, event: Message, now: float) -> AnswerElsewhere | None:
        """Return what an answer that was given elsewhere is at the question's own place; None for another event."""

    def take_press(self, execute: Execute, event: Message, now: float) -> Message | Receipt | None:
        """Return what is left of a press to be answered, or its receipt; None for another event."""

    def open_home(self, execute: Execute, event: Message) -> None:
        """Have the bot's own page shown to who opened it."""

    def meet_stranger(self, execute: Execute, message: Message, now: float) -> None:
        """Answer somebody who may not enter."""


class Inbox:
    """Where channels offer their events. While a place is free, the transaction that stores a message claims it."""

    def __init__(self, store: Database, current: Current, turns: Turns, reception: Reception) -> None:
        self._store = store
        self._current = current
        self._turns = turns
        self._reception = reception
        self._rates = ToolAndMessageRates(current, is_shared=store.is_shared)
        self.ignored: deque[IgnoredEvent] = deque(maxlen=MAX_IGNORED)  # the latest of this process
        self._reasons: dict[str, str] = {}  # key → why its event is ignored, until that is logged

    async def receive(self, events: Sequence[Message | Unreadable]) -> list[Receipt]:
        """Store events; return one receipt each, in order, after the commit. Raises NotStored: nothing is stored."""
        receipts, _rows = await asyncio.shield(self._receive(events))  # processed also if the caller gives up
        return receipts

    async def receive_one(self, event: Message) -> tuple[Receipt, InboxRow | None]:
        """Store an event as `receive` does; return its receipt and its row, as the same transaction left it."""
        [receipt], [row] = await asyncio.shield(self._receive([event], with_rows=True))
        return receipt, row

    async def _receive(
        self, events: Sequence[Message | Unreadable], *, with_rows: bool = False
    ) -> tuple[list[Receipt], list[InboxRow | None]]:
        now = time.time()
        chats = sum(isinstance(event, Message) and event.kind is Kind.CHAT for event in events)
        with self._turns.reserve_places(chats) as places:
            try:
                outcomes, claimed, rows = await self._store.run(
                    lambda execute: self._store_events(execute, events, now, places, with_rows=with_rows)
                )
            except StorageError as error:
                log.error("inbox.not_stored events=%d reason=%s", len(events), error)  # noqa: TRY400 — the reason is enough
                raise NotStored(str(error)) from error
            self._turns.arrived(_for_turns(outcomes), claimed)
            for stopped in outcomes:
                if isinstance(stopped, Stopped):
                    self._turns.stop_run(stopped.run, stopped.by)
        receipts = [receipt_of(outcome) for outcome in outcomes]
        for event, receipt in zip(events, receipts, strict=True):
            reason = self._reasons.pop(event.key, "")
            if receipt is Receipt.IGNORED and isinstance(event, Message):
                self.ignored.append(found := IgnoredEvent.of(event, reason, now))
                values = found.reason, found.person or "-", found.thread
                log.info("inbox.ignored key=%s reason=%s person=%s thread=%s", event.key, *values)
            else:
                log.info("inbox.%s key=%s", receipt, event.key)
            if isinstance(event, Message) and event.kind is Kind.MOVED:
                self._current.languages.move(*addresses_of_move(event))
        return receipts, rows

    # Everything below runs inside the transaction, on the database's thread.

    def _store_events(
        self, execute: Execute, events: Sequence[Message | Unreadable], now: float, places: int, *, with_rows: bool
    ) -> tuple[list[Outcome], list[ClaimedRun], list[InboxRow | None]]:
        outcomes = [self._store_event_safely(execute, event, now) for event in events]
        claimed = self._claim_accepted(execute, _for_turns(outcomes), now, places)
        return outcomes, claimed, [inbox.find_message(execute, event.key) for event in events] if with_rows else []

    def _claim_accepted(
        self, execute: Execute, accepted: Sequence[tuple[str, Message]], now: float, places: int
    ) -> list[ClaimedRun]:
        """Claim conversations with new messages, up to `places`. What is pending in the others wakes the scheduler."""
        claimed: list[ClaimedRun] = []
        chats = {conversation for conversation, message in accepted if message.kind is Kind.CHAT}
        for conversation in dict.fromkeys(each for each, _message in accepted):
            if conversation not in chats or len(claimed) >= places:
                conversations.refresh_pending(execute, conversation)
            elif job := self._turns.claim_at_once(execute, conversation, now):
                claimed.append(job)
        return claimed

    def _store_event_safely(self, execute: Execute, event: Message | Unreadable, now: float) -> Outcome:
        """Store an event. One that cannot be stored as it is does not block the others."""
        try:
            with engine_savepoint(execute, "event"):
                return self._store_event(execute, event, now)
        except StorageError:
            raise  # a fault of the database: the channel offers all of them again
        except Exception as error:  # the boundary of one event; it becomes a dead letter
            log.exception("inbox.unreadable key=%s", event.key)
            channel = event.channel if isinstance(event, Unreadable) else event.thread.channel
            raw = repr(event).encode("utf-8", "backslashreplace")
            return _store_unreadable(execute, Unreadable(channel, event.key, raw, repr(error)), now)

    def _store_event(self, execute: Execute, event: Message | Unreadable, now: float) -> Outcome:
        if isinstance(event, Unreadable):
            receipt = _store_unreadable(execute, event, now)
            if event.said is None or receipt is Receipt.DUPLICATE:
                return receipt
            event = event.said
        if event.kind is Kind.HOME:
            self._reception.open_home(execute, event)
            return Receipt.ACCEPTED
        if event.kind is Kind.INVITE:
            return self._answer_invitation(execute, event)
        if event.kind is Kind.UNDELIVERED:
            return note_undelivered(execute, self._current, event, now)
        channels.advance_watermark(execute, event)
        if event.kind in (Kind.EDIT, Kind.DELETE):
            change = apply_change(execute, event) or as_new_mention(execute, event)
            if not isinstance(change, Message):
                return change or Receipt.IGNORED
            event = change
        if ANYWHERE in (event.thread.chat, event.thread.topic):
            if (located := _resolve_thread(execute, event)) is None:
                return Receipt.IGNORED
            event = located
        if event.kind is Kind.MOVED:
            move_address(execute, event)
            return Receipt.IGNORED
        if event.kind is Kind.TITLE:
            return self._store_title(execute, event, now)
        if event.kind in (Kind.FEEDBACK, Kind.FEEDBACK_REMOVED):
            taken = store_feedback(execute, self._current.access, event)
            if not isinstance(taken, Message):
                return taken
            event = taken
        if _was_ignored(execute, event):
            return Receipt.IGNORED
        if not self._is_addressed(execute, event):
            self._reasons[event.key] = "not_addressed"
            overhear(execute, event, self._current.limits, now)
            return _ignore_event(execute, event, NOT_ADDRESSED, now)
        keep_handle(execute, self._current.config, event)
        if (elsewhere := self._reception.redirect(execute, event, now)) is not None:
            return self._store_answer_elsewhere(execute, event, elsewhere, now)
        return self._store_addressed(execute, event, now)

    def _answer_invitation(self, execute: Execute, event: Message) -> Receipt:
        """Return whether the bot enters a chat into which a person invites it: those may who may talk to it there.

        Into a direct chat, everybody may where people can pair: there they get their code.
        """
        access = self._current.access
        pairs = event.private and access.rules_for(event.thread.channel).pairing
        if access.may_enter(execute, event) or (pairs and not ignored.is_declined(execute, event)):
            return Receipt.ACCEPTED
        return Receipt.IGNORED

    def _store_answer_elsewhere(
        self, execute: Execute, event: Message, elsewhere: AnswerElsewhere, now: float
    ) -> Outcome:
        """Store an answer as a press on the question itself, and tell who gave it in words whether it counts."""
        outcome = self._store_addressed(execute, elsewhere.press, now, elsewhere.conversation)
        counts, press = receipt_of(outcome) is Receipt.ACCEPTED, elsewhere.press
        by = audit.person_name(event.thread.channel, event.author.id)
        if counts and by != audit.person_name(press.thread.channel, press.author.id):  # a linked account
            kind = AuditKind.ACCOUNT_LINK
            audit.record(execute, AuditEvent(kind, press.thread, press.author.id, subject=by, result="answered"))
        if event.kind is Kind.COMMAND:
            sentence = ANSWERED if counts else CLOSED
            _notify_author(execute, event, lambda: _(sentence, answer=press.text), f"in:{event.key}", now)
        return outcome

    def _store_addressed(self, execute: Execute, event: Message, now: float, asking: str = "") -> Outcome:
        """Store an event that is meant for the bot. `asking` is the conversation that it answers from elsewhere."""
        access = self._current.access
        if (pressed := self._reception.take_press(execute, event, now)) is not None:
            if isinstance(pressed, Receipt):
                return pressed
            event = pressed
        if (refused := self._turn_away(execute, event, now)) is not None:
            return refused
        if event.private and access.may(execute, event.thread, event.author.id, Right.OPERATE):
            people.store_address(execute, event)
        where = Addressed(asking) if asking else self._address(execute, event, now)
        conversation = where.conversation
        given = None
        if event.kind is Kind.CLICK:
            conversations.lock_conversation(execute, conversation)  # of two presses at once, the second sees the first
            found = claims.find_pressed(execute, access, conversation, event, now)
            if isinstance(found, Receipt):
                if found is Receipt.DUPLICATE and not asking:
                    questions.tell_decision(execute, conversation, event, now)
                return found
            given = found
        receipt = self._store_message(execute, event, conversation, now)
        if receipt is Receipt.ACCEPTED and where.beside:
            name = partial(call_person, execute, event.thread.channel, where.beside)
            _notify_author(execute, event, lambda: _(BESIDE, name=name()), f"beside:{event.key}", now)
        if receipt is Receipt.ACCEPTED and where.choices:
            hold(execute, event, where.choices, now)
        elif receipt is Receipt.ACCEPTED:
            if given:  # a turn may be working on another answer; it ends without this question
                question, answer = given
                questions.record_answer(execute, question, answer, event, now, is_shown=not asking)
            return Accepted(conversation, event)
        return receipt

    def _turn_away(self, execute: Execute, event: Message, now: float) -> Receipt | None:
        """Ignore an event of somebody who may not enter or talk, or of bots that would talk for ever."""
        access = self._current.access
        if not access.may_enter(execute, event):
            self._reception.meet_stranger(execute, event, now)
            ignored.answer_stranger(execute, access, event, now)
            self._reasons[event.key] = why = refusal_reason(execute, event, now)
            return _ignore_event(execute, event, why, now, is_refusal=True)
        if event.kind is Kind.CHAT and not access.may(execute, event.thread, event.author.id, Right.TALK):
            refuse_work(execute, event, access.role_of(execute, event.thread, event.author.id), now)
            self._reasons[event.key] = why = MAY_NOT_TALK
            return _ignore_event(execute, event, why, now, is_refusal=True)
        if ignored.bots_talk_too_long(execute, event, self._current.limits.bot_turns, now):
            self._reasons[event.key] = ignored.ONLY_BOTS
            return _ignore_event(execute, event, ignored.ONLY_BOTS, now)
        return None

    def _address(self, execute: Execute, event: Message, now: float) -> Addressed:
        if event.kind is not Kind.CHAT:
            return Addressed(conversation_of_answer(execute, event, now))
        return address_text(execute, self._current.access, event, now)

    def _store_title(self, execute: Execute, event: Message, now: float) -> Receipt:
        """Record the name that a person gave a thread, so that no title replaces it."""
        if not self._current.access.may_enter(execute, event):
            return Receipt.IGNORED
        if event.private:  # the name of a new topic comes before its first message
            conversations.current_conversation(execute, event.thread, now)
        conversations.replace_title(execute, event.thread, event.text)
        return Receipt.ACCEPTED

    def _store_message(self, execute: Execute, message: Message, conversation: str, now: float) -> Receipt:
        bundle = continues = ""
        if message.kind is Kind.CHAT:
            continues = _open_bundle(execute, message)
            bundle = _album_bundle(message) or continues or (_paste_bundle(message) if message.long else "")
        ready = now + GATHER_SECONDS if bundle else now
        received = min(now, message.time)  # messages that a catch-up reads all at once are not a flood
        row = inbox.store_message(execute, message, conversation, ready=ready, received=received, bundle=bundle)
        if row is None:
            return Receipt.DUPLICATE
        if message.kind not in (Kind.COMMAND, Kind.PRESS):  # they have their row when they are answered
            what = {"id": row, "kind": message.kind, "files": len(message.attachments)}
            audit.record(execute, AuditEvent(AuditKind.MESSAGE, message.thread, message.author.id, what=what))
        if message.kind is Kind.UNSUPPORTED:
            _notify_author(execute, message, lambda: _(UNSUPPORTED, what=_(message.text)), f"in:{row}", now)
            inbox.set_state(execute, row, InboxState.DONE)
        elif message.kind in TURN_KINDS:
            if bundle:  # every piece waits for the last one
                inbox.delay_bundle(execute, conversation, bundle, ready)
            if message.kind is Kind.CHAT and not continues and self._refuse(execute, message, row, received):
                return Receipt.IGNORED
            self._limit_flood(execute, message, row, now)
        elif message.kind is Kind.COMMAND and self._refuses_work(execute, message, row, received):
            return Receipt.IGNORED
        return Receipt.ACCEPTED

    def _refuses_work(self, execute: Execute, command: Message, row: int, received: float) -> bool:
        return self._reception.begins_work(command) and self._refuse(execute, command, row, received)

    def _is_addressed(self, execute: Execute, message: Message) -> bool:
        """Return whether the message is for the bot: by its address, by its thread, or as a piece of a bundle."""
        if message.addressed:
            return True
        if message.kind is Kind.COMMAND:  # "!important" is none, "/roll" is another bot's
            return self._reception.knows_command(message.text.partition(" ")[0])
        if message.follow_up and conversations.has_conversation(execute, message.thread):
            return True
        return message.kind is Kind.CHAT and bool(_open_bundle(execute, message))

    def _refuse(self, execute: Execute, message: Message, row: int, received: float) -> bool:
        """Refuse a message above a rate limit, and say once until when. Queued, it would block the thread for all."""
        self._rates.read_messages(execute, row, received, self._reception.begins_work)
        refused = self._rates.take_message(message, received)
        if refused is None:
            return False
        inbox.set_state(execute, row, InboxState.DONE, RATE_LIMIT)
        self._reasons[message.key] = "rate_limit"
        what = {"id": row, "rate": refused.limit.scope}
        audit.record(execute, AuditEvent(AuditKind.ACCESS_DENIED, message.thread, message.author.id, what=what))
        notice = partial(refused.sentence, self._current.config.time_zone)
        _notify_author(execute, message, notice, f"rate:{refused.key}:{refused.until:.0f}", received)
        return True

    def _limit_flood(self, execute: Execute, message: Message, row: int, now: float) -> None:
        """Delay messages above the limit of a person, and enqueue one notice about it."""
        limits = self._current.limits
        window, allowed = limits.flood_seconds, limits.flood_messages
        if message.time < now - window or inbox.count_recent(execute, message, now - window) <= allowed:
            return
        key = f"flood:{message.thread.channel}:{message.author.id}:"  # of every such notice to this person
        until = min(outbox.latest_notice(execute, key) + window, now + window)  # less where the clock was set back
        if until < now:
            until = now + window
            notice = partial(_, FLOOD, count=allowed, seconds=f"{window:g}")
            _notify_author(execute, message, notice, f"{key}{row}", now)
        inbox.delay_row(execute, row, until)


def _for_turns(outcomes: Sequence[Outcome]) -> list[tuple[str, Message]]:
    """Return the messages that a turn takes, with their conversations."""
    accepted = [each for each in outcomes if isinstance(each, Accepted)]
    return [(each.conversation, each.message) for each in accepted if each.message.kind in TURN_KINDS]


def _notify_author(execute: Execute, message: Message, notice: Callable[[], str], key: str, now: float) -> None:
    """Answer a message with the notice that `notice` makes in its author's language."""
    with languages.speak_to(execute, message.thread, message.author):
        outbox.enqueue_notice(execute, message.thread, notice(), key=key, now=now, reply_to=message.id)


def longest_wait(limits: ServiceLimits) -> float:
    """Return the longest time (seconds) that a message may have to wait until it is ready."""
    return max(2 * GATHER_SECONDS, limits.flood_seconds)


def extend_bundle_wait(execute: Execute, now: float) -> None:
    """After a start, let bundles wait longer: their other pieces may still be on the way."""
    for conversation in inbox.delay_all_bundles(execute, now + 2 * GATHER_SECONDS):
        conversations.refresh_pending(execute, conversation)


def _ignore_event(execute: Execute, event: Message, reason: str, now: float, *, is_refusal: bool = False) -> Receipt:
    """Record that an event is ignored, so that a later catch-up ignores it, too: by then the bot may take part in that
    thread, or its author may be allowed."""
    if event.follow_up or event.addressed:
        inbox.store_ignored(execute, event.key, reason, now)
        if is_refusal:
            record_refusal(execute, event, reason)
    return Receipt.IGNORED


def _was_ignored(execute: Execute, event: Message) -> bool:
    """Return whether the event was ignored before. An edit that adds a mention makes it count as new."""
    row = inbox.find_ignored(execute, event.key)
    if row and event.addressed and row.error == NOT_ADDRESSED:
        inbox.delete_row(execute, row.id)
        return False
    return row is not None


def _store_unreadable(execute: Execute, event: Unreadable, now: float) -> Receipt:
    if (row := inbox.store_unreadable(execute, event, now)) is None:
        return Receipt.DUPLICATE
    audit.record(execute, AuditEvent(AuditKind.DEAD_LETTER, what={"id": f"in{row}", "kind": "unreadable"}))
    return Receipt.IGNORED


def _resolve_thread(execute: Execute, event: Message) -> Message | None:
    """Find the thread of an event that names only a message of the bot; None when the bot has not sent it."""
    named = event.thread
    for thread in sent_messages.threads_of_message(execute, event.reply_to or event.target):
        same = (thread.channel, thread.workspace) == (named.channel, named.workspace)
        if same and named.chat in (thread.chat, ANYWHERE):
            return replace(event, thread=thread)
    return None


def _open_bundle(execute: Execute, message: Message) -> str:
    """Return the bundle that this message continues: its album, or a pending long paste of its author."""
    return inbox.find_bundle(execute, message.thread, (_album_bundle(message) or "-", _paste_bundle(message)))


def _album_bundle(message: Message) -> str:
    return f"album:{message.group}" if message.group else ""


def _paste_bundle(message: Message) -> str:
    return f"paste:{message.author.id}"
