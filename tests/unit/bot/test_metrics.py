"""Scrapes that come often, or go before their end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from agent.spans import SpanKind, inside_run, note_here, open_span, read_spans
from agent.spending import ModelCall
from bot.telemetry.metrics import Metrics

CALL = ModelCall("lead", "main", "turn", 1200, 80, 1000, 7, 1.5, 0.0)


class Measured:
    """What metrics ask of a service; `looks` counts how often."""

    def __init__(self) -> None:
        self.looks = 0
        self.prices = asyncio.Event()
        self.prices.set()

    async def report(self) -> dict[str, Any]:
        self.looks += 1
        return {}

    async def price(self, calls: Sequence[ModelCall]) -> Sequence[int | None]:
        await self.prices.wait()
        return [1_000_000 for _ in calls]


def metrics_of(measured: Measured) -> Metrics:
    return Metrics(measured.report, measured.price, lambda name: ("openai", name))


async def test_scrapes_at_once_cost_one_look() -> None:
    measured = Measured()
    metrics = metrics_of(measured)
    texts = await asyncio.gather(*(metrics.render() for _ in range(200)))
    assert (measured.looks, len(set(texts))) == (1, 1)


async def test_a_scraper_that_goes_takes_no_cost_along() -> None:
    measured = Measured()
    metrics = metrics_of(measured)
    with read_spans(metrics.read), inside_run(1, 1.0), open_span(SpanKind.MODEL, "main", sort="turn", agent="lead"):
        note_here(call=CALL)
    measured.prices.clear()
    scrape = asyncio.create_task(metrics.render(), name="scrape")
    await asyncio.sleep(0)
    scrape.cancel()
    with pytest.raises(asyncio.CancelledError):
        await scrape
    measured.prices.set()
    text = await metrics.render()
    reasoning = b'reasoning_output_tokens_total{gen_ai_operation_name="chat",gen_ai_provider_name="openai",'
    assert reasoning + b'gen_ai_request_model="main"} 7.0' in text
    assert b'fawn_cost_usd_total{kind="turn",model="main"} 1.0' in text
