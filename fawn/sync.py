"""Offer `Fawn` to programs without an event loop, by one of its own in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from agent.blocks import Block
from fawn.client import Answer, Fawn

T = TypeVar("T")


class FawnSync:
    """`Fawn` with methods that wait. One thread uses it at a time."""

    def __init__(self, *, url: str = "", key: str = "", config: str | Path = "") -> None:
        self._fawn = Fawn(url=url, key=key, config=config)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fawn", daemon=True)

    def __enter__(self) -> FawnSync:
        self._thread.start()
        try:
            self._wait(self._fawn.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._wait(self._fawn.__aexit__(None, None, None))
        finally:
            self._end()

    def ask(self, text: str, **more: Any) -> Iterator[Block | Answer]:
        """Yield the blocks of the answer, and at last the Answer. Raises FawnError."""
        return self._iterate(self._fawn.ask(text, **more))

    def answer(self, question: str, answer: str) -> Iterator[Block | Answer]:
        """Answer an open question, as `Fawn.answer` does."""
        return self._iterate(self._fawn.answer(question, answer))

    def stop(self, run: int = 0) -> None:
        """Stop a run, or the latest one."""
        self._wait(self._fawn.stop(run))

    def download(self, url: str, target: str | Path) -> Path:
        """Save a file of an Answer."""
        return self._wait(self._fawn.download(url, target))

    def _iterate(self, blocks: AsyncIterator[Block | Answer]) -> Iterator[Block | Answer]:
        while (block := self._wait(_next(blocks))) is not None:
            yield block

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _next(blocks: AsyncIterator[Block | Answer]) -> Block | Answer | None:
    return await anext(blocks, None)
