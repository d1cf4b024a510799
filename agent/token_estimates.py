"""Estimate tokens on the safe side, where no provider has counted yet. Budgets and summaries go by it."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.messages.base import BaseMessage

from agent.spending import text_tokens

# The most that a picture of 1,568 pixels costs: Gemini counts 258 for each of nine tiles of 768 pixels
# (ai.google.dev/gemini-api/docs/tokens), Anthropic and OpenAI at most 1,600 and 1,445.
PICTURE_TOKENS = 2322
MESSAGE_TOKENS = 4  # the frame of a message


def messages_tokens(messages: Sequence[AnyMessage]) -> int:
    """Estimate the tokens of messages: what the provider counted last, and what came after it."""
    total = 0
    for message in reversed(messages):
        if counted := counted_tokens(message):
            return total + counted
        total += message_tokens(message)
    return total


def counted_tokens(message: AnyMessage) -> int:
    """Return what the provider counted up to the end of an answer; 0 where it counted no input."""
    used = message.usage_metadata if isinstance(message, AIMessage) else None
    return used["total_tokens"] if used and used["input_tokens"] else 0


def estimate_messages(messages: Sequence[BaseMessage]) -> int:
    """Estimate the tokens of messages, whatever a provider has counted."""
    return sum(map(message_tokens, messages))


def message_tokens(message: BaseMessage) -> int:
    """Estimate the tokens of one message, with its calls and pictures."""
    calls = message.tool_calls if isinstance(message, AIMessage) else ()
    content: Sequence[object] = [message.content] if isinstance(message.content, str) else message.content
    return MESSAGE_TOKENS + sum(map(_block_tokens, content)) + sum(text_tokens(str(call)) for call in calls)


def _block_tokens(block: object) -> int:
    match block:
        case str(text) | {"type": "text", "text": str(text)}:
            return text_tokens(text)
        case {"type": "image" | "image_url"}:
            return PICTURE_TOKENS
        case _:
            return text_tokens(str(block))
