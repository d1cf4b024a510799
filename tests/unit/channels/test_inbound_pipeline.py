"""The way of events into the inbox: notices of an outage, the sign of work, retries, missed messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from agent.messages import Author, Kind, Message, Origin, Thread, Unreadable
from channels.base import Gap, NotStored, Receipt, TryLater
from channels.shared.background import BackgroundTasks
from channels.shared.caches import FairQueue, Presses, Sparing
from channels.shared.inbound import Event, InboundPipeline


def message(number: int, kind: Kind = Kind.CHAT) -> Message:
    thread = Thread("test", "space", "chat")
    return Message(
        thread,
        f"key {number}",
        str(number),
        Author("ann", "Ann"),
        "hello",
        0.0,
        kind,
        private=True,
        origin=Origin.PERSON,
    )


class Inbox:
    """An inbox with `outages` failures, and what the people and the history of gaps saw."""

    hours, most = 24.0, 50

    def __init__(self, outages: int = 0, *, early: bool = False) -> None:
        self.outages = outages
        self.receipt = Receipt.ACCEPTED
        self.seen: list[list[str]] = []  # the signs of work at the time of each call
        self.stored: list[str] = []
        self.apologies: list[str] = []
        self.working: list[str] = []
        self.closed: list[int] = []
        self.background = BackgroundTasks()
        self.pipeline = InboundPipeline(
            "test", self.background, apologize=self.apologize, show_working=self.show_working, early=early
        )
        self.pipeline.receive = self.receive

    async def receive(self, events: Sequence[Event]) -> list[Receipt]:
        await asyncio.sleep(0)
        self.seen.append([*self.working])
        if self.outages:
            self.outages -= 1
            raise NotStored("the disk is full")
        self.stored += [event.key for event in events]
        return [self.receipt] * len(events)

    async def apologize(self, event: Message, text: str) -> None:
        self.apologies.append(event.key)

    async def show_working(self, event: Message) -> None:
        self.working.append(event.key)

    async def open_gap(self, channel: str, workspace: str) -> Gap:
        return Gap(id=1)

    async def close_gap(self, gap: Gap) -> None:
        self.closed.append(gap.id)


async def test_people_are_told_once_per_outage_and_their_events_are_stored_later() -> None:
    inbox = Inbox(outages=2)
    for number in (1, 2):
        with pytest.raises(NotStored):
            await inbox.pipeline.store([message(number)])
    assert await inbox.pipeline.store([message(1), message(2)]) == [Receipt.ACCEPTED] * 2
    inbox.outages = 1
    with pytest.raises(NotStored):
        await inbox.pipeline.store([message(3)])
    inbox.outages = 1
    with pytest.raises(NotStored):
        await inbox.pipeline.store([message(4)], notify=False)
    await asyncio.sleep(0)
    assert inbox.apologies == ["key 1", "key 3"]
    assert inbox.working == ["key 1", "key 2"]


async def test_only_messages_show_the_sign_of_work() -> None:
    inbox = Inbox()
    await inbox.pipeline.store([message(1, Kind.CLICK), Unreadable("test", "key 2", b"{}", "KeyError"), message(3)])
    await asyncio.sleep(0)
    assert inbox.working == ["key 3"]


async def test_whose_last_message_was_accepted_sees_the_sign_of_work_before_the_next_one_is_stored() -> None:
    inbox = Inbox(early=True)
    for number in (1, 2):
        await inbox.pipeline.store([message(number)])
        await asyncio.sleep(0)
    assert inbox.seen == [[], ["key 1", "key 2"]]
    assert inbox.working == ["key 1", "key 2"]  # once for each message


@pytest.mark.parametrize("fault", ["turned away", "not stored"])
async def test_nobody_sees_the_early_sign_of_work_again_until_a_message_of_theirs_is_accepted(fault: str) -> None:
    inbox = Inbox(early=True)
    await inbox.pipeline.store([message(1)])
    if fault == "turned away":
        inbox.receipt = Receipt.IGNORED
        await inbox.pipeline.store([message(2)])
    else:
        inbox.outages = 1
        with pytest.raises(NotStored):
            await inbox.pipeline.store([message(2)])
    inbox.receipt = Receipt.ACCEPTED
    await inbox.pipeline.store([message(3), message(4, Kind.CLICK)])
    await asyncio.sleep(0)
    assert inbox.seen[-1] == ["key 1", "key 2"]
    assert inbox.working == ["key 1", "key 2", "key 3"]


async def test_a_kept_event_is_offered_until_it_is_stored() -> None:
    inbox = Inbox(outages=2)
    event = message(1)
    with pytest.raises(NotStored):
        await inbox.pipeline.store([event])
    stored = asyncio.Event()

    async def offer() -> None:
        await inbox.pipeline.store([event])
        stored.set()

    inbox.pipeline.keep(event, offer)
    async with asyncio.TaskGroup() as group:
        offering = group.create_task(inbox.pipeline.offer_kept())
        async with asyncio.timeout(60):
            await stored.wait()
        offering.cancel()
    assert inbox.stored == ["key 1"]


@pytest.mark.parametrize("platform_fails", [False, True])
async def test_a_gap_is_closed_when_all_missed_messages_are_stored(platform_fails: bool) -> None:
    inbox = Inbox(outages=1)

    async def missed() -> AsyncIterator[list[Message]]:
        yield [message(1), message(2)]
        yield []
        if platform_fails:
            raise TryLater("the platform is busy")

    filled = await inbox.pipeline.fill_gap(inbox, await inbox.open_gap("test", "space"), missed())
    assert inbox.stored == ["key 1", "key 2"]
    assert (filled, inbox.closed) == ((False, []) if platform_fails else (True, [1]))


async def test_a_flood_is_stored_in_few_transactions_and_nobody_waits_behind_it() -> None:
    """Each batch has events of everybody who waits; those of a person keep their order."""
    inbox = Inbox()
    batches: list[list[str]] = []
    free = asyncio.Event()

    async def receive(events: Sequence[Event]) -> list[Receipt]:
        batches.append([event.key for event in events])
        await free.wait()
        return [Receipt.ACCEPTED] * len(events)

    inbox.pipeline.receive = receive
    flood = [asyncio.create_task(inbox.pipeline.store([message(number)])) for number in range(500)]
    other = replace(message(500), author=Author("ben", "Ben"))
    stored = asyncio.create_task(inbox.pipeline.store([other]))
    free.set()
    await stored
    assert sum(map(len, batches[: 1 + next(n for n, batch in enumerate(batches) if other.key in batch)])) < 60
    await asyncio.gather(*flood)
    assert len(batches) < 500 / 10
    assert [key for batch in batches for key in batch if key != other.key] == [message(n).key for n in range(500)]
    assert len(inbox.working) == Sparing.MOST + 1


@pytest.mark.parametrize("completed", [True, False])
async def test_presses_beyond_what_a_person_can_make_cost_no_transaction(completed: bool) -> None:
    """Those of others count, and so does each that is offered again because it could not be stored."""
    inbox = Inbox(outages=1)

    async def complete(event: Message) -> Message:
        return event

    async def press(number: int, person: str = "ann") -> Receipt:
        event = replace(message(number, Kind.CLICK), author=Author(person, person))
        if completed:
            return (await inbox.pipeline.complete_and_store(event, complete))[1]
        return (await inbox.pipeline.store([event]))[0]

    with pytest.raises(NotStored):
        await press(0)
    receipts = [await press(number) for number in range(3 * Presses.MOST)]
    assert receipts[: Presses.MOST] == [Receipt.ACCEPTED] * Presses.MOST
    assert Receipt.DUPLICATE in receipts
    accepted = [number for number, receipt in enumerate(receipts) if receipt is Receipt.ACCEPTED]
    assert inbox.stored == [f"key {number}" for number in accepted]
    assert await press(1_000, "ben") is Receipt.ACCEPTED
    flood = [message(2_000 + number, Kind.CLICK) for number in range(3 * Presses.MOST)]
    *_, last = await inbox.pipeline.store([*flood, message(3_000)])
    assert (last, inbox.stored[-1]) == (Receipt.ACCEPTED, "key 3000")


async def test_a_batch_that_cannot_be_stored_fails_for_each_that_offered_an_event() -> None:
    inbox = Inbox(outages=1)
    offers = [asyncio.create_task(inbox.pipeline.store([message(number)])) for number in range(3)]
    results = await asyncio.gather(*offers, return_exceptions=True)
    assert [type(each) for each in results] == [NotStored] * 3
    assert await inbox.pipeline.store([message(0)]) == [Receipt.ACCEPTED]


def test_a_flood_of_one_person_lets_others_pass_and_a_talk_keeps_its_order() -> None:
    queue = FairQueue[str]()
    for number, person in enumerate("aabaacab"):
        queue.put(person, f"{person}{number}")
    assert queue.take(10, 3) == ["a0", "a1", "b2", "a3", "c5", "b7"]
    assert queue.take(10, 3) == ["a4", "a6"]
