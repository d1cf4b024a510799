"""Write what models and tools are given and answer as JSON of the GenAI conventions.

The shapes are those of `gen_ai.input.messages` and `gen_ai.output.messages`
(github.com/open-telemetry/semantic-conventions-genai, docs/gen-ai/gen-ai-input-messages.json).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, ToolMessage

MAX_CHARS = 20_000  # of one text
MAX_MESSAGES = 50  # of one call: the latest, behind the first
ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}


def messages_json(messages: Sequence[AnyMessage | BaseMessage], *, finished: str = "") -> str:
    """Return messages as JSON. Pictures and files are left out. `finished` says why an answer ended."""
    shown = messages if len(messages) <= MAX_MESSAGES else [messages[0], *messages[1 - MAX_MESSAGES :]]
    found = [{"role": ROLES.get(each.type, each.type), "parts": _parts(each)} for each in shown]
    if finished:
        found = [{**each, "finish_reason": finished} for each in found]
    return orjson.dumps(found, default=str).decode()


def value_text(value: object) -> str:
    """Return arguments or a result: text as it is, everything else as JSON."""
    return cut(value if isinstance(value, str) else orjson.dumps(value, default=str).decode())


def cut(text: str) -> str:
    """Return a text, without its end where it is long."""
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}…"


def _parts(message: AnyMessage | BaseMessage) -> list[dict[str, Any]]:
    if isinstance(message, ToolMessage):
        return [{"type": "tool_call_response", "id": message.tool_call_id, "response": cut(message.text)}]
    parts: list[dict[str, Any]] = [{"type": "text", "content": cut(message.text)}] if message.text else []
    calls = message.tool_calls if isinstance(message, AIMessage) else ()
    return parts + [
        {"type": "tool_call", "id": call["id"], "name": call["name"], "arguments": value_text(call["args"])}
        for call in calls
    ]
