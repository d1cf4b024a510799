"""Report what the service does as spans: what began and ended when, inside of what, with facts about it.

Readers make metrics and traces of them (`bot/telemetry`); what reports a span knows none. Without a reader, opening a
span costs one `if`. A fact is a number, or a word of Fawn or of its configuration; a turn also names its conversation
and its person, which readers hide. What people and models write is only noted where `wants_contents` says so.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, Self, TypeAlias


class SpanKind(StrEnum):
    """What a span is about, and what its name is."""

    EVENT = "event"  # an event of a platform, stored; the channel
    RUN = "run"  # from the message to the end of its turn; the channel
    TURN = "turn"  # one attempt of a run; the agent
    MODEL = "model"  # a call of a model; its entry in the configuration
    TOOL = "tool"  # a call of a tool; the tool
    TASK = "task"  # the work of a sub-agent; its kind
    SIGN = "sign"  # the first visible words of a run; the channel
    CALL = "call"  # a request to a platform; the platform
    DELIVERY = "delivery"  # one attempt to deliver a row of the outbox; the channel
    REFUSAL = "refusal"  # by a budget; its scope
    JOB = "job"  # a background job; its kind


@dataclass(slots=True)
class SpanPlace:
    """Where a span is: its trace, its own id, the number of its run (0: none), and the unix time of what began it."""

    trace: int
    id: int
    run: int = 0
    since: float = 0.0


class Span(SpanPlace):
    """One thing that the service does, while entered. `error` is the class of what ended it, "" for none."""

    __slots__ = ("_clock", "_readers", "_token", "began", "error", "facts", "kind", "name", "parent", "seconds")

    def __init__(
        self, kind: SpanKind, name: str, facts: dict[str, Any], inside: SpanPlace | None, readers: Sequence[Reader]
    ) -> None:
        id = random.getrandbits(64)
        if inside:
            super().__init__(inside.trace, id, inside.run, inside.since)
        else:
            super().__init__(random.getrandbits(128), id)
        self._readers = readers
        self.kind, self.name, self.facts, self.error = kind, name, facts, ""
        self.parent = inside.id if inside else 0
        self.began = time.time()
        self.seconds = 0.0
        self._clock = time.perf_counter()
        self._token: Token[SpanPlace | None] | None = None

    @classmethod
    def of_run(cls, place: SpanPlace, channel: str, facts: dict[str, Any], readers: Sequence[Reader]) -> Self:
        """Return the span that all spans of a run are inside of; it began with its message."""
        span = cls(SpanKind.RUN, channel, facts, place, readers)
        span.id, span.parent = place.id, 0
        span._clock -= max(0.0, span.began - place.since)
        span.began = min(span.began, place.since)
        return span

    def note(self, **facts: Any) -> None:
        """Add facts. `error` names the class of the exception that will end the span, which an `outcome` excuses."""
        self.facts.update(facts)

    def __enter__(self) -> Self:
        self._token = _PLACE.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token:
            _PLACE.reset(self._token)
        if kind and "outcome" not in self.facts:
            stopped = issubclass(kind, asyncio.CancelledError)
            self.error = str(self.facts.pop("error", "cancelled" if stopped else kind.__name__))
        self.end()

    def end(self) -> None:
        """Give the span to the readers."""
        self.seconds = time.perf_counter() - self._clock
        for read in self._readers:
            read(self)


Reader: TypeAlias = Callable[[Span], None]


class _NoSpan:
    """What nobody reads."""

    __slots__ = ()

    def note(self, **facts: Any) -> None: ...

    def end(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class _Reading:
    """Who reads the spans. `seed` is that of the ids of runs."""

    readers: Sequence[Reader]
    seed: str
    contents: bool
    propagates: bool


_READING: ContextVar[_Reading | None] = ContextVar("reading", default=None)  # every task of the service inherits it
_PLACE: ContextVar[SpanPlace | None] = ContextVar("place", default=None)
_NO_SPAN = _NoSpan()


@contextmanager
def read_spans(*readers: Reader, seed: str = "", contents: bool = False, propagates: bool = False) -> Iterator[None]:
    """Give each span that ends to these, which return at once and never raise. `seed` makes the ids of runs unique."""
    token = _READING.set(_Reading(readers, seed, contents, propagates))
    try:
        yield
    finally:
        _READING.reset(token)


def open_span(kind: SpanKind, name: str = "", **facts: Any) -> Span | _NoSpan:
    """Return a span inside the present one; it begins now, and ends with its context."""
    reading = _READING.get()
    return Span(kind, name, facts, _PLACE.get(), reading.readers) if reading else _NO_SPAN


def note_event(kind: SpanKind, name: str = "", **facts: Any) -> None:
    """Report what takes no time."""
    if reading := _READING.get():
        Span(kind, name, facts, _PLACE.get(), reading.readers).end()


def note_here(**facts: Any) -> None:
    """Add facts to the present span."""
    if isinstance(span := _PLACE.get(), Span):
        span.note(**facts)


def is_read() -> bool:
    """Return whether somebody reads spans."""
    return _READING.get() is not None


def wants_contents() -> bool:
    """Return whether somebody reads what people and models write; then facts may have it."""
    reading = _READING.get()
    return reading is not None and reading.contents


def place_of_run(seed: str, run: int, since: float = 0.0) -> SpanPlace:
    """Return the place of a run, whose ids are the same in every process. `since` is the time of its message."""
    digest = hashlib.blake2b(f"{seed}/{run}".encode(), digest_size=24).digest()
    return SpanPlace(int.from_bytes(digest[:16]), int.from_bytes(digest[16:]), run, since)


@contextmanager
def inside_run(run: int | None, since: float = 0.0) -> Iterator[None]:
    """Let spans be inside a run, also those of tasks that begin here."""
    reading = _READING.get()
    if reading is None or run is None:
        yield
        return
    token = _PLACE.set(place_of_run(reading.seed, run, since))
    try:
        yield
    finally:
        _PLACE.reset(token)


def end_run(run: int, channel: str, since: float, **facts: Any) -> None:
    """Report that a run ended, which began with a message of the time `since`."""
    if reading := _READING.get():
        Span.of_run(place_of_run(reading.seed, run, since), channel, facts, reading.readers).end()


def trace_parent() -> str:
    """Return the header `traceparent` for a request to another program (www.w3.org/TR/trace-context); "": none."""
    reading = _READING.get()
    place = _PLACE.get() if reading and reading.propagates else None
    return f"00-{place.trace:032x}-{place.id:016x}-01" if place else ""
