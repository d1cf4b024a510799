"""Say of a route what it takes and answers, for the document that describes the API (`bot/api/openapi.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Query:
    """A parameter of the address; none is required. `kind` is its type, `bounds` are keywords of its JSON Schema."""

    name: str
    help: str
    kind: type = str
    choices: tuple[str, ...] = ()
    bounds: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Spec:
    """What a route takes and answers.

    `answer` is a dataclass, whose JSON is the answer, or None for one without a body. `body` is that of the JSON which
    it takes. `problems` are the states of its refusals beside those that each route has. `media` is what it sends
    instead of JSON: events, or a file.
    """

    summary: str
    answer: Any = None
    status: int = 200
    query: tuple[Query, ...] = ()
    body: Any = None
    problems: tuple[int, ...] = ()
    media: Literal["", "events", "file"] = ""
    idempotent: bool = False  # it takes an Idempotency-Key
    form: bool = False  # it also takes a form with files
