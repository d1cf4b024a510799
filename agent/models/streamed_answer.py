"""Call a model, pass on what it says as it comes, and count what came."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from typing import Any, cast

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, message_chunk_to_message
from langchain_core.messages.ai import add_ai_message_chunks
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import RunnableConfig, ensure_config
from langchain_core.tracers.context import register_configure_hook

from agent.models.reasoning import thinking_of
from agent.spending import text_tokens

MAX_ANSWER_CHARS = 200_000  # of the text of one answer
MAX_REST_CHARS = 1_000_000  # of what goes on behind it, for a file
MAX_THINKING_CHARS = 2_000_000
CUT = {"finish_reason": "length"}


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


async def stream_answer(
    model: BaseChatModel,
    messages: Sequence[BaseMessage],
    tools: Sequence[Any] = (),
    emit: Callable[[AIMessageChunk], None] = lambda chunk: None,
    rest: list[str] | None = None,
) -> AIMessage:
    """Return the whole answer; `emit` gets each chunk of it. A model that cannot stream answers at once.

    A text that is too long ends there, as at the model's own limit, and the person is told. `rest` takes what follows,
    within its own limit; then, or without it, the connection closes.
    """
    asked = model.bind_tools(tools) if tools else model
    chunks: list[AIMessageChunk] = []
    room, thoughts = MAX_ANSWER_CHARS, MAX_THINKING_CHARS
    async with aclosing(cast(AsyncGenerator[AIMessage, None], asked.astream(list(messages)))) as stream:
        async for said in stream:
            text = said.text
            if len(text) > max(room, 0):
                _cut_text(said, text[: max(room, 0)])
                if rest is not None:
                    rest.append(text[max(room, 0) :][: MAX_REST_CHARS + min(room, 0)])
            if not isinstance(said, AIMessageChunk):
                return said
            was_full, room, thoughts = room < 0, room - len(text), thoughts - len(thinking_of(said))
            if room < 0:
                said.response_metadata = {}  # the model's own end is not the reason
            if not was_full or said.tool_call_chunks or said.usage_metadata:
                emit(said)
                chunks.append(said)
            if thoughts < 0 or room < (0 if rest is None else -MAX_REST_CHARS):
                break
    if room < 0 or thoughts < 0:
        chunks.append(AIMessageChunk(content="", response_metadata=CUT, id=chunks[0].id, chunk_position="last"))
    return cast(AIMessage, message_chunk_to_message(add_ai_message_chunks(chunks[0], *chunks[1:])))


def _cut_text(said: AIMessage, text: str) -> None:
    """Give a message this text, and say that it reached a limit; in place. Its calls stay."""
    blocks = said.content if isinstance(said.content, list) else []
    others = [each for each in blocks if isinstance(each, dict) and each.get("type") != "text"]
    said.content = [{"type": "text", "text": text}, *others] if blocks else text
    if not isinstance(said, AIMessageChunk):
        said.response_metadata = said.response_metadata | CUT


def has_listeners(config: RunnableConfig | None) -> bool:
    """Return whether the run of this configuration, or of the present one, has a listener, such as LangSmith's."""
    manager = ensure_config(config).get("callbacks")
    return bool(manager if isinstance(manager, list) else manager and manager.handlers)
