"""Count and trace the spans of a turn: what that costs on top of it, in microseconds of CPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import orjson

from agent.spans import Span, SpanKind, inside_run, note_event, note_here, open_span, read_spans
from agent.spending import ModelCall
from bench.harness import Row, World, show

GOAL_MICROSECONDS = 20
CALL = ModelCall("lead", "main", "turn", 1200, 80, 1000, 0, 1.5, 0.0)


def spans_of_a_turn() -> int:
    """Report what a turn with one model call reports; return the number of spans."""
    note_event(SpanKind.EVENT, "telegram", outcome="accepted")
    with inside_run(1, 1.0), open_span(SpanKind.TURN, "fawn", channel="telegram", attempt=1, waited=0.01) as span:
        note_event(SpanKind.SIGN, "telegram")
        with open_span(SpanKind.MODEL, "main", sort="turn", agent="lead"):
            note_here(first=0.3)
            note_here(call=CALL)
        span.note(outcome="done")
    return 4


PAIRS = 7


def microseconds(rounds: int, work: Callable[[], Any]) -> float:
    """Return the CPU time of one round."""
    began = time.thread_time()
    for _ in range(rounds):
        work()
    return (time.thread_time() - began) / rounds * 1e6


def on_top(rounds: int, read: Callable[[Span], None], work: Callable[[], Any]) -> tuple[float, float]:
    """Return what `work` with a reader takes on top of a turn without one, and that turn: the median of pairs.

    Both halves of a pair meet the same machine, whatever else it has to do.
    """
    pairs = []
    for _ in range(PAIRS):
        off = microseconds(rounds, spans_of_a_turn)
        with read_spans(read):
            pairs.append((microseconds(rounds, work) - off, off))
    return median(more for more, _off in pairs), median(off for _more, off in pairs)


async def run(world: World, full: bool = False) -> list[Row]:
    """Measure with each reader and without one."""
    from bot.telemetry.conventions import SpanFormat
    from bot.telemetry.metrics import Metrics

    async def nothing(*_given: object) -> Any:
        return {}

    rounds = 20_000 if full else 4_000
    metrics = Metrics(nothing, nothing, lambda name: ("openai", name))
    counted, off = on_top(rounds, metrics.read, spans_of_a_turn)
    spans, kept = SpanFormat("seed", lambda name: ("openai", name), contents=False), list[Span]()

    def trace() -> None:
        kept.clear()
        spans_of_a_turn()
        orjson.dumps([spans.as_json(span) for span in kept if spans.wants(span)])

    traced, _off = on_top(rounds, kept.append, trace)
    rows = [
        Row(
            *("metrics on top of a turn, CPU µs", counted),
            goal=GOAL_MICROSECONDS,
            unit="µs",
            note=f"median of {PAIRS} pairs; the spans of a turn without a reader: {off:.1f} µs",
        ),
        Row("traces on top of a turn, encoded, CPU µs", traced, unit="µs"),
    ]
    show("Metrics", rows)
    return rows
