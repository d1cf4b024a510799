"""Bounded thread pools for file work, apart from the event loop's own.

A long walk, a mount or a lock then delays no name lookup.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_files = ThreadPoolExecutor(8, "files")
_mounts = ThreadPoolExecutor(8, "mounts")  # may wait long: for a lock, for a repair


async def run_file_work(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work` on files in a thread, as `asyncio.to_thread` does."""
    return await _run_in_pool(_files, work, *args, **kwargs)


async def run_mount_work(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The same for work that mounts, formats or locks a disk."""
    return await _run_in_pool(_mounts, work, *args, **kwargs)


async def _run_in_pool(threads: Executor, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(threads, lambda: context.run(work, *args, **kwargs))
