"""Metrics for Prometheus: the one place that has their names. Imported only where `metrics.enabled` is set.

Spans are counted as they end, and what can be measured is measured at a scrape. No label names a person, a thread, a
chat or a run: their values are words of Fawn, of the configuration, and of the servers of tools.

Names of the GenAI conventions are used where there is one (opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics),
as Prometheus writes them: dots become underscores, and the unit and `_total` follow. The conventions are in
development, so that their names may change.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from agent.spans import Span, SpanKind
from agent.spending import ModelCall
from bot.base.version import VERSION
from bot.telemetry.conventions import OPERATIONS

if TYPE_CHECKING:
    from prometheus_client.metrics import MetricWrapperBase
    from prometheus_client.metrics_core import Metric

SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)  # of the conventions
TURN_SECONDS = (0.5, 1, 2, 5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 7200)
LAG_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
FRESH_SECONDS = 1.0  # for so long all scrapes get one text: asking often costs the service nothing
MAX_UNPRICED = 1000  # calls that wait for their price, which the next scrape asks for

Report = Callable[[], Awaitable[dict[str, Any]]]
"""Measures the service, as `ServiceStatus.measure` does."""


class Metrics:
    """The metrics of one service, in a registry of their own. `read` reads spans; `render` answers a scrape.

    `price` returns the cost of calls in micro-dollars, None where it is unknown; `model_of` returns the provider of an
    entry of the configuration, and the provider's name of the model.
    """

    def __init__(
        self,
        report: Report,
        price: Callable[[Sequence[ModelCall]], Awaitable[Sequence[int | None]]],
        model_of: Callable[[str], tuple[str, str]],
    ) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no type there
        self.registry = CollectorRegistry()
        self._report, self._price, self._model_of = report, price, model_of
        self._unpriced: deque[ModelCall] = deque(maxlen=MAX_UNPRICED)
        self._of = cache(_child)  # to find a child each time takes four times as long
        self._of_turn, self._of_model = cache(self._find_turn), cache(self._find_model)
        self._measured: dict[str, Any] = {}
        self._text, self._rendered, self._rendering = b"", float("-inf"), asyncio.Lock()
        self._make_own()
        self._make_genai()
        self._read = {
            SpanKind.EVENT: self._event,
            SpanKind.TURN: self._turn,
            SpanKind.SIGN: self._sign,
            SpanKind.MODEL: self._model,
            SpanKind.TOOL: self._tool,
            SpanKind.TASK: self._task,
            SpanKind.CALL: self._call,
            SpanKind.DELIVERY: self._delivery,
            SpanKind.REFUSAL: self._refusal,
            SpanKind.JOB: self._job,
        }
        ProcessCollector(registry=self.registry)
        self.registry.register(_Measured(lambda: self._measured))

    # ------------------------------------------------------------ names

    def _make_own(self) -> None:
        self._messages = self._count("fawn_messages", "Events of platforms, by what became of them", "channel outcome")
        self._turns = self._count("fawn_turns", "Turns that ended, by how", "channel outcome")
        self._turn_seconds = self._time("fawn_turn_seconds", "How long turns took", "channel", TURN_SECONDS)
        self._waited = self._time("fawn_turn_wait_seconds", "How long messages waited for their turn", "channel")
        self._signs = self._time(
            "fawn_first_sign_seconds", "From a message to the first visible words of its reply", "channel"
        )
        self._cost = self._count("fawn_cost_usd", "What model calls cost, in US dollars", "model kind")
        self._no_price = self._count("fawn_unpriced_calls", "Model calls whose price is unknown", "model kind")
        self._calls = self._count("fawn_platform_calls", "Requests to platforms", "channel outcome")
        self._call_seconds = self._time(
            "fawn_platform_call_seconds", "How long platforms took to answer, without long polls", "channel"
        )
        self._limited = self._count(
            "fawn_platform_rate_limited", "Requests that a platform answered with 429", "channel"
        )
        self._deliveries = self._count(
            "fawn_deliveries", "Attempts to deliver a row of the outbox", "channel kind outcome"
        )
        self._retries = self._count("fawn_platform_retries", "Deliveries put off, by why", "channel reason")
        self._refused = self._count("fawn_budget_refused", "Calls that a budget or an unknown price refused", "scope")
        self._jobs = self._count("fawn_jobs", "Background jobs that ran", "kind outcome")
        self._lag = self._time("fawn_event_loop_lag_seconds", "How late the event loop answered", "", LAG_SECONDS)

    def _make_genai(self) -> None:
        model = "gen_ai_operation_name gen_ai_provider_name gen_ai_request_model"
        self._model_seconds = self._time(
            "gen_ai_client_operation_duration_seconds", "How long model calls took", f"{model} error_type"
        )
        self._first = self._time(
            "gen_ai_client_operation_time_to_first_chunk_seconds", "From a model call to its first words", model
        )
        self._tokens = {
            name: self._count(f"gen_ai_client_inference_usage_{word}_tokens", f"Tokens of model calls: {about}", model)
            for name, word, about in (
                ("input", "input", "input, with what was cached"),
                ("output", "output", "output, with reasoning"),
                ("cached", "cache_read_input", "input that the provider had cached"),
                ("reasoning", "reasoning_output", "reasoning"),
            )
        }
        self._agent_seconds = self._time(
            "gen_ai_invoke_agent_duration_seconds",
            "How long agents worked: those of turns, and sub-agents by their kind",
            "gen_ai_agent_name error_type",
            TURN_SECONDS,
        )
        self._tool_seconds = self._time(
            "gen_ai_execute_tool_duration_seconds", "How long tools ran", "gen_ai_tool_name error_type"
        )

    def _count(self, name: str, about: str, labels: str) -> Counter:
        return Counter(name, about, labels.split(), registry=self.registry)

    def _time(self, name: str, about: str, labels: str, buckets: Sequence[float] = SECONDS) -> Histogram:
        return Histogram(name, about, labels.split(), buckets=buckets, registry=self.registry)

    def _find_turn(self, channel: str, outcome: str, agent: str, error: str) -> tuple[Any, ...]:
        """Return what counts a turn, what takes its seconds, those of its agent, and how long it waited."""
        return (
            self._turns.labels(channel, outcome).inc,
            self._turn_seconds.labels(channel).observe,
            self._agent_seconds.labels(agent, error).observe,
            self._waited.labels(channel).observe,
        )

    def _find_model(self, operation: str, provider: str, model: str, error: str) -> tuple[Any, ...]:
        """Return what takes the seconds of a model call and of its first words, and its tokens by their name."""
        labels = (operation, provider, model)
        return (
            self._model_seconds.labels(*labels, error).observe,
            self._first.labels(*labels).observe,
            [(name, counter.labels(*labels).inc) for name, counter in self._tokens.items()],
        )

    # ------------------------------------------------------------ spans

    def read(self, span: Span) -> None:
        """Count a span that has ended."""
        if count := self._read.get(span.kind):
            count(span)

    def observe_lag(self, seconds: float) -> None:
        """Count a delay of the event loop. Called on another thread."""
        self._lag.observe(seconds)

    def _event(self, span: Span) -> None:
        self._of(self._messages, span.name, span.facts["outcome"]).inc()

    def _turn(self, span: Span) -> None:
        channel = span.facts["channel"]
        outcome = span.error or span.facts["outcome"]
        error = outcome if outcome == "failed" else span.error
        count, take, take_agent, take_wait = self._of_turn(channel, outcome, span.name, error)
        count()
        take(span.seconds)
        take_agent(span.seconds)
        if span.facts["attempt"] == 1:
            take_wait(span.facts["waited"])

    def _sign(self, span: Span) -> None:
        self._of(self._signs, span.name).observe(max(0.0, time.time() - span.since))

    def _model(self, span: Span) -> None:
        operation = OPERATIONS.get(span.facts["sort"], "chat")
        take, take_first, counts = self._of_model(operation, *self._model_of(span.name), span.error)
        take(span.seconds)
        if first := span.facts.get("first"):
            take_first(first)
        if call := span.facts.get("call"):
            for name, count in counts:
                if tokens := getattr(call, name):
                    count(tokens)
            self._unpriced.append(call)

    def _tool(self, span: Span) -> None:
        if span.facts.get("outcome") != "waiting":
            error = span.error or span.facts.get("outcome") or ""
            self._of(self._tool_seconds, span.name or "unknown", error).observe(span.seconds)

    def _task(self, span: Span) -> None:
        self._of(self._agent_seconds, span.name, span.error).observe(span.seconds)

    def _call(self, span: Span) -> None:
        status = span.facts.get("status", 0)
        outcome = f"{status // 100}xx" if status else "no answer"
        self._of(self._calls, span.name, outcome).inc()
        if status == 429:
            self._of(self._limited, span.name).inc()
        if status and not span.facts["poll"]:
            self._of(self._call_seconds, span.name).observe(span.seconds)

    def _delivery(self, span: Span) -> None:
        self._of(self._deliveries, span.name, span.facts["sort"], span.error or span.facts["outcome"]).inc()
        if span.facts.get("outcome") == "later":
            self._of(self._retries, span.name, span.facts.get("reason", "")).inc()

    def _refusal(self, span: Span) -> None:
        self._of(self._refused, span.name).inc()

    def _job(self, span: Span) -> None:
        self._of(self._jobs, span.name, span.error or "done").inc()

    # ------------------------------------------------------------ a scrape

    async def render(self) -> bytes:
        """Return the text for Prometheus, at most a second old."""
        async with self._rendering:
            if time.monotonic() - self._rendered > FRESH_SECONDS:
                await self._price_calls()
                self._measured = await self._report()
                self._text, self._rendered = generate_latest(self.registry), time.monotonic()
            return self._text

    async def _price_calls(self) -> None:
        """Count what the calls since the last scrape cost. Those whose price cannot be asked wait for the next one."""
        calls = [*self._unpriced]
        self._unpriced.clear()
        try:
            costs = await self._price(calls)
        except BaseException:  # also a scraper that has gone
            self._unpriced.extendleft(reversed(calls))
            raise
        for call, cost in zip(calls, costs, strict=True):
            if cost is None:
                self._of(self._no_price, call.model, call.kind).inc()
            else:
                self._of(self._cost, call.model, call.kind).inc(cost / 1_000_000)


def _child(metric: MetricWrapperBase, *labels: str) -> Any:
    return metric.labels(*labels)


class _Measured:
    """What is measured at a scrape."""

    def __init__(self, measured: Callable[[], dict[str, Any]]) -> None:
        self._last = measured

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the latest measurement."""
        found = self._last()
        info = GaugeMetricFamily("fawn_info", "The version", labels=["version"])
        info.add_metric([VERSION], 1)
        yield info
        for name, about in GAUGES.items():
            yield GaugeMetricFamily(f"fawn_{name}", about, value=found.get(name))
        for name, about in COUNTERS.items():
            yield CounterMetricFamily(f"fawn_{name}", about, value=found.get(name))
        ready = GaugeMetricFamily("fawn_channel_ready", "Whether a channel is connected", labels=["channel"])
        for channel, is_ready in found.get("channels", {}).items():
            ready.add_metric([channel], float(is_ready))
        yield ready


GAUGES = {
    "ready": "Whether messages are answered, as /readyz says",
    "turns_live": "Turns in progress",
    "queue_conversations": "Conversations with messages that wait for a turn",
    "queue_age_seconds": "For how long the oldest queued message has been ready",
    "outbox_rows": "Rows of the outbox that are to be delivered now",
    "outbox_age_seconds": "Age of the oldest of them",
    "outbox_waiting_rows": "Rows that are delivered when a person comes, such as to a closed console",
    "dead_letters": "Deliveries that were given up",
    "jobs_waiting": "Background jobs that wait",
    "sandboxes_in_use": "Sandboxes that turns and tasks use now",
}
COUNTERS = {
    "sandbox_seconds": "How long turns and tasks have used sandboxes, of those uses that ended and go on",
    "sandbox_uses": "Uses of a sandbox by a turn or a task",
    "database_commits": "Transactions of the database",
    "database_units": "Units of work in them",
}

__all__ = ["CONTENT_TYPE_LATEST", "Metrics"]
