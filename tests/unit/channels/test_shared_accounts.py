"""Processes that post with the same accounts share the limits of these; the limit of a chat is whole in each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from channels.shared.rate_limit import (
    CallRate,
    Priority,
    RateLimiter,
    RateLimits,
    SlidingBucket,
    TokenBucket,
    account_limit,
    share_accounts,
)


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    yield
    share_accounts(1)


def taken_at_once(bucket: TokenBucket, priority: Priority = Priority.FINAL) -> int:
    count = 0
    while bucket.try_acquire(priority):
        count += 1
    return count


async def test_three_processes_make_as_many_calls_as_one() -> None:
    alone = [taken_at_once(TokenBucket(account_limit(30))), taken_at_once(SlidingBucket(_sliding(12)))]
    share_accounts(3)
    shared = [taken_at_once(TokenBucket(account_limit(30))), taken_at_once(SlidingBucket(_sliding(12)))]
    assert alone == [28, 12]
    assert shared == [9, 4]


async def test_progress_flows_in_each_part_also_of_the_smallest() -> None:
    share_accounts(3)
    for overall in (2.0, 5.0, 30.0):
        bucket = TokenBucket(account_limit(overall))
        assert bucket.seconds_until_free(Priority.STREAM) == 0
        assert taken_at_once(bucket) >= 1


async def test_a_bucket_follows_the_number_of_processes_and_a_chat_is_whole() -> None:
    bucket = TokenBucket(CallRate(10, 1.0, 10))
    chat = TokenBucket(CallRate(10, 1.0, 10, "chat", per_chat=True))
    share_accounts(5)
    assert (taken_at_once(bucket), taken_at_once(chat)) == (2, 10)
    share_accounts(1)
    await asyncio.sleep(0)
    assert bucket.seconds_until_free(Priority.FINAL) <= 0.1, "its whole rate again"


async def test_a_limiter_keeps_to_the_part_of_its_account() -> None:
    share_accounts(2)
    limiter = RateLimiter(RateLimits(chat=100, burst=100, overall=10))
    assert sum(limiter.try_acquire(f"chat {number}", Priority.FINAL) for number in range(20)) == 4


def _sliding(calls: int) -> CallRate:
    return CallRate(calls, 60.0, calls, "all", sliding=True)
