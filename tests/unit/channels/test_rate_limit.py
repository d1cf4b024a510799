"""Rate limits and priorities, on an event loop whose clock the tests control."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterator
from selectors import BaseSelector, DefaultSelector, SelectorKey
from typing import Any

import pytest

from channels.base import TryLater
from channels.discord.api import account_window
from channels.feishu.api import FeishuLimits
from channels.shared.rate_limit import (
    CallRate,
    MethodLimits,
    Priority,
    RateLimiter,
    RateLimits,
    RateLimitScope,
    TokenBucket,
)

FINAL, FIRST, STREAM = Priority.FINAL, Priority.FIRST, Priority.STREAM


class _NoWait(DefaultSelector):
    """A selector that waits only `io_seconds` for sockets and reports the skipped time to the clock."""

    skipped = 0.0
    io_seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        ready: list[tuple[SelectorKey, int]] = super().select(0 if timeout == 0 else self.io_seconds)
        if not ready and timeout:
            self.skipped += timeout
        return ready


class ClockLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer when it is idle."""

    def __init__(self, io_seconds: float = 0.0) -> None:
        self._fast = _NoWait()
        self._fast.io_seconds = io_seconds
        selector: BaseSelector = self._fast
        super().__init__(selector)

    def time(self) -> float:
        return self._fast.skipped


Timed = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture
def timed() -> Iterator[Timed]:
    loop = ClockLoop()
    yield lambda work: loop.run_until_complete(work)
    loop.close()


def now() -> float:
    return round(asyncio.get_running_loop().time(), 2)


async def times(
    budget: RateLimiter, count: int, priority: Priority, chat: str = "1", *, group: bool = False
) -> list[float]:
    done = []
    for _ in range(count):
        await budget.acquire(chat, priority, group=group)
        done.append(now())
    return done


def test_a_chat_allows_a_burst_of_two_and_then_one_call_a_second(timed: Timed) -> None:
    async def work() -> None:
        assert await times(RateLimiter(RateLimits()), 5, FINAL) == [0, 0, 1, 2, 3]

    timed(work())


def test_streaming_leaves_a_token_for_the_final_reply(timed: Timed) -> None:
    async def work() -> None:
        budget = RateLimiter(RateLimits())
        assert await times(budget, 3, STREAM) == [0, 1, 2]
        assert await times(budget, 1, FINAL) == [2]  # at once, although a streaming call would have to wait

    timed(work())


def test_the_first_words_may_use_the_reserve(timed: Timed) -> None:
    async def work() -> None:
        budget = RateLimiter(RateLimits())
        await budget.acquire("1", STREAM)
        await budget.acquire("1", FIRST)
        assert now() == 0

    timed(work())


def test_a_group_gets_at_most_twenty_calls_a_minute_and_edits_three_seconds_apart(timed: Timed) -> None:
    async def work() -> None:
        finals = await times(RateLimiter(RateLimits()), 60, FINAL, "-1", group=True)
        assert all(len([t for t in finals if start <= t < start + 60]) <= 20 for start in finals)
        edits = await times(RateLimiter(RateLimits()), 10, STREAM, "-1", group=True)
        assert all(later - earlier >= 3 for earlier, later in itertools.pairwise(edits))

    timed(work())


def test_all_chats_together_get_at_most_thirty_calls_a_second(timed: Timed) -> None:
    async def work() -> None:
        budget = RateLimiter(RateLimits())
        done: list[float] = []

        async def one(chat: str) -> None:
            done.extend(await times(budget, 1, FINAL, chat))

        await asyncio.gather(*(one(str(chat)) for chat in range(120)))
        assert [len([t for t in done if start <= t < start + 1]) for start in (0, 1, 2)] == [56, 29, 28]

    timed(work())


