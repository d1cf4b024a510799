"""Open metrics and traces at a start, where the configuration asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from aiohttp import web

from agent.settings.models import ModelSettings
from agent.spans import Reader, read_spans
from agent.spending import ModelCall
from bot.base.background import run_forever
from bot.base.process import LoopWatch
from bot.database.database import Database
from bot.database.identity import read_identity
from bot.http.route import Route
from bot.rights.current import Current
from bot.rights.reservations import Budgets
from bot.status.status import ServiceStatus
from channels.shared.background import BackgroundTasks

if TYPE_CHECKING:
    from bot.telemetry.metrics import Metrics


async def read_service(
    store: Database, current: Current, status: ServiceStatus, watch: LoopWatch, stack: AsyncExitStack
) -> Sequence[Route]:
    """Read the spans of all tasks that begin later; return the route of `/metrics`, where metrics are enabled."""
    readers: list[Reader] = []
    routes: Sequence[Route] = ()
    config, seed = current.config, await store.run(read_identity)
    if config.metrics.enabled:
        metrics = _make_metrics(Budgets(store, current), current, status)
        watch.observe = metrics.observe_lag
        readers.append(metrics.read)
        routes = [_metrics_route(metrics)]
    if config.traces.endpoint:
        readers.append(await _open_traces(current, seed, stack))
    traces = config.traces
    is_traced = bool(traces.endpoint)
    stack.enter_context(
        read_spans(
            *readers,
            seed=seed,
            contents=is_traced and traces.contents,
            propagates=is_traced and traces.propagate,
        )
    )
    return routes


def _make_metrics(budgets: Budgets, current: Current, status: ServiceStatus) -> Metrics:
    from bot.telemetry.metrics import Metrics

    async def price(calls: Sequence[ModelCall]) -> Sequence[int | None]:
        await budgets.load_prices(calls)
        return [budgets.price(call).cost for call in calls]

    return Metrics(status.measure, price, lambda name: _find_model(current, name))


def _metrics_route(metrics: Metrics) -> Route:
    from bot.telemetry.metrics import CONTENT_TYPE_LATEST

    async def answer(_request: web.Request) -> web.Response:
        text = await metrics.render()
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    return Route("GET", "/metrics", answer, quiet=True, plain=True)


async def _open_traces(current: Current, seed: str, stack: AsyncExitStack) -> Reader:
    """Send traces until the stack closes, which is after the last task."""
    from bot.telemetry.conventions import SpanFormat
    from bot.telemetry.traces import TraceExporter

    settings = current.config.traces
    spans = SpanFormat(seed, lambda name: _find_model(current, name), contents=settings.contents)
    exporter, tasks = TraceExporter(settings, spans, seed), BackgroundTasks()
    tasks.start(run_forever("traces", exporter.serve), name="traces")
    stack.push_async_callback(exporter.close)
    stack.push_async_callback(tasks.cancel)
    return exporter.read


def _find_model(current: Current, name: str) -> tuple[str, str]:
    """Return the provider of an entry of the configuration, and the provider's name of the model."""
    found = next((each for each in current.config.models if each.name == name), None)
    return (_provider(found), found.model) if found else ("", name)


def _provider(settings: ModelSettings) -> str:
    """Return the name of a model's provider: its preset, or the package of its class."""
    return settings.preset or settings.use.partition(":")[0].removeprefix("langchain_")
