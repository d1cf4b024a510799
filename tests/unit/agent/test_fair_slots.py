"""Places at once: limits, fairness among owners, background work, cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from agent import fair_slots
from agent.fair_slots import FairSlots

ONE = {"all": 1}


class Queue:
    """Tasks that wait for places; `order` is whose calls got one."""

    def __init__(self, slots: FairSlots) -> None:
        self.slots = slots
        self.order: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def ask(self, owner: str, count: int = 1, groups: fair_slots.SlotGroups = ONE, **more: bool) -> None:
        for _ in range(count):
            self.tasks.append(asyncio.create_task(self._wait(owner, groups, **more)))
        await asyncio.sleep(0)

    async def _wait(self, owner: str, groups: fair_slots.SlotGroups, **more: bool) -> None:
        await self.slots.acquire(owner, groups, **more)
        self.order.append(owner)

    async def end_calls(self, count: int) -> None:
        """Let so many calls end, always the one that got its place last."""
        for _ in range(count):
            self.slots.release(self.order[-1], ONE)
            await asyncio.sleep(0)
            await asyncio.sleep(0)


@pytest.fixture
def queue() -> Iterator[Queue]:
    queue = Queue(FairSlots())
    yield queue
    assert not queue.slots.waiting


async def test_ten_calls_of_one_owner_do_not_delay_another_by_more_than_one(queue: Queue) -> None:
    await queue.ask("a", 10)
    await queue.ask("b", 2)
    await queue.end_calls(11)
    assert "".join(queue.order) == "a" + "abab" + "a" * 7
    assert queue.slots.used == 1


async def test_a_stream_of_other_owners_does_not_starve_an_owner_with_many_calls(queue: Queue) -> None:
    await queue.ask("a", 4)
    for other in "bcdefg":
        await queue.ask(other)
        await queue.end_calls(1)
    assert queue.order.count("a") >= 3
    await queue.end_calls(3)


async def test_the_owner_with_the_fewest_places_goes_first(queue: Queue) -> None:
    slots, two = queue.slots, {"all": 2}
    await queue.ask("a", 4, two)
    await queue.ask("b", 1, two)
    slots.release("a", two)
    await asyncio.sleep(0)
    assert queue.order == ["a", "a", "b"]
    for owner in ("b", "a"):
        slots.release(owner, two)
        await asyncio.sleep(0)
    assert queue.order == ["a", "a", "b", "a", "a"]


async def test_a_full_group_does_not_delay_calls_of_others(queue: Queue) -> None:
    small, large = {"all": 3, "small": 1}, {"all": 3, "large": 3}
    await queue.ask("a", 2, small)
    await queue.ask("b", 1, large)
    assert queue.order == ["a", "b"]
    assert (queue.slots.used, queue.slots.waiting) == (2, 1)
    queue.slots.release("a", small)
    await asyncio.sleep(0)
    assert queue.order == ["a", "b", "a"]


@pytest.mark.parametrize(("seconds", "order"), [(30.0, ["a", "a", "b", "title"]), (0.0, ["a", "a", "title", "b"])])
async def test_background_work_goes_last_until_it_has_waited_for_long(seconds: float, order: list[str]) -> None:
    queue = Queue(FairSlots(background_seconds=seconds))
    await queue.ask("a", 2)
    await queue.ask("title", background=True)
    await queue.ask("b")
    await queue.end_calls(3)
    assert queue.order == order


@pytest.mark.parametrize("granted", [False, True])
async def test_a_cancelled_call_leaves_its_place_to_others(queue: Queue, granted: bool) -> None:
    await queue.ask("a")
    await queue.ask("b")
    await queue.ask("c")
    if granted:  # cancelled in the step in which it got the place
        queue.slots.release("a", ONE)
    queue.tasks[1].cancel()
    await asyncio.wait([queue.tasks[1]])
    if not granted:
        queue.slots.release("a", ONE)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert queue.order == ["a", "c"]
    assert queue.slots.used == 1