def test_when_calls_are_scarce_final_replies_go_first_and_streams_last(timed: Timed) -> None:
    async def work() -> None:
        budget = RateLimiter(RateLimits(overall=4))
        order: list[str] = []

        async def one(chat: int, priority: Priority) -> None:
            await budget.acquire(str(chat), priority)
            order.append(priority.name)

        await times(budget, 1, FINAL, "a")
        await times(budget, 1, FINAL, "b")
        await times(budget, 1, FINAL, "c")
        await times(budget, 1, FINAL, "d")
        tasks = [one(i, p) for i, p in enumerate([STREAM, FIRST, STREAM, FINAL, FIRST, FINAL])]
        await asyncio.gather(*tasks)
        assert order == ["FINAL"] * 2 + ["FIRST"] * 2 + ["STREAM"] * 2

    timed(work())


def test_streams_and_first_words_leave_most_of_the_burst_to_finals(timed: Timed) -> None:
    async def work() -> None:
        budget = RateLimiter(RateLimits(overall=100))  # Fawn uses 97 of them
        assert sum(budget.try_acquire(f"s{chat}", STREAM) for chat in range(90)) == 14
        assert sum(budget.try_acquire(f"f{chat}", FIRST) for chat in range(90)) == 9
        assert sum(budget.try_acquire(f"l{chat}", FINAL) for chat in range(90)) == 72

    timed(work())


def test_a_tiny_overall_rate_still_lets_streams_through(timed: Timed) -> None:
    async def work() -> None:
        budget = RateLimiter(RateLimits(overall=1))
        await budget.acquire("a", STREAM)

    timed(work())


# Case 61 of docs/cases.md
def test_a_chat_in_cooldown_does_not_delay_others(timed: Timed) -> None:
    async def work() -> None:
        budget = RateLimiter(RateLimits())
        budget.pause_chat("1", 60)
        with pytest.raises(TryLater) as told:
            await budget.acquire("1", FINAL)
        assert round(told.value.after) == 60
        await budget.acquire("2", FINAL)
        assert now() == 0
        await budget.acquire("1", STREAM)
        assert now() == 60

    timed(work())


def test_a_final_reply_waits_for_a_short_cooldown(timed: Timed) -> None:
    async def work() -> None:
        budget = RateLimiter(RateLimits())
        budget.pause_chat("1", 1.5)
        assert await times(budget, 1, FINAL) == [1.5]

    timed(work())


def test_a_final_reply_does_not_wait_for_a_long_pause_of_the_account(timed: Timed) -> None:
    async def work() -> None:
        limits = RateLimiter(RateLimits(account=account_window(45.0)))
        limits.note_account_refused(30.0)
        with pytest.raises(TryLater) as told:
            await limits.acquire("1", FINAL)
        assert told.value.after == 30.0

    timed(work())


def test_a_cancelled_wait_takes_no_token(timed: Timed) -> None:
    async def work() -> None:
        budget = RateLimiter(RateLimits())
        await times(budget, 2, FINAL)
        waiting = asyncio.create_task(budget.acquire("1", FINAL))
        await asyncio.sleep(0.5)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await times(budget, 1, FINAL) == [1]

    timed(work())


def test_a_token_that_came_as_its_wait_was_cancelled_is_returned(timed: Timed) -> None:
    async def work() -> None:
        budget = RateLimiter(RateLimits())
        await times(budget, 2, FINAL)
        waiting = asyncio.create_task(budget.acquire("1", FINAL))
        await asyncio.sleep(0.5)
        budget.release_unused("1")  # goes to the one that waits, which has not run since
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await times(budget, 1, FINAL) == [0.5]

    timed(work())


def test_an_unused_token_is_returned(timed: Timed) -> None:
    async def work() -> None:
        budget = RateLimiter(RateLimits())
        await times(budget, 2, FINAL)
        budget.release_unused("1")
        assert await times(budget, 1, FINAL) == [0]

    timed(work())


def test_limiters_of_idle_chats_are_removed(timed: Timed) -> None:
    async def work() -> None:
        budget = RateLimiter(RateLimits(overall=1000))
        for chat in range(20_000):
            await budget.acquire(str(chat), FINAL)
        assert len(budget._buckets) < 10_000

    timed(work())


