"""Offer `Fawn` to programs without an event loop, by one of its own in a thread."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from anyio.from_thread import start_blocking_portal

from agent.blocks import Block
from fawn.client import Answer, Fawn, Question


class FawnSync:
    """`Fawn` with methods that wait. One thread uses it at a time."""

    def __init__(self, *, url: str = "", key: str = "", config: str | Path = "") -> None:
        self._fawn = Fawn(url=url, key=key, config=config)

    def __enter__(self) -> FawnSync:
        with ExitStack() as stack:
            self._portal = stack.enter_context(start_blocking_portal())
            stack.enter_context(self._portal.wrap_async_context_manager(self._fawn))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def ask(self, text: str, **more: Any) -> Iterator[Block | Answer]:
        """Yield the blocks of the answer, and at last the Answer. Raises FawnError."""
        return self._iterate(self._fawn.ask(text, **more))

    def answer(self, question: Question, answer: str) -> Iterator[Block | Answer]:
        """Answer an open question, as `Fawn.answer` does."""
        return self._iterate(self._fawn.answer(question, answer))

    def stop(self, run: int = 0) -> None:
        """Stop a run, or the latest one."""
        self._portal.call(self._fawn.stop, run)

    def download(self, url: str, target: str | Path) -> Path:
        """Save a file of an Answer."""
        return self._portal.call(self._fawn.download, url, target)

    def _iterate(self, blocks: AsyncIterator[Block | Answer]) -> Iterator[Block | Answer]:
        async def following() -> Block | Answer | None:
            return await anext(blocks, None)

        while (block := self._portal.call(following)) is not None:
            yield block
