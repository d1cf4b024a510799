"""Make every Chat Completions request valid for strict servers, and repair what one of them refuses all the same.

Servers differ in what they take: templates that want user and assistant to alternate (Gemma, Ministral), an API that
refuses a user's message after a tool's (Mistral), servers without `stream_options`, tools whose schema one of them
does not know. What a server has refused, and took without, is left out of its later requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import openai

from agent.models.reasoning import SIGNATURES_FIELD

Json = dict[str, Any]

AFTER_RESULT = "(I have the result, and go on.)"  # between a tool's message and a person's
NO_OUTPUT = "(no output)"
NO_SIGNATURE = "skip_thought_signature_validator"  # Google's word for tool calls of other models
MAX_REPAIRS = 4  # of one request: servers name one fault at a time
MAX_NAMED_TOOLS = 3  # an error that names more repeats the request
KEPT_FIELDS = frozenset(
    {"model", "messages", "tools", "stream", "max_tokens", "max_completion_tokens"}
    | {"role", "content", "tool_calls", "tool_call_id"}
    | {"id", "type", "index", "function", "name", "arguments", "parameters", "description"}
)
LIMIT_FIELDS = ("max_completion_tokens", "max_tokens")  # OpenAI's present and former name of one field
_TOOL_PLACE = re.compile(r"(?:tools|functions|function_declarations)(?:\[|\.|['\"],\s*)(\d{1,4})")
_WORD = re.compile(r"[\w-]+")
_MARKS = ("'", '"', "`", ".", "[", "]", ":")  # around a name
_ROLE_WORDS = re.compile(r"\broles?\b|alternat|system (?:message|prompt|instruction)|developer instruction", re.I)


def valid_messages(messages: Iterable[Json]) -> list[Json]:
    """Return the messages in an order that every server takes, without empty ones."""
    made: list[Json] = []
    for message in messages:
        role, last = message["role"], made[-1] if made else {}
        if role in ("system", "developer") and made and last["role"] not in ("system", "developer"):
            message, role = {**message, "role": "user"}, "user"
        if role == "tool" and not message.get("content"):
            message = {**message, "content": NO_OUTPUT}
        if role in ("user", "assistant") and not message.get("content") and not message.get("tool_calls"):
            continue
        if role == "user" and last.get("role") == "tool":
            made.append({"role": "assistant", "content": AFTER_RESULT})
        if _may_join(last, message):
            made[-1] = {**message, "content": _joined(last.get("content"), message.get("content"))}
        else:
            made.append(message)
    return made


def _may_join(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    role = second["role"]
    return first.get("role") == role and role != "tool" and not first.get("tool_calls")


def _joined(first: Any, second: Any) -> Any:
    if not first or not second:
        return first or second
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [*_parts(first), *_parts(second)]


def _parts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


@dataclass(frozen=True, slots=True)
class Repair:
    """What is changed in the requests to a server that refuses them otherwise."""

    kind: Literal["tool", "field", "limit", "system", "reasoning", "signatures"]
    name: str = ""

    def apply(self, body: Json) -> Json:
        """Return the body with the change; the same one if there is nothing to change."""
        match self.kind:
            case "tool":
                return _without_tool(body, self.name)
            case "field":
                return _without_field(body, self.name)
            case "limit":
                other = LIMIT_FIELDS[1 - LIMIT_FIELDS.index(self.name)]
                return {other if key == self.name else key: value for key, value in body.items()}
            case "system":
                return {**body, "messages": valid_messages(_without_system(body["messages"]))}
            case "reasoning" | "signatures":
                return {**body, "messages": [_with_reasoning(message, self.kind) for message in body["messages"]]}

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".strip()


class Repairs:
    """The repairs that the requests to one server need."""

    def __init__(self) -> None:
        self.known: list[Repair] = []

    def prepare(self, body: Json) -> Json:
        """Return a body that the server takes, as far as is known."""
        body = {**body, "messages": valid_messages(body["messages"])}
        for repair in self.known:
            body = repair.apply(body)
        return body

    def find(self, error: openai.APIStatusError, body: Json, tried: Sequence[Repair]) -> Repair | None:
        """Return how to repair the refused body, None if the server does not say what it refuses."""
        if len(tried) >= MAX_REPAIRS or error.status_code in (401, 402, 403, 408, 409, 425, 429):
            return None
        # llama.cpp answers 500 if its template raises.
        found = _candidates(error, body) if error.status_code < 500 else _of_order(_words_of(error), body)
        return next((each for each in found if each not in tried and each.apply(body) != body), None)


def _candidates(error: openai.APIStatusError, body: Json) -> Iterator[Repair]:
    words = _words_of(error)
    if "reasoning_content" in words:
        yield Repair("reasoning")
    elif "thought_signature" in words:
        yield Repair("signatures")
    yield from (Repair("limit", name) for name in LIMIT_FIELDS if name in body and _is_named(name, words))
    fields = sorted(_field_names(body) - KEPT_FIELDS, key=lambda name: (name != getattr(error, "param", None), name))
    yield from (Repair("field", name) for name in fields if name == getattr(error, "param", None))
    yield from (Repair("field", name) for name in fields if _is_named(name, words))
    yield from (Repair("tool", name) for name in _named_tools(words, body.get("tools") or ()))
    yield from _of_order(words, body)


def _of_order(words: str, body: Json) -> Iterator[Repair]:
    if _ROLE_WORDS.search(words) and body["messages"][0]["role"] in ("system", "developer"):
        yield Repair("system")


def _words_of(error: openai.APIStatusError) -> str:
    return f"{error} {error.body}"  # Gemini's body is a list, of which the SDK tells nothing in its message


def _is_named(name: str, words: str) -> bool:
    """Return whether an error names a field or tool: one that may be an English word must be marked as a name."""
    if "_" in name:
        return name in _WORD.findall(words)
    at = words.find(name)
    while at >= 0:
        end = at + len(name)
        if (words[:at].endswith((*_MARKS, "invalid "))) and (end == len(words) or words[end] in _MARKS):
            return True
        at = words.find(name, end)
    return False


def _named_tools(words: str, tools: Sequence[Any]) -> list[str]:
    names = [str((tool.get("function") or {}).get("name") or "") for tool in tools]
    named = [name for name in names if name and _is_named(name, words)]
    places = [int(place) for place in _TOOL_PLACE.findall(words)][-1:]  # Gemini's are within `tools[0]`
    named = named or [names[place] for place in places if place < len(names)]
    return named if len(named) <= MAX_NAMED_TOOLS else []


def _without_tool(body: Json, name: str) -> Json:
    tools = [tool for tool in body.get("tools") or () if (tool.get("function") or {}).get("name") != name]
    made = {**body, "tools": tools}
    if not tools:  # servers refuse an empty list, and a choice among none
        made = {key: value for key, value in made.items() if key not in ("tools", "tool_choice", "parallel_tool_calls")}
    return made if "tools" in body else body


def _objects(body: Json) -> Iterator[Json]:
    """Yield the objects of a request that have fields: itself, messages, calls, and functions of tools."""
    yield body
    for message in body["messages"]:
        yield message
        yield from message.get("tool_calls") or ()
    for tool in body.get("tools") or ():
        yield tool
        yield tool.get("function") or {}


def _field_names(body: Json) -> set[str]:
    return {name for each in _objects(body) for name in each}


def _without_field(body: Json, name: str) -> Json:
    def clean(each: Json) -> Json:
        return {key: value for key, value in each.items() if key != name}

    made = clean(body)
    made["messages"] = [
        clean({**message, "tool_calls": [clean(call) for call in calls]}) if calls else clean(message)
        for message in body["messages"]
        for calls in [message.get("tool_calls")]
    ]
    if tools := body.get("tools"):
        made["tools"] = [clean({**tool, "function": clean(tool.get("function") or {})}) for tool in tools]
    return made


def _without_system(messages: Sequence[Json]) -> list[Json]:
    return [{**each, "role": "user"} if each["role"] in ("system", "developer") else each for each in messages]


def _with_reasoning(message: Json, kind: str) -> Json:
    """Return a message whose calls have a reasoning, an empty one where there is none, as some servers demand."""
    calls = message.get("tool_calls")
    if not calls:
        return message
    if kind == "reasoning":
        return {"reasoning_content": "", **message}
    signed = {SIGNATURES_FIELD: {"google": {"thought_signature": NO_SIGNATURE}}}
    return {**message, "tool_calls": [{**signed, **call} for call in calls]}