# ---------------------------------------------------------------- minima, which may be exceeded

TIER = CallRate(60, 60.0, 4.0, minimum=True)  # "60+ per minute"


async def work_at_once(bucket: TokenBucket, calls: int, allowed: int) -> tuple[int, int]:
    """Make calls, each a second long, of which the platform allows so many, until one is refused; return how many it
    took and how many it refused."""
    done = {"taken": 0, "refused": 0}

    async def call() -> None:
        await bucket.acquire(FINAL)
        await asyncio.sleep(1.0)
        if done["taken"] < allowed:
            done["taken"] += 1
            bucket.note_accepted()
        else:
            done["refused"] += 1
            bucket.note_refused(30.0)

    waiting = [asyncio.create_task(call()) for _ in range(calls)]
    while not done["refused"] and done["taken"] < calls:
        await asyncio.sleep(0.5)
    await asyncio.sleep(1.5)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    return done["taken"], done["refused"]


def test_a_minimum_is_exceeded_by_twice_as_many_calls_each_time_while_the_platform_takes_them(timed: Timed) -> None:
    async def work() -> None:
        assert await work_at_once(TokenBucket(TIER), 200, allowed=10_000) == (200, 0)
        assert now() < 30  # 200 at the documented rate take 196 s

    timed(work())


def test_after_a_refusal_the_wait_is_kept_and_then_the_documented_rate(timed: Timed) -> None:
    async def work() -> None:
        bucket = TokenBucket(TIER)
        taken, refused = await work_at_once(bucket, 200, allowed=20)
        assert taken == 20
        assert refused <= 2 * taken  # those that were under way together
        closed_until = now() + bucket.paused_seconds()
        assert closed_until >= 30
        times = []
        for _ in range(10):
            await bucket.acquire(FINAL)
            bucket.note_accepted()
            times.append(now())
        assert times[0] == round(closed_until, 2)
        assert all(round(later - earlier, 2) == 1.0 for earlier, later in itertools.pairwise(times))

    timed(work())


def test_a_minimum_is_tried_again_a_minute_after_the_wait_and_then_more_rarely(timed: Timed) -> None:
    async def work() -> None:
        bucket = TokenBucket(TIER)
        for pause in (60, 120, 240):
            bucket.note_refused(1.0)
            await asyncio.sleep(1.0 + pause - 1)
            await times_of(bucket, 4)
            assert bucket.seconds_until_free(FINAL)
            await asyncio.sleep(pause)
            await times_of(bucket, 4)
            assert not bucket.seconds_until_free(FINAL)

    async def times_of(bucket: TokenBucket, count: int) -> None:
        for _ in range(count):
            assert bucket.try_acquire(FINAL)

    timed(work())


def test_progress_never_goes_beyond_a_minimum(timed: Timed) -> None:
    async def work() -> None:
        bucket = TokenBucket(TIER)
        assert [bucket.try_acquire(STREAM) for _ in range(5)] == [True] * 4 + [False]
        assert bucket.try_acquire(FIRST)

    timed(work())


def test_a_hard_limit_is_never_exceeded(timed: Timed) -> None:
    async def work() -> None:
        bucket = TokenBucket(CallRate(60, 60.0, 4.0))
        for _ in range(4):
            assert bucket.try_acquire(FINAL)
            bucket.note_accepted()
        assert not bucket.try_acquire(FINAL)

    timed(work())


# ---------------------------------------------------------------- ends of replies


def test_a_reply_goes_live_only_while_its_end_is_likely_free(timed: Timed) -> None:
    async def work() -> None:
        limits = RateLimiter(MethodLimits({"": [CallRate(60, 60.0, 4.0)]}))
        live = 0
        while limits.end_is_free("C", "update"):
            limits.owe_end("C", "update")
            live += 1
        assert live == 4
        limits.settle_end("C", "update")
        assert limits.end_is_free("C", "update")
        limits.note_refused("C", 5.0, "update")
        assert not limits.end_is_free("C", "update")

    timed(work())


