"""A collector of traces over OTLP/HTTP, as strict as the protobuf schema.

A request is parsed with the compiled schema of OTLP (the package opentelemetry-proto), which refuses unknown fields,
wrong types and unknown enums. Its JSON differs from that of protobuf in the ids alone, which are hex there and base64
here (opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding); ids of another length or of zeros are refused, as
collectors do (opentelemetry.io/docs/specs/otel/trace/api/#spancontext).
"""

from __future__ import annotations

import base64
from typing import Any

import aiohttp
import orjson
from aiohttp import web
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.fakes.server import LocalServer

ID_BYTES = {"traceId": 16, "spanId": 8, "parentSpanId": 8}


class FakeCollector(LocalServer):
    """`spans` are those that it took, `refused` what was wrong with a request, `headers` those of each request.

    `busy` requests are answered with 503 first; `rejects` spans of each later one are said to be rejected.
    """

    path = "/v1/traces"
    encodings: tuple[str, ...] = ("application/json",)

    def __init__(self) -> None:
        super().__init__()
        self.spans: list[Span] = []
        self.resources: list[dict[str, Any]] = []
        self.refused: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.busy = 0
        self.rejects = 0

    def routes(self, app: web.Application) -> None:
        app.router.add_post(self.path, self._export)

    def refuse(self, _request: web.Request) -> web.Response | None:
        """Return the refusal of a request without what this place wants in its headers."""
        return None

    async def taken(self, _body: bytes) -> bool:
        """Do what this place does with spans that it understood; False refuses them."""
        return True

    def named(self, beginning: str) -> list[Span]:
        """Return the spans whose name begins so."""
        return [span for span in self.spans if span.name.startswith(beginning)]

    async def _export(self, request: web.Request) -> web.Response:
        self.headers.append(dict(request.headers))
        if refusal := self.refuse(request):
            self.refused.append(f"{refusal.status}")
            return refusal
        if self.busy:
            self.busy -= 1
            return web.Response(status=503, headers={"Retry-After": "1"})
        if request.content_type not in self.encodings:
            return web.Response(status=415)
        body = await request.read()
        try:
            if request.content_type == "application/json":
                export = ParseDict(_with_bytes(orjson.loads(body)), ExportTraceServiceRequest())
            else:
                export = ExportTraceServiceRequest.FromString(body)
            spans = [span for each in export.resource_spans for scope in each.scope_spans for span in scope.spans]
            for span in spans:
                _check(span)
        except (ParseError, DecodeError, ValueError) as error:
            self.refused.append(str(error))
            return web.json_response({"code": 3, "message": str(error)}, status=400)
        self.spans += spans
        self.resources += [attributes(each.resource) for each in export.resource_spans]
        if not await self.taken(body):
            return web.Response(status=400)
        if request.content_type != "application/json":
            return web.Response(content_type=request.content_type)
        partial = {"rejectedSpans": str(self.rejects), "errorMessage": "no"} if self.rejects else None
        return web.json_response({"partialSuccess": partial} if partial else {})


class BinaryCollector(FakeCollector):
    """Takes what collectors send on: the same schema in protobuf's own encoding."""

    encodings = ("application/x-protobuf",)


class ListeningCollector(FakeCollector):
    """Gives each request unchanged to another collector at `forward_to`, whose verdict counts."""

    def __init__(self, forward_to: str) -> None:
        super().__init__()
        self._forward_to = forward_to

    async def taken(self, body: bytes) -> bool:
        headers = {"Content-Type": "application/json"}
        async with (
            aiohttp.ClientSession() as session,
            session.post(self._forward_to, data=body, headers=headers) as answer,
        ):
            said = await answer.text()
        if answer.status != 200:
            self.refused.append(f"{answer.status} {said}")
        return answer.status == 200


class FakeLangfuse(FakeCollector):
    """Langfuse's endpoint: langfuse.com/integrations/native/opentelemetry.

    Path `/api/public/otel/v1/traces`, protobuf or JSON; Basic authentication with the public and the secret key;
    "Direct OpenTelemetry exporters must send the `x-langfuse-ingestion-version: 4` header".
    """

    path = "/api/public/otel/v1/traces"
    public, secret = "pk-lf-1234", "sk-lf-5678"

    @property
    def authorization(self) -> str:
        return f"Basic {base64.b64encode(f'{self.public}:{self.secret}'.encode()).decode()}"

    def refuse(self, request: web.Request) -> web.Response | None:
        if request.headers.get("Authorization") != self.authorization:
            return web.json_response({"error": "UnauthorizedError", "message": "Invalid credentials"}, status=401)
        if request.headers.get("x-langfuse-ingestion-version") != "4":
            return web.json_response({"error": "InvalidRequestError", "message": "ingestion version"}, status=400)
        return None


class FakeLangSmith(FakeCollector):
    """LangSmith's endpoint: docs.langchain.com/langsmith/trace-with-opentelemetry.

    Path `/otel/v1/traces`, the key in `x-api-key`, and the project, where it is not "default", in `Langsmith-Project`.
    """

    path = "/otel/v1/traces"
    key = "lsv2_pt_1234"

    def refuse(self, request: web.Request) -> web.Response | None:
        if request.headers.get("x-api-key") != self.key:
            return web.json_response({"detail": "Invalid token"}, status=401)
        return None


def attributes(of: Any) -> dict[str, Any]:
    """Return the attributes of a span or a resource."""
    return {each.key: _plain(each.value) for each in of.attributes}


def _plain(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind is None:
        raise ValueError("an attribute without a value")
    return getattr(value, kind)


def _check(span: Span) -> None:
    """Raise ValueError for a span that no collector accepts, or that makes no sense."""
    if not span.name or not span.start_time_unix_nano or span.end_time_unix_nano < span.start_time_unix_nano:
        raise ValueError(f"a span needs a name and its times: {span.name}")
    if not any(span.trace_id) or not any(span.span_id):
        raise ValueError("ids of zeros")
    keys = [each.key for each in span.attributes]
    if len(keys) != len({*keys}) or not all(keys):
        raise ValueError(f"the keys of attributes are unique: {keys}")
    attributes(span)


def _with_bytes(value: Any) -> Any:
    """Return the JSON with ids in base64, as protobuf's own JSON has them."""
    if isinstance(value, list):
        return [_with_bytes(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for name, inner in value.items():
        if name not in ID_BYTES:
            found[name] = _with_bytes(inner)
        elif inner:
            data = bytes.fromhex(inner)
            if len(data) != ID_BYTES[name]:
                raise ValueError(f"{name} has {len(data)} bytes")
            found[name] = base64.b64encode(data).decode()
    return found
