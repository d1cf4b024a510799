"""What holds the event loop is logged with its stack, once, and its end with the time that it took."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from bot.base.process import ASK_SECONDS, HELD_SECONDS, LoopWatch
from tests.fakes.server import until


@pytest.fixture
def is_logged() -> Iterator[threading.Event]:
    """Return what is set once the hold is logged, or after a minute in vain."""
    logged, watched = threading.Event(), logging.getLogger("bot.base.process")

    def note(_record: logging.LogRecord) -> bool:
        logged.set()
        return True

    in_vain = threading.Timer(60, logged.set)
    in_vain.start()
    watched.addFilter(note)
    yield logged
    watched.removeFilter(note)
    in_vain.cancel()


def hold_in_python(is_logged: threading.Event) -> None:
    while not is_logged.is_set():
        pass


def hold_with_the_lock(is_logged: threading.Event) -> None:
    """Match a pattern, which keeps the interpreter's lock: no other thread runs meanwhile."""
    while not is_logged.is_set():
        re.search(r"a*b", "a" * 2000)


def hold_in_a_call(is_logged: threading.Event) -> None:
    is_logged.wait()


@pytest.mark.parametrize("hold", [hold_in_python, hold_with_the_lock, hold_in_a_call])
async def test_a_held_loop_is_logged_with_what_holds_it(
    hold: Callable[[threading.Event], None], caplog: pytest.LogCaptureFixture, is_logged: threading.Event
) -> None:
    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "bot.base.process"]

    with caplog.at_level(logging.WARNING), LoopWatch():
        asyncio.get_running_loop().call_soon(hold, is_logged)
        await until(lambda: len(lines()) == 2, what="the end of the hold")
    held, freed = lines()
    assert held.startswith("loop.held seconds=")
    assert hold.__name__ in held
    assert "bot/test_loop_watch.py:" in held
    assert float(freed.removeprefix("loop.freed seconds=")) >= HELD_SECONDS


async def test_a_loop_that_answers_is_not_logged_and_is_asked_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    delays: list[float] = []
    began = time.monotonic()
    with caplog.at_level(logging.WARNING), LoopWatch() as watch:
        watch.observe = delays.append
        await until(lambda: len(delays) >= 3, what="three answers")
        assert time.monotonic() - began >= 3 * ASK_SECONDS
    if max(delays) < HELD_SECONDS:  # else this machine held it
        assert not [record for record in caplog.records if "loop." in record.getMessage()]
