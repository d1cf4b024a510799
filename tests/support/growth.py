"""Say whether work takes time in proportion to its size, on whatever machine."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

TIMES, MOST = 8, 24  # eight times the size takes eight times as long, and 64 times where it is squared
TRIES = 5  # other programs and the first use of a module only make a try slower


@contextmanager
def without_collection() -> Iterator[None]:
    """Collect no garbage meanwhile, and then as before."""
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_collecting:
            gc.enable()


def grows_in_proportion(work: Callable[[int], object], size: int) -> bool:
    """Compare the CPU time of this thread for a size with that for eight times the size: the least of some tries."""
    few = many = float("inf")
    with without_collection():  # a round over all that the tests have loaded would be charged to one of both
        for _ in range(TRIES):
            few, many = min(few, _seconds(work, size)), min(many, _seconds(work, TIMES * size))
            if many <= MOST * few:
                return True
    return False


def _seconds(work: Callable[[int], object], size: int) -> float:
    begun = time.thread_time()
    work(size)
    return time.thread_time() - begun


def many_steps_seconds() -> float:
    """Return the CPU time of ten million steps of Python here: what others may wait for takes a tenth of it."""
    begun = time.thread_time()
    for _ in range(10_000_000):
        pass
    return time.thread_time() - begun
