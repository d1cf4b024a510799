"""Slow file work does not delay name lookups or other file work."""

from __future__ import annotations

import asyncio
import fcntl
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from sandbox.base import SandboxError
from sandbox.disk.file_threads import run_file_work
from sandbox.disk.loop_images import LoopImageFolders


async def test_locked_images_do_not_delay_other_threads(tmp_path: Path) -> None:
    """Another process may hold a lock for minutes, such as a repair that a killed service left running."""
    images = LoopImageFolders(tmp_path, 16, make=False)

    async def use(folder: Path) -> None:
        async with images.open_folder(folder):
            pass

    with ExitStack() as stack:
        for number in range(40):
            image = stack.enter_context((tmp_path / f"{number}.img").open("wb"))
            fcntl.flock(image, fcntl.LOCK_EX)
        uses = [asyncio.create_task(use(tmp_path / str(number))) for number in range(40)]
        async with asyncio.timeout(20):
            assert await run_file_work(len, "file")
            assert await asyncio.to_thread(len, "thread")
            assert await asyncio.get_running_loop().getaddrinfo("localhost", 80)
        assert not any(task.done() for task in uses)
    for outcome in await asyncio.gather(*uses, return_exceptions=True):
        assert isinstance(outcome, SandboxError), "no image is in these files"


async def test_long_walks_do_not_delay_name_lookups() -> None:
    walks = [asyncio.create_task(run_file_work(time.sleep, 0.5)) for _ in range(40)]
    assert await asyncio.to_thread(len, "thread")
    assert await asyncio.get_running_loop().getaddrinfo("localhost", 80)
    assert not any(task.done() for task in walks)
    for task in walks:
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await walks[-1]
