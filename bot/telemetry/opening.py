"""Open the metrics at a start, where the configuration asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from aiohttp import web

from agent.models.settings import ModelSettings
from agent.spans import read_spans
from agent.spending import ModelCall
from bot.admin.status import ServiceStatus
from bot.http.route import Route
from bot.rights.reservations import Budgets
from bot.service.loop_watch import LoopWatch

if TYPE_CHECKING:
    from bot.telemetry.metrics import Metrics


def open_metrics(status: ServiceStatus, budgets: Budgets, watch: LoopWatch, stack: AsyncExitStack) -> Sequence[Route]:
    """Count from now on; return the route of `/metrics`. Tasks that begin later are counted."""
    from bot.telemetry.metrics import CONTENT_TYPE_LATEST, Metrics

    async def price(calls: Sequence[ModelCall]) -> Sequence[int | None]:
        await budgets.load_prices(calls)
        return [budgets.price(call).cost for call in calls]

    def model_of(name: str) -> tuple[str, str]:
        found = next((each for each in budgets.current.config.models if each.name == name), None)
        return (_provider(found), found.model) if found else ("", name)

    metrics: Metrics = Metrics(status.measure, price, model_of)

    async def answer(_request: web.Request) -> web.Response:
        text = await metrics.render()
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    watch.observe = metrics.observe_lag
    stack.enter_context(read_spans(metrics.read))
    return [Route("GET", "/metrics", answer, quiet=True)]


def _provider(settings: ModelSettings) -> str:
    """Return the name of a model's provider: its preset, or the package of its class."""
    return settings.preset or settings.use.partition(":")[0].removeprefix("langchain_")
