"""Describe the API as one OpenAPI 3.1 document, made from the routes and the types that they name.

https://spec.openapis.org/oas/v3.1.1.html
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from bot.api.answers import ProblemAnswer
from bot.base.version import VERSION
from bot.http.exchange import PROBLEM_TYPE
from bot.http.route import JSON_TYPE, Query, Route, Spec

if TYPE_CHECKING:
    from aiohttp import web

PATH = "/v1/openapi.json"
REFS = "#/components/schemas/{model}"
NUMBERS = ("run", "message", "schedule", "task", "memory", "number")  # in a path
IDS = {"thread": r"^[A-Za-z0-9_-]{1,64}$"}
ALWAYS = (400, 401, 403, 503)  # refusals of each route: a broken request, no key, no right, not now
WITH_BODY = (408, 413, 415, 422)
SUMMARY = "A message by HTTP is a message of a chat: docs/api.md says what a program may rely on."


class OpenApi:
    """The route of the document. `routes` are those that it describes."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._document = _describe(routes)

    def routes(self) -> Sequence[Route]:
        """Return the route."""
        return [Route("GET", PATH, self._send, quiet=True)]

    async def _send(self, request: web.Request) -> web.Response:
        from bot.http.route import read_response

        return read_response(request, self._document())


def _describe(routes: Sequence[Route]) -> Any:
    """Return what makes the document, once."""

    @cache
    def make() -> dict[str, Any]:
        return make_document(routes)

    return make


def make_document(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the document of the routes that have a `spec`."""
    schemas: dict[str, Any] = {}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if route.spec:
            operation = _operation(route, route.spec, schemas)
            paths.setdefault(route.path, {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Fawn", "version": VERSION, "description": SUMMARY},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}],
    }


def _operation(route: Route, spec: Spec, schemas: dict[str, Any]) -> dict[str, Any]:
    parameters = [_in_path(name) for name in re.findall(r"\{(\w+)\}", route.path)]
    parameters += [_in_query(query) for query in spec.query]
    if spec.idempotent:
        schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"^[!-~]+$"}
        parameters.append({"name": "Idempotency-Key", "in": "header", "schema": schema})
    found: dict[str, Any] = {"summary": spec.summary, "operationId": _name(route)}
    if parameters:
        found["parameters"] = parameters
    problems = {*ALWAYS, *spec.problems}
    if spec.body:
        problems |= {*WITH_BODY}
        body = {JSON_TYPE: {"schema": _schema(spec.body, schemas, "validation")}}
        if spec.form:
            body["multipart/form-data"] = {"schema": FORM}
        found["requestBody"] = {"required": True, "content": body}
    answers = {f"{spec.status}": _answer(spec, schemas)}
    if route.method == "GET" and not spec.media:
        answers["304"] = {"description": "The client has this answer already"}
    if spec.media == "events":
        answers["204"] = {"description": "It has ended, and the client has all of it"}
        problems |= {429}
    if spec.media == "file":
        answers |= {"206": _answer(spec, schemas), "416": {"description": "There is no such part"}}
        answers["304"] = {"description": "The client has this file already"}
    problem = {PROBLEM_TYPE: {"schema": _schema(ProblemAnswer, schemas, "serialization")}}
    for status in sorted(problems):
        answers[f"{status}"] = {"description": HTTPStatus(status).phrase, "content": problem}
    return {**found, "responses": answers}


FORM = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "files": {"type": "array", "items": {"type": "string", "format": "binary"}},
    },
}


def _answer(spec: Spec, schemas: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if spec.media == "events":
        content = {"text/event-stream": {"schema": {"type": "string"}}}
    elif spec.media == "file":
        content = {"*/*": {"schema": {"type": "string", "format": "binary"}}}
    elif spec.answer:
        content = {JSON_TYPE: {"schema": _schema(spec.answer, schemas, "serialization")}}
    return {"description": HTTPStatus(spec.status).phrase, **({"content": content} if content else {})}


def _in_path(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "minLength": 1, "pattern": IDS.get(name, r"^[^/\x00-\x1f]+$")}
    if name in NUMBERS:
        schema = {"type": "integer", "minimum": 1, "maximum": 10**18 - 1}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _in_query(query: Query) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer" if query.kind is int else "string", **query.bounds}
    if query.choices:
        schema["enum"] = [*query.choices]
    return {"name": query.name, "in": "query", "description": query.help, "schema": schema}


def _name(route: Route) -> str:
    words = re.sub(r"\W+", " ", route.path.removeprefix("/v1/")).split()
    return "_".join([route.method.lower(), *words])


def _schema(kind: Any, schemas: dict[str, Any], mode: Any) -> dict[str, Any]:
    """Return a reference to the schema of a dataclass, which is added with those that it names."""
    from pydantic import ConfigDict, TypeAdapter, with_config

    strict = with_config(ConfigDict(extra="forbid"))(kind) if mode == "validation" else kind
    found = TypeAdapter(strict).json_schema(ref_template=REFS, mode=mode)
    for name, inner in found.pop("$defs", {}).items():
        schemas[name] = _closed(inner)
    if mode == "validation":  # each text that must be there says something: `checked_text`
        for name in found.get("required", ()):
            if found["properties"][name].get("type") == "string":
                found["properties"][name] |= {"minLength": 1, "pattern": r"\S"}
    schemas[kind.__name__] = _closed(found)
    return {"$ref": REFS.format(model=kind.__name__)}


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object that has nothing else."""
    return {**schema, "additionalProperties": False} if "properties" in schema else schema
