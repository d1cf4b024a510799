"""A bounded thread pool for file work, apart from the event loop's own: a long walk then delays no name lookup."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_files = ThreadPoolExecutor(8, "files")


async def run_file_work(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work` on files in a thread, as `asyncio.to_thread` does."""
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(_files, lambda: context.run(work, *args, **kwargs))
