"""Slow file work does not delay name lookups or other file work."""

from __future__ import annotations

import asyncio
import time

import pytest

from sandbox.disk.file_threads import run_file_work


async def test_long_walks_do_not_delay_name_lookups() -> None:
    walks = [asyncio.create_task(run_file_work(time.sleep, 0.5)) for _ in range(40)]
    assert await asyncio.to_thread(len, "thread")
    assert await asyncio.get_running_loop().getaddrinfo("localhost", 80)
    assert not any(task.done() for task in walks)
    for task in walks:
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await walks[-1]
