"""The feed of a run: every reader gets every block, whatever the others do."""

from __future__ import annotations

import asyncio

import pytest

from agent.blocks import Block, Done, Step, Text, View
from bot.journey.feed import RING_BLOCKS, Ended, Feed, NumberedBlock


def words(count: int) -> list[Text]:
    return [Text(f"{number} ", "a") for number in range(count)]


async def test_a_watcher_gets_the_blocks_before_and_after_it_came_and_the_end() -> None:
    feed, shown = Feed(), list[Block]()
    run = feed.begin_run(1, shown.append)
    first, second, third = words(3)
    run.publish(first)
    run.publish(second)
    watched = asyncio.create_task(collect(feed, 1), name="watcher")
    late = asyncio.create_task(collect(feed, 2), name="late watcher")
    await asyncio.sleep(0)
    run.publish(third)
    run.record(Done())
    feed.end_run(1, "done")
    feed.end_run(1, "suspended")
    contents: list[Block | Ended] = [first, second, third, Done(), Ended("done")]
    numbered = [NumberedBlock(number, content) for number, content in enumerate(contents, 1)]
    assert await watched == numbered[1:]
    assert await late == numbered[2:]
    assert shown == [first, second, third]  # the outbox delivers the end
    with pytest.raises(LookupError):
        feed.watch(1)


async def collect(feed: Feed, after: int) -> list[NumberedBlock]:
    return [numbered async for numbered in feed.watch(1, after)]


async def test_a_watcher_that_fell_behind_gets_the_view_and_goes_on_from_there() -> None:
    feed = Feed()
    run = feed.begin_run(1)
    step, *rest = Step("s", "bash: make"), *words(RING_BLOCKS)
    run.publish(step)
    slow = feed.watch(1)
    assert await anext(slow) == NumberedBlock(1, step)
    for block in rest:
        run.publish(block)
    run.publish(Text("last", "b"))  # the watcher has not read the block that this one displaces
    view = await anext(slow)
    assert view.number == RING_BLOCKS + 2
    assert isinstance(view.content, View)
    assert view.content.texts == {"a": "".join(block.delta for block in rest if isinstance(block, Text)), "b": "last"}
    assert view.content.steps == {"s": step}
    run.publish(Text("!", "b"))
    feed.end_run(1, "done")
    assert view.content.texts["b"] == "last"  # a copy
    assert [numbered.content async for numbered in slow] == [Text("!", "b"), Ended("done")]


async def test_a_watcher_that_fell_behind_the_end_is_told_the_end() -> None:
    feed = Feed()
    run = feed.begin_run(1)
    run.publish(Text("0", "a"))
    slow = feed.watch(1)
    await anext(slow)
    for block in words(RING_BLOCKS + 5):
        run.publish(block)
    feed.end_run(1, "stopped")
    view, end = [numbered async for numbered in slow]
    assert isinstance(view.content, View)
    assert end == NumberedBlock(view.number + 1, Ended("stopped"))


async def test_a_number_of_an_earlier_process_gets_the_view() -> None:
    feed = Feed()
    feed.begin_run(1).publish(Text("a", "a"))
    view = await anext(feed.watch(1, after=70))
    assert view.number == 1
    assert isinstance(view.content, View)


async def test_a_failing_reader_stops_neither_the_turn_nor_the_other_readers(caplog: pytest.LogCaptureFixture) -> None:
    shown: list[Block] = []

    def fail(block: Block) -> None:
        raise ValueError("a fault of the reader")

    feed = Feed()
    run = feed.begin_run(1, fail)
    run.add_reader(shown.append)
    watched = feed.watch(1)
    first, second = words(2)
    run.publish(first)
    run.publish(second)
    assert shown == [first, second]
    assert [(await anext(watched)).content, (await anext(watched)).content] == [first, second]
    assert caplog.text.count("feed.reader_failed") == 1
