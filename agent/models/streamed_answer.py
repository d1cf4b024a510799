"""Call a model and pass on what it says as it comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, message_chunk_to_message
from langchain_core.messages.ai import add_ai_message_chunks


async def stream_answer(
    model: BaseChatModel,
    messages: Sequence[BaseMessage],
    tools: Sequence[Any] = (),
    emit: Callable[[AIMessageChunk], None] = lambda chunk: None,
) -> AIMessage:
    """Return the whole answer; `emit` gets each chunk of it. A model that cannot stream answers at once."""
    asked = model.bind_tools(tools) if tools else model
    chunks: list[AIMessageChunk] = []
    async for said in asked.astream(list(messages)):
        if not isinstance(said, AIMessageChunk):
            return said
        emit(said)
        chunks.append(said)
    return cast(AIMessage, message_chunk_to_message(add_ai_message_chunks(chunks[0], *chunks[1:])))
