"""What holds the event loop is logged with its stack, once, and its end with the time that it took."""

from __future__ import annotations

import asyncio
import logging
import re
import time

import pytest

from bot.service.loop_watch import LoopWatch
from tests.fakes.server import until


def hold_in_python() -> None:
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        pass


def hold_with_the_lock() -> None:
    """Match a pattern, which keeps the interpreter's lock: no other thread runs meanwhile."""
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        re.search(r"a*b", "a" * 20_000)


def hold_in_a_call() -> None:
    time.sleep(2.5)


@pytest.mark.parametrize("hold", [hold_in_python, hold_with_the_lock, hold_in_a_call])
async def test_a_held_loop_is_logged_with_what_holds_it(hold: object, caplog: pytest.LogCaptureFixture) -> None:
    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "bot.service.loop_watch"]

    assert callable(hold)
    with caplog.at_level(logging.WARNING), LoopWatch():
        asyncio.get_running_loop().call_soon(hold)
        await until(lambda: len(lines()) == 2, what="the end of the hold")
    held, freed = lines()
    assert held.startswith("loop.held seconds=")
    assert hold.__name__ in held  # type: ignore[attr-defined]  # a function
    assert "bot/test_loop_watch.py:" in held
    seconds = float(freed.removeprefix("loop.freed seconds="))
    assert seconds >= 1.4


async def test_a_loop_that_answers_is_not_logged_and_costs_next_to_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), LoopWatch():
        begun = time.process_time()
        await asyncio.sleep(3)
        assert time.process_time() - begun < 0.6  # of three seconds, with everything else in this process
    assert not [record for record in caplog.records if "loop." in record.getMessage()]