def test_progress_leaves_a_call_for_the_end_of_each_open_reply(timed: Timed) -> None:
    async def work() -> None:
        limits = RateLimiter(RateLimits(overall=100))
        for reply in range(90):
            limits.owe_end(str(reply))
        assert sum(limits.try_acquire(f"s{chat}", STREAM) for chat in range(90)) == 5
        assert sum(limits.try_acquire(f"l{chat}", FINAL) for chat in range(95)) == 90

    timed(work())


def test_discord_takes_fifty_calls_at_once_and_keeps_most_of_them_for_ends(timed: Timed) -> None:
    """discord.com/developers/docs/topics/rate-limits#global-rate-limit: 50 calls a second."""

    async def work() -> None:
        limits = RateLimiter(RateLimits(account=account_window(45.0)))
        for reply in range(200):
            limits.owe_end(str(reply))
        assert sum(limits.try_acquire(f"s{chat}", STREAM) for chat in range(50)) == 10
        assert sum(limits.try_acquire(f"f{chat}", FINAL) for chat in range(60)) == 40
        at = await times(limits, 1, FINAL, "late")
        assert at == [1.06]

    timed(work())


# open.feishu.cn/document/server-docs/api-call-guide/frequency-control: 50 calls of an API a second, 1,000 a minute
def test_fifty_cards_of_feishu_go_out_at_once_and_the_next_one_after_a_second(timed: Timed) -> None:
    async def work() -> None:
        limits = RateLimiter(FeishuLimits())
        assert await times(limits, 51, FIRST) == [0.0] * 50 + [1.06]

    timed(work())


def test_a_call_that_was_scheduled_is_counted_once_and_any_other_too(timed: Timed) -> None:
    async def work() -> None:
        limits = RateLimiter(RateLimits(account=account_window(0.0)))  # 5 calls a second
        await limits.acquire("1", FINAL)
        await limits.count_call()  # the same call
        for _ in range(4):
            await limits.count_call()  # calls that nobody scheduled
        assert now() == 0
        await limits.count_call()
        assert now() == 1.06

    timed(work())


def test_posts_go_before_reads_which_take_what_is_kept_for_ends(timed: Timed) -> None:
    async def work() -> None:
        limits, order = RateLimiter(RateLimits(account=account_window(0.0))), list[str]()  # 5 calls a second

        async def take(name: str, priority: Priority) -> None:
            await limits.acquire(name, priority)
            order.append(f"{name} {now():.2f}")

        for chat in range(4):
            limits.owe_end(str(chat))
        waits = [
            take("first words", FIRST),
            *(take(f"read {n}", Priority.READ) for n in range(6)),
            take("final", FINAL),
        ]
        tasks = [asyncio.create_task(each) for each in waits]
        await asyncio.sleep(2)
        for chat in range(4):
            limits.settle_end(str(chat))
        await asyncio.gather(*tasks)
        assert order[-3:] == ["final 1.06", "read 4 1.06", "read 5 1.06"]
        assert order[0] == "first words 0.00"

    timed(work())


async def test_a_scheduled_call_is_counted_once_on_a_real_clock() -> None:
    limits = RateLimiter(RateLimits(account=account_window(0.0)))  # 5 calls a second
    await limits.acquire("1", FINAL)
    await asyncio.sleep(0.001)
    await limits.count_call()
    assert sum(limits.try_acquire(str(chat), FINAL) for chat in range(2, 9)) == 4


def test_a_group_stays_a_group_when_its_reply_begins(timed: Timed) -> None:
    async def work() -> None:
        limiter = RateLimiter(RateLimits())
        scope = RateLimitScope(limiter, "-1", group=True)
        scope.owe_end()
        edits = await times(limiter, 5, STREAM, "-1", group=True)
        assert all(later - earlier >= 3 for earlier, later in itertools.pairwise(edits))
        scope.settle_end()

    timed(work())
