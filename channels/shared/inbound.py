"""Offer events to the inbox, tell people once per outage, and show that their messages were accepted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TypeVar

from agent.backoff import backoff_seconds
from agent.messages import Kind, Message, Thread, Unreadable
from channels.base import CatchUpSource, ChannelError, Gap, NotStored, Receipt, Receive
from channels.shared.background import BackgroundTasks
from channels.shared.caches import ExpiringDict, FairQueue, Presses, Sparing
from channels.shared.texts import NOT_STORED, text_for

log = logging.getLogger(__name__)

MAX_BACKOFF_SECONDS = 10.0  # between two attempts to store an event
EARLY_SECONDS = (
    3600.0  # after an accepted message, in which the next one of its author shows that the agent works at once
)

MENTION_SECONDS = 3600.0  # after a post in which an edit may add a mention: the inbox still knows what it has answered
MAX_BATCH, MAX_OF_ONE = 50, 20  # events in one transaction, and those of one person among them
LANES = 4  # transactions at once

Event = Message | Unreadable
T = TypeVar("T")


def adds_mention(edit: Message, posted: float) -> bool:
    """Return whether an edit with a mention of the bot, of what was posted then, may be the first that the bot gets."""
    return not edit.private and edit.time - posted <= MENTION_SECONDS


class EventDelayed(NotStored):
    """Only this event cannot be stored yet: what decides about it is unknown. The inbox itself works."""


def author_of(event: Event) -> str:
    """Return the id of the person of an event, "" if it names none."""
    return event.author.id if isinstance(event, Message) else ""


class OutageNotices:
    """The threads that have a notice of the present outage."""

    def __init__(self) -> None:
        self._notified: set[Thread] = set()

    def take_due(
        self, events: Iterable[Event], place_of: Callable[[Message], Thread] = lambda event: event.thread
    ) -> list[Message]:
        """Return the first message to the bot of each place that has no notice yet. They count as notified."""
        first: dict[Thread, Message] = {}
        for event in events:
            if isinstance(event, Message) and event.addressed and event.kind in (Kind.CHAT, Kind.COMMAND):
                first.setdefault(place_of(event), event)
        due = [event for place, event in first.items() if place not in self._notified]
        self._notified.update(first)
        return due

    def end(self) -> None:
        self._notified.clear()


class InboundPipeline:
    """The way of one account's events into the inbox.

    `apologize` sends a text to the author of a message that cannot be stored: once per outage and place, which is the
    thread unless `place_of` names another one. `show_working` shows the author of an accepted message that the agent
    works. Both are calls that nothing depends on; the owner of `background` cancels them.
    """

    def __init__(
        self,
        name: str,
        background: BackgroundTasks,
        *,
        apologize: Callable[[Message, str], Awaitable[object]],
        show_working: Callable[[Message], Awaitable[object]],
        place_of: Callable[[Message], Thread] = lambda event: event.thread,
        early: bool = False,
    ) -> None:
        self.receive: Receive  # `listen` sets it
        self._name = name
        self._background = background
        self._apologize = apologize
        self._show_working = show_working
        self._place_of = place_of
        self._outage = OutageNotices()
        self._early = early
        self._accepted: ExpiringDict[tuple[Thread, str], bool] = ExpiringDict()  # whose last message was
        self._offered: dict[Thread, asyncio.Future[None]] = {}  # done when the thread's last event is on its way
        self._kept: dict[str, Callable[[], Awaitable[object]]] = {}  # by the event's key: how to store it
        self._waiting: FairQueue[tuple[Event, asyncio.Future[Receipt]]] = FairQueue()  # to be stored
        self._lanes = 0  # that store them
        self._signs, self._answers, self._presses = Sparing(), Sparing(), Presses()

    async def store(self, events: Sequence[Event], *, notify: bool = True) -> list[Receipt]:
        """Store events, one receipt per event. Raises NotStored, and then tells the authors unless `notify` is off.

        A press beyond those that a person can make counts as one that was stored before.
        """
        admitted = [event for event in events if self._admits(event)]
        if not admitted:
            return [Receipt.DUPLICATE] * len(events)
        receipts = await self._store(admitted, notify=notify)
        if len(admitted) == len(events):
            return receipts
        by_key = dict(zip([event.key for event in admitted], receipts, strict=True))
        return [by_key.get(event.key, Receipt.DUPLICATE) for event in events]

    def _admits(self, event: Event) -> bool:
        is_press = isinstance(event, Message) and event.kind is Kind.CLICK
        return not is_press or self._presses.admits(author_of(event), event.key)

    async def _store(self, events: Sequence[Event], *, notify: bool) -> list[Receipt]:
        shown = self._show_early(events) if self._early else frozenset()
        try:
            receipts = [await self.offer(events[0])] if len(events) == 1 else await self.receive(events)
        except NotStored as error:
            for event in events:
                self._presses.note_failure(author_of(event), event.key)
            log.error("%s.not_stored key=%s events=%d reason=%s", self._name, events[0].key, len(events), error)  # noqa: TRY400 — the reason is enough
            for due in self._outage.take_due(events, self._place_of) if notify else ():
                apology = self._apologize(due, text_for(due, NOT_STORED))
                self._background.start_best_effort(apology, f"{self._name} not stored {due.thread}")
            raise
        self._outage.end()
        for event, receipt in zip(events, receipts, strict=True):
            self._kept.pop(event.key, None)
            if isinstance(event, Unreadable):
                log.error("%s.unreadable key=%s reason=%s", self._name, event.key, event.error)
            elif event.kind is Kind.CHAT and receipt is Receipt.ACCEPTED:
                if self._early:
                    self._accepted.set((event.thread, event.author.id), True, EARLY_SECONDS)
                if event.key not in shown:
                    self._show(event)
        return receipts

    async def offer(self, event: Event) -> Receipt:
        """Store an event, in one transaction with others that wait. Raises NotStored."""
        stored: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._waiting.put(author_of(event), (event, stored))
        if self._lanes < LANES:
            self._lanes += 1
            self._background.start(self._store_waiting(), f"{self._name} store")
        return await stored

    async def _store_waiting(self) -> None:
        try:
            while batch := self._waiting.take(MAX_BATCH, MAX_OF_ONE):
                try:
                    receipts = await self.receive([event for event, _stored in batch])
                except asyncio.CancelledError:
                    for _event, stored in batch:
                        stored.cancel()
                    raise
                except Exception as error:  # noqa: BLE001 — those who offered the events handle it
                    for _event, stored in batch:
                        if not stored.done():
                            stored.set_exception(error)
                else:
                    for (_event, stored), receipt in zip(batch, receipts, strict=True):
                        if not stored.done():
                            stored.set_result(receipt)
        finally:
            self._lanes -= 1

    def is_answered(self, press: Message, receipt: Receipt) -> bool:
        """Return whether a press is answered by a call: each that has an effect, and a few others of each person."""
        return receipt is Receipt.ACCEPTED or self._answers.admits(press.author.id)

    def _show_early(self, events: Sequence[Event]) -> Collection[str]:
        """Show that the agent works while the messages are stored that will likely be accepted. Return their keys.

        Each of them has to be accepted again, so that nobody who was turned away sees it twice.
        """
        shown = set[str]()
        for event in events:
            is_chat = isinstance(event, Message) and event.kind is Kind.CHAT and event.addressed
            if isinstance(event, Message) and is_chat and self._accepted.pop((event.thread, event.author.id)):
                self._show(event)
                shown.add(event.key)
        return shown

    def _show(self, event: Message) -> None:
        if self._signs.admits(event.author.id):
            self._background.start_best_effort(self._show_working(event), f"{self._name} working {event.thread}")

    async def complete_and_store(
        self, event: Message, complete: Callable[[Message], Awaitable[Message]], *, notify: bool = True
    ) -> tuple[Message, Receipt]:
        """Store an event as soon as `complete` has asked the platform for what it lacks, such as its author's name, and
        those of its thread that arrived before it are on their way. Raises NotStored, and what `complete` raises.

        The questions are asked side by side, and an answer that is already known comes at once: without this, a message
        would overtake an earlier one whose author is not known yet.
        """
        if not self._admits(event):
            return event, Receipt.DUPLICATE
        before, offered = self._offered.get(event.thread), asyncio.get_running_loop().create_future()
        self._offered[event.thread] = offered
        try:
            try:
                completed = await complete(event)
            except NotStored:
                self._presses.note_failure(author_of(event), event.key)
                raise
            if before:
                await asyncio.wait({before})
            storing = asyncio.create_task(self._store([completed], notify=notify), name=f"store {event.key}")
        finally:
            if before and not before.done():
                before.add_done_callback(lambda _: offered.set_result(None))
            else:
                offered.set_result(None)
            if self._offered[event.thread] is offered:
                del self._offered[event.thread]
        [receipt] = await storing
        return completed, receipt

    async def store_with_retries(self, events: Sequence[Event]) -> list[Receipt]:
        """Store events, and retry until they are stored: for platforms that do not deliver them again."""
        return await self.retry_until_stored(partial(self.store, events))

    async def retry_until_stored(self, offer: Callable[[], Awaitable[T]]) -> T:
        """Await `offer` until it no longer raises NotStored, and return its result."""
        tries = 0
        while True:
            try:
                return await offer()
            except NotStored:
                tries += 1
                await asyncio.sleep(backoff_seconds(tries, MAX_BACKOFF_SECONDS))

    async def fill_gap(
        self,
        past: CatchUpSource,
        gap: Gap,
        missed: AsyncIterator[Sequence[Event]],
        store: Callable[[Sequence[Event]], Awaitable[object]] | None = None,
    ) -> bool:
        """Store the missed messages of an account, by `store` or `store_with_retries`, and close the gap.

        Returns False if the platform or the store failed: the gap stays open.
        """
        count = 0
        try:
            async for events in missed:
                if events:
                    await (store or self.store_with_retries)(events)
                    count += len(events)
            await past.close_gap(gap)
        except (ChannelError, NotStored) as error:
            log.warning("%s.not_caught_up messages=%d reason=%s", self._name, count, error)
            return False
        log.info("%s.caught_up messages=%d", self._name, count)
        return True

    def keep(self, event: Event, offer: Callable[[], Awaitable[object]]) -> None:
        """Keep an event in memory: `offer_kept` awaits `offer` until it no longer raises NotStored."""
        self._kept[event.key] = offer

    async def offer_kept(self) -> None:
        """Offer the kept events again until cancelled, for platforms that deliver them again for some time only."""
        failures = 0
        while True:
            await asyncio.sleep(backoff_seconds(failures, MAX_BACKOFF_SECONDS) if self._kept else 1.0)
            failed = False
            for offer in list(self._kept.values()):
                try:
                    await offer()
                except EventDelayed:
                    failed = True
                except NotStored:
                    failed = True
                    break
            failures = failures + 1 if failed else 0
