"""A failing background task is retried and does not affect others."""

from __future__ import annotations

import asyncio

import pytest

from bot.base.background import run_forever
from bot.database.database import StorageError
from channels.shared.background import BackgroundTasks


@pytest.mark.parametrize("error", [ValueError("ours"), OSError("the disk's"), StorageError("locked")])
async def test_a_failing_step_is_retried(error: Exception) -> None:
    steps = 0
    again = asyncio.Event()

    async def step() -> None:
        nonlocal steps
        steps += 1
        if steps == 1:
            raise error
        again.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(run_forever("steps", step))
    async with asyncio.timeout(60):
        await again.wait()
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()


async def test_a_step_that_fails_while_it_is_cancelled_ends() -> None:
    begun = asyncio.Event()

    async def step() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("ours")

    running = asyncio.create_task(run_forever("steps", step))
    async with asyncio.timeout(60):
        await begun.wait()
        running.cancel()
        await asyncio.wait([running])
    assert running.cancelled()


async def test_a_failing_task_is_logged_and_the_others_continue(caplog: pytest.LogCaptureFixture) -> None:
    tasks = BackgroundTasks()
    ended = asyncio.Event()

    async def fails() -> None:
        raise ValueError("ours")

    async def works() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    failing, working = tasks.start(fails(), "failing"), tasks.start(works(), "working")
    await asyncio.wait([failing])
    await asyncio.sleep(0)
    assert "task.failed name=failing" in caplog.text
    assert not working.done()
    await tasks.cancel()
    assert ended.is_set()
    assert working.cancelled()
