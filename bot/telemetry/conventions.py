"""Spans in OTLP's JSON: the one place that has the names of their attributes.

Names are those of the GenAI conventions, which are in development and may change
(github.com/open-telemetry/semantic-conventions-genai, docs/gen-ai/gen-ai-spans.md), and of those for HTTP; what has
none begins with `fawn.`. The JSON is that of opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding: ids in hex,
numbers of 64 bits as text, enums as numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from agent.spans import Span, SpanKind

Attributes = dict[str, Any]
INTERNAL, CLIENT, PRODUCER, CONSUMER = 1, 3, 4, 5  # SpanKind of trace.proto
ERROR = 2  # StatusCode of trace.proto
OPERATIONS = {"voice": "transcription", "embedding": "embeddings", "external": "invoke_agent"}  # others are `chat`
FAILED = ("failed", "dead", "reported")  # outcomes that are errors
TOKENS = {  # of a model call
    "input": "gen_ai.usage.input_tokens",
    "output": "gen_ai.usage.output_tokens",
    "cached": "gen_ai.usage.cache_read.input_tokens",
    "reasoning": "gen_ai.usage.reasoning.output_tokens",
}
CONTENTS = {  # facts that spans have only by switch
    "prompt": "gen_ai.input.messages",
    "answer": "gen_ai.output.messages",
    "arguments": "gen_ai.tool.call.arguments",
    "result": "gen_ai.tool.call.result",
}


class SpanFormat:
    """Makes OTLP's JSON of spans.

    `model_of` returns the provider of an entry of the configuration, and the provider's name of the model. Ids of
    people are pseudonyms, the same ones as long as the seed is, or with `contents` as the platforms have them.
    """

    def __init__(self, seed: str, model_of: Callable[[str], tuple[str, str]], *, contents: bool) -> None:
        self._seed, self._model_of, self._contents = seed, model_of, contents
        self._describe: Mapping[SpanKind, Callable[[Span], tuple[str, int, Attributes]]] = {
            SpanKind.RUN: self._run,
            SpanKind.TURN: self._turn,
            SpanKind.MODEL: self._model,
            SpanKind.TOOL: self._tool,
            SpanKind.TASK: self._task,
            SpanKind.SIGN: self._sign,
            SpanKind.CALL: self._call,
            SpanKind.DELIVERY: self._delivery,
            SpanKind.REFUSAL: self._refusal,
            SpanKind.JOB: self._job,
        }

    def wants(self, span: Span) -> bool:
        """Return whether a span belongs to a trace: calls of a platform only where they are inside something."""
        return span.kind in self._describe and (span.kind not in (SpanKind.CALL, SpanKind.SIGN) or span.parent != 0)

    def as_json(self, span: Span) -> dict[str, Any]:
        """Return one span that is wanted."""
        name, kind, attributes = self._describe[span.kind](span)
        if span.run:
            attributes["fawn.run"] = span.run
        outcome = span.facts.get("outcome", "")
        if outcome and "fawn.outcome" not in attributes:
            attributes["fawn.outcome"] = str(outcome)
        error = span.error or (str(outcome) if outcome in FAILED else "")
        if error:
            attributes["error.type"] = error
        for fact, attribute in CONTENTS.items() if self._contents else ():
            if fact in span.facts:
                attributes[attribute] = span.facts[fact]
        began = int(span.began * 1e9)
        return {
            "traceId": f"{span.trace:032x}",
            "spanId": f"{span.id:016x}",
            "parentSpanId": f"{span.parent:016x}" if span.parent else "",
            "name": name,
            "kind": kind,
            "startTimeUnixNano": str(began),
            "endTimeUnixNano": str(began + int(span.seconds * 1e9)),
            "attributes": attribute_list(attributes),
            "status": {"code": ERROR, "message": error} if error else {},
        }

    def _name_of(self, person: str, channel: str) -> str:
        if self._contents or not person:
            return person
        return hashlib.blake2b(f"{self._seed}/{channel}/{person}".encode(), digest_size=8).hexdigest()

    def _run(self, span: Span) -> tuple[str, int, Attributes]:
        return f"message {span.name}", CONSUMER, {"fawn.channel": span.name}

    def _turn(self, span: Span) -> tuple[str, int, Attributes]:
        facts, channel = span.facts, span.facts["channel"]
        conversation = self._name_of(facts.get("conversation", ""), channel)  # its key has ids of the chat
        attributes: Attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": span.name,
            "gen_ai.conversation.id": conversation,
            "session.id": conversation,  # by which Langfuse groups
            "user.id": self._name_of(facts.get("person", ""), channel),
            "fawn.channel": channel,
            "fawn.attempt": facts["attempt"],
            "fawn.waited_seconds": facts["waited"],
        }
        return f"invoke_agent {span.name}", INTERNAL, attributes

    def _model(self, span: Span) -> tuple[str, int, Attributes]:
        operation = OPERATIONS.get(span.facts["sort"], "chat")
        provider, model = self._model_of(span.name)
        attributes: Attributes = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": model,
            "gen_ai.agent.name": span.facts["agent"],
            "fawn.model": span.name,
            "fawn.kind": span.facts["sort"],
        }
        if first := span.facts.get("first"):
            attributes["gen_ai.response.time_to_first_chunk"] = first
        if call := span.facts.get("call"):
            attributes |= {name: getattr(call, field) for field, name in TOKENS.items()}
        return f"{operation} {model}", CLIENT, attributes

    def _tool(self, span: Span) -> tuple[str, int, Attributes]:
        name = span.name or "unknown"
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
        if call := span.facts.get("id"):
            attributes["gen_ai.tool.call.id"] = call
        return f"execute_tool {name}", INTERNAL, attributes

    def _task(self, span: Span) -> tuple[str, int, Attributes]:
        attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": span.name}
        return f"invoke_agent {span.name}", INTERNAL, attributes

    def _sign(self, span: Span) -> tuple[str, int, Attributes]:
        return "first sign", INTERNAL, {"fawn.channel": span.name}

    def _call(self, span: Span) -> tuple[str, int, Attributes]:
        method = span.facts["method"]
        attributes: Attributes = {"http.request.method": method, "fawn.channel": span.name}
        if status := span.facts.get("status"):
            attributes["http.response.status_code"] = status
        if (failed := span.facts.get("failed")) or (status and status >= 400):
            attributes["error.type"] = failed or str(status)
        return f"{method} {span.name}", CLIENT, attributes

    def _delivery(self, span: Span) -> tuple[str, int, Attributes]:
        attributes: Attributes = {
            "fawn.channel": span.name,
            "fawn.kind": str(span.facts["sort"]),
            "fawn.attempt": span.facts["attempt"],
        }
        if reason := span.facts.get("reason"):
            attributes["fawn.reason"] = reason
        return f"deliver {span.name}", PRODUCER, attributes

    def _refusal(self, span: Span) -> tuple[str, int, Attributes]:
        return "budget refused", INTERNAL, {"fawn.scope": span.name, "error.type": "budget"}

    def _job(self, span: Span) -> tuple[str, int, Attributes]:
        return f"job {span.name}", INTERNAL, {"fawn.kind": span.name}


def attribute_list(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return attributes as KeyValue of common.proto; empty texts are left out."""
    return [{"key": name, "value": _value(value)} for name, value in attributes.items() if value != ""]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):  # seconds: a clock's digits below the nanosecond are noise
        return {"doubleValue": round(value, 9)}
    return {"stringValue": str(value)}
