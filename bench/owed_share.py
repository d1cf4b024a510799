"""Measure what `OWED_SHARE` of channels/shared/rate_limit.py costs and buys: `python -m bench.owed_share`.

Replies of some seconds come and end against the real buckets of a sliding limit, on a clock that jumps from event to
event, so the figures are the same on any machine: how long ends waited, and how often a reply's text was renewed.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from channels.discord.api import account_window
from channels.shared import rate_limit
from channels.shared.rate_limit import CallRate, Priority, SlidingBucket

SHARES = (0.0, 0.5, 0.7, 0.8, 0.9, 0.98)
SECONDS = 2.0  # of a reply
RENEWED = 1.0  # seconds between two renewals, where nothing limits them
OVERALL = 45.0  # calls a second, as Discord's channel has by default


class Clock(selectors.DefaultSelector):
    """A selector that lets time jump to the next event instead of waiting for it."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        self.now += max(0.0, timeout or 0.0)
        return super().select(0)


@dataclass(slots=True)
class Crowd:
    """What happened to the replies of one run."""

    waits: list[float] = field(default_factory=list)  # from the end of the model to that of the reply
    shown: list[int] = field(default_factory=list)  # first words and renewals of each reply

    def row(self) -> str:
        live = sum(each > 0 for each in self.shown) / len(self.shown)
        return f"{max(self.waits):4.2f} s, {live:4.0%}, {sum(self.shown) / len(self.shown):4.2f}"


async def reply(bucket: SlidingBucket, crowd: Crowd, begins: float, dice: random.Random) -> None:
    """Show first words, renew them, and end."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(begins)
    ends = loop.time() + SECONDS * dice.uniform(0.9, 1.1)
    bucket.owe_end()
    shown = 0
    with suppress(TimeoutError):
        async with asyncio.timeout_at(ends):
            await bucket.acquire(Priority.FIRST)
            while True:
                shown += 1
                await asyncio.sleep(RENEWED)
                await bucket.acquire(Priority.STREAM)
    await bucket.acquire(Priority.FINAL)
    bucket.settle_end()
    crowd.waits.append(loop.time() - ends)
    crowd.shown.append(shown)


async def run(limit: CallRate, begins: Callable[[random.Random], list[float]]) -> Crowd:
    crowd, bucket, dice = Crowd(), SlidingBucket(limit), random.Random(7)
    await asyncio.gather(*(reply(bucket, crowd, at, dice) for at in begins(dice)))
    return crowd


def measure(share: float, begins: Callable[[random.Random], list[float]]) -> Crowd:
    """Run replies that begin at given times, with one share."""
    clock = Clock()
    loop = asyncio.SelectorEventLoop(clock)
    loop.time = lambda: clock.now  # type: ignore[method-assign]  # the clock of this loop is the selector's
    before, rate_limit.OWED_SHARE = rate_limit.OWED_SHARE, share
    try:
        return loop.run_until_complete(run(account_window(OVERALL), begins))
    finally:
        rate_limit.OWED_SHARE = before
        loop.close()


def all_at_once(people: int) -> Callable[[random.Random], list[float]]:
    return lambda dice: [dice.uniform(0, 0.1) for _ in range(people)]


def steadily(a_second: float, seconds: float = 60.0) -> Callable[[random.Random], list[float]]:
    return lambda dice: [dice.uniform(0, seconds) for _ in range(int(a_second * seconds))]


CASES = {
    "50 at once": all_at_once(50),
    "200 at once": all_at_once(200),
    "10 a second": steadily(10),
    "20 a second": steadily(20),
    "30 a second": steadily(30),
    "40 a second": steadily(40),
}


def main() -> None:
    """Print a row for each share: the longest wait of an end, how many replies went live, and calls of one before."""
    print("| share | " + " | ".join(CASES) + " |")
    for share in SHARES:
        print(f"| {share:.2f} | " + " | ".join(measure(share, begins).row() for begins in CASES.values()) + " |")


if __name__ == "__main__":
    main()
