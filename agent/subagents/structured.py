"""Make a sub-agent answer with JSON that fits a schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from langchain_core.messages import HumanMessage

from agent.core.policy import (
    ModelCallHandler,
    ModelCallRequest,
    ModelCallResponse,
    is_final,
    model_answer,
)

MAX_CORRECTIONS = 2  # of one answer
CORRECTION = "Your answer does not fit: {problem}. Answer again with one JSON value that fits the schema, and no text."
_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_FENCE = "```"


class StructuredAnswerPolicy:
    """Ask the model again when its final answer does not fit the schema, and remove a code fence from one that fits."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema

    async def wrap_model_call(self, request: ModelCallRequest, handler: ModelCallHandler) -> ModelCallResponse:
        """Return an answer that fits, a tool call, or after a few corrections the last answer."""
        response = await handler(request)
        for _attempt in range(MAX_CORRECTIONS):
            answer = model_answer(response)
            if not is_final(answer) or not (problem := answer_problem(answer.text, self._schema)):
                break
            correction = HumanMessage(CORRECTION.format(problem=problem))
            response = await handler(request.override(messages=[*request.messages, answer, correction]))
        answer = model_answer(response)
        if is_final(answer):
            answer.content = _without_fence(answer.text)
        return response


def answer_problem(text: str, schema: Mapping[str, Any]) -> str | None:
    """Return why a text is not JSON that fits the schema; None if it is."""
    try:
        value = orjson.loads(_without_fence(text))
    except orjson.JSONDecodeError as error:
        return f"it is not JSON ({error})"
    return schema_problem(value, schema)


def schema_problem(value: Any, schema: Mapping[str, Any], at: str = "the value") -> str | None:
    """Return why a value does not fit; None if it does. Checks type, enum, required, properties and items."""
    types = schema.get("type", ())
    allowed = [kind for name in ([types] if isinstance(types, str) else types) for kind in _TYPES.get(name, (object,))]
    if allowed and (not isinstance(value, tuple(allowed)) or (isinstance(value, bool) and bool not in allowed)):
        return f"{at} must be of type {types}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{at} must be one of {schema['enum']}"
    parts: list[tuple[Any, Mapping[str, Any], str]] = []
    if isinstance(value, dict):
        missing = [name for name in schema.get("required", ()) if name not in value]
        if missing:
            return f"{at} lacks {', '.join(missing)}"
        known = schema.get("properties", {})
        parts = [(value[name], known[name], f"{at}.{name}") for name in known if name in value]
    elif isinstance(value, list) and "items" in schema:
        parts = [(item, schema["items"], f"{at}[{number}]") for number, item in enumerate(value)]
    return next((problem for part in parts if (problem := schema_problem(*part))), None)


def _without_fence(text: str) -> str:
    """Return what stands between the lines of a code fence around the whole text."""
    text = text.strip()
    first, _, rest = text.partition("\n")
    body, _, last = rest.rpartition("\n")
    if first.rstrip() in (_FENCE, f"{_FENCE}json") and last.strip() == _FENCE:
        return body.strip()
    return text
