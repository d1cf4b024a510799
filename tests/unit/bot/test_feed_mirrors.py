"""What a run shows is mirrored at another process of the database: in order, whole, and only where it is wanted."""

from __future__ import annotations

import asyncio
import random
import string
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import orjson

from agent.blocks import (
    Approve,
    Ask,
    Block,
    Done,
    Failed,
    File,
    Notice,
    Plan,
    PlanItem,
    Step,
    Text,
    Usage,
    View,
    command_hint,
)
from agent.messages import Thread
from bot.database.database import Database
from bot.database.postgres_wake_ups import MAX_PART_BYTES, IncomingLetters, OutgoingLetters
from bot.fleet.feed_teller import WANTING, FeedTeller, dump_content, dump_view, load_content, load_view
from bot.fleet.runs_in_sight import FeedMirrors, Mirror
from bot.journey.feed import MOVED, RING_BLOCKS, SUSPENDED, Ended, FedRun, KeptJob, KeptRun, RunFeed
from tests.fakes.server import until
from tests.support.current_config import current_of

Pair = tuple[Database, Database]
HERE = Thread("web", "telegram", "7", "t")
BLOCKS: Sequence[Block] = (
    Text("one ", "a"),
    Text("two\0", "a", replace=True),
    Step("s", "a step", "done", "detail", "50 %", parent="p"),
    Plan((PlanItem("first", "done"), PlanItem("second"))),
    Ask("q", "Which?", ("Red", "Blue"), hours=1.0),
    Approve("r", "May I?", f"Send {command_hint('stop')}.", "rm -r /", option_count=3),
    File("/mnt/user-data/outputs/a.txt", "a file"),
    Notice("queue", "busy", kept=True),
    Failed("It broke.", "Try again."),
    Done("failed", Usage(1, 2, 3, 4, 5)),
)


@dataclass
class Turns:
    """The runs of a process, without the agent that works in them."""

    running_turns: list[FedRun] = field(default_factory=list)
    followers: list[Callable[[FedRun], None]] = field(default_factory=list)

    def follow(self, follower: Callable[[FedRun], None]) -> None:
        self.followers.append(follower)

    def begin(self, run: int, thread: Thread = HERE) -> RunFeed:
        live = KeptRun(KeptJob(run, f"c{run}", thread, 1, 1.0, 1.0, resumed=False), RunFeed())
        self.running_turns.append(live)
        for follower in self.followers:
            follower(live)
        return live.feed


@asynccontextmanager
async def working(pair: Pair) -> AsyncIterator[tuple[Turns, FeedMirrors]]:
    turns = Turns()
    mirrors = FeedMirrors(pair[1])
    loops = (FeedTeller(pair[0], turns, current_of()).serve(), mirrors.serve())
    tasks = [asyncio.create_task(loop) for loop in loops]
    try:
        yield turns, mirrors
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def mirror_of(mirrors: FeedMirrors, run: int, last: int) -> Mirror:
    await until(lambda: (found := mirrors.find(run)) is not None and found.feed.last >= last, what="the mirror")
    found = mirrors.find(run)
    assert found
    return found


def test_blocks_come_back_from_json_as_they_were() -> None:
    for block in (*BLOCKS, Ended("done")):
        assert load_content(_json(dump_content(block))) == block
    view = View()
    view.add_all(BLOCKS)
    again = load_view(_json(dump_view(view)))
    assert again.blocks() == view.blocks()
    assert (again.kept, again.inner) == (view.kept, view.inner)


def _json(value: object) -> object:
    return orjson.loads(orjson.dumps(value))


async def test_a_mirror_has_the_blocks_with_their_numbers_and_the_end(pair: Pair) -> None:
    async with working(pair) as (turns, mirrors):
        early = turns.begin(1)
        early.publish(BLOCKS[0])
        with mirrors.wanted(HERE.without_topic):
            mirror = await mirror_of(mirrors, 1, 1)
            for block in BLOCKS[1:]:
                early.publish(block)
            await mirror_of(mirrors, 1, len(BLOCKS))
            assert (mirror.feed.read(0), mirror.feed.began) == (early.read(0), early.began)
            assert mirror.feed.view == early.view
            assert (mirror.job.run, mirror.job.thread) == (1, HERE)
            late = turns.begin(2)
            suspended = await mirror_of(mirrors, 2, 0)
            early.end("done")
            late.end(SUSPENDED)
            await until(lambda: mirror.feed.state and suspended.feed.state, what="the ends")
            assert (mirror.feed.state, suspended.feed.state) == ("done", MOVED)
            assert mirrors.runs == []


