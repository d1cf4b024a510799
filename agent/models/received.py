"""Count what a model call has received so far, so that a stopped or cut answer costs what came of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.tracers.context import register_configure_hook

from agent.models.reasoning import thinking_of
from agent.spending import text_tokens


class ReceivedOutput(BaseCallbackHandler):
    """The estimated tokens of the deltas of one model call: text, reasoning and arguments.

    `first` is the monotonic time of the first delta, 0 before.
    """

    run_inline = True

    def __init__(self) -> None:
        self.tokens = 0
        self.first = 0.0

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, **more: Any) -> None:
        """Count a delta."""
        if isinstance(chunk, ChatGenerationChunk) and isinstance(message := chunk.message, AIMessageChunk):
            self.count(message)

    def count(self, message: AIMessageChunk) -> None:
        """Count a delta."""
        self.first = self.first or time.monotonic()
        texts = [message.text, thinking_of(message)]
        texts += [call["args"] or "" for call in message.tool_call_chunks]
        self.tokens += sum(map(text_tokens, filter(None, texts)))


_RECEIVED: ContextVar[ReceivedOutput | None] = ContextVar("received", default=None)
register_configure_hook(_RECEIVED, inheritable=True)  # langchain adds it to every call in this context


def count_delta(message: AIMessageChunk) -> None:
    """Count a delta of the model call in this context, where langchain calls nobody."""
    if received := _RECEIVED.get():
        received.count(message)


@contextmanager
def count_into(received: ReceivedOutput) -> Iterator[None]:
    """Count the deltas of the model call inside."""
    token = _RECEIVED.set(received)
    try:
        yield
    finally:
        _RECEIVED.reset(token)
