"""Places for tasks: a few for each turn, shared fairly among turns."""

from __future__ import annotations

import asyncio

from agent.subagents.board import TaskSlots


async def test_the_turn_with_fewer_tasks_gets_the_next_place() -> None:
    slots, order = TaskSlots(per_turn=3, live=3), list[str]()

    async def work(turn: str) -> None:
        await slots.acquire(turn)
        order.append(turn)

    async with asyncio.TaskGroup() as group:
        for turn in ("a", "a", "a", "a", "a", "b"):  # b asks last
            group.create_task(work(turn))
        while len(order) < 3:
            await asyncio.sleep(0)
        slots.release("a")
        while len(order) < 4:
            await asyncio.sleep(0)
        assert order == ["a", "a", "a", "b"]
        for turn in ("a", "a"):
            slots.release(turn)
    assert order == ["a", "a", "a", "b", "a", "a"]


async def test_a_waiting_task_that_is_cancelled_leaves_its_place_to_others() -> None:
    slots = TaskSlots(per_turn=1, live=1)
    await slots.acquire("a")
    waiting = asyncio.create_task(slots.acquire("b"))
    granted = asyncio.create_task(slots.acquire("c"))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    slots.release("a")
    granted.cancel()  # in the step in which it got the place
    await asyncio.wait([granted])
    assert waiting.cancelled()
    assert granted.cancelled()
    await slots.acquire("d")
    assert not slots.has_room("d")
    assert slots.has_room("a")