async def test_what_nobody_wants_is_not_told(pair: Pair) -> None:
    told: list[str] = []
    async with working(pair) as (turns, mirrors):
        await asyncio.sleep(0)
        pair[1].read_letters(WANTING, lambda _sender, text: told.append(text))
        other = turns.begin(1, Thread("web", "telegram", "8", "t"))
        with mirrors.wanted(HERE):
            mine = turns.begin(2)
            mine.publish(Text("hello"))
            other.publish(Text("secret"))
            await until(lambda: any("hello" in text for text in told), what="what is wanted")
    assert "secret" not in "".join(told)


async def test_what_was_lost_is_told_again(pair: Pair) -> None:
    async with working(pair) as (turns, mirrors):
        with mirrors.wanted(HERE):
            feed = turns.begin(1)
            feed.publish(Text("one "))
            mirror = await mirror_of(mirrors, 1, 1)
            lost: list[str] = []
            pair[1].read_letters(WANTING, lambda _sender, text: lost.append(text))
            feed.publish(Text("two "))
            await until(lambda: lost, what="a letter")
            pair[1].read_letters(WANTING, mirrors._read)
            await mirror_of(mirrors, 1, 2)  # also without a further block
            for _ in range(RING_BLOCKS + 10):  # more than the ring holds, at once
                feed.publish(Text("x"))
            await mirror_of(mirrors, 1, RING_BLOCKS + 12)
            assert mirror.feed.view.text == "one two " + "x" * (RING_BLOCKS + 10)


async def test_a_long_view_comes_in_parts(pair: Pair) -> None:
    text = "".join(random.Random(1).choices(string.printable, k=100_000)).replace("\x0b", "") + "ж" * 5000
    async with working(pair) as (turns, mirrors):
        feed = turns.begin(1)
        feed.publish(Text(text))
        with mirrors.wanted(HERE):
            assert (await mirror_of(mirrors, 1, 1)).feed.view.text == text


async def test_a_process_that_tells_no_more_ends_its_mirror(pair: Pair) -> None:
    async with working(pair) as (turns, mirrors):
        feed = turns.begin(1)
        with mirrors.wanted(HERE):
            mirror = await mirror_of(mirrors, 1, 0)
            turns.running_turns.clear()
            pair[1].read_letters(WANTING, lambda _sender, _text: None)
            await until(lambda: mirror.feed.state, what="the end of the mirror")
            assert (mirror.feed.state, feed.state) == (MOVED, "")


def test_a_letter_whose_part_is_missing_is_lost_and_the_next_is_read() -> None:
    letters = OutgoingLetters("me")
    text = "".join(random.Random(2).choices(string.ascii_letters, k=50_000))
    letters.add("topic", text, "you")
    letters.add("topic", "short", "")
    payloads = letters.take(100)
    assert len(payloads) > 4
    assert all(len(payload.encode()) < 8000 for _channel, payload in payloads)
    assert MAX_PART_BYTES < 7900
    incoming, whole = IncomingLetters("you"), IncomingLetters("you")
    found = [incoming.add(payload) for number, (_channel, payload) in enumerate(payloads) if number != 1]
    assert [each.text for each in found if each] == ["short"]
    assert [each.text for _channel, payload in payloads if (each := whole.add(payload))] == [text, "short"]
    assert IncomingLetters("me").add(payloads[-1][1]) is None, "its own"


def test_what_is_no_letter_is_dropped() -> None:
    incoming = IncomingLetters("you")
    for bad in ("", "x", "x 1 0 1", "x 1 0 1 topic z!!", "x 1 -1 1 topic ta", "x 1 0 9999 topic ta", "x 1 0 1 t zeJw="):
        assert incoming.add(bad) is None
